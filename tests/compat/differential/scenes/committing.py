"""OffsetCommit (8), OffsetFetch (9), OffsetDelete (47)."""

from headwater.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from tests.compat.differential.coordinator import admitted, coordinator, join, leave
from tests.compat.differential.scene import Scene, newest, scene, versions

_Part = OffsetCommitRequest.OffsetCommitRequestPartition
_Group = OffsetFetchRequest.OffsetFetchRequestGroup
_Wanted = OffsetFetchRequest.OffsetFetchRequestTopics
BY_NAME = 9
"""The last version of both APIs with topics by name."""


def commit(
    s: Scene, group: str, topic: str, *parts: _Part, generation: int = -1, member: str = "", **more
) -> OffsetCommitRequest:
    """Offset 5 of partition 0, unless parts are given."""
    row = OffsetCommitRequest.OffsetCommitRequestTopic(
        name=topic,
        topic_id=s.topic_ids.get(topic, b"\x07" * 16),
        partitions=list(parts) or [_Part(committed_offset=5, committed_metadata="m")],
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[row],
        **more,
    )


def fetch(s: Scene, group: str, *topics: str, partitions: tuple[int, ...] = (0,), **more):
    """OffsetFetch of version 8 and newer; no topics means all."""
    wanted = [
        _Wanted(
            name=name,
            topic_id=s.topic_ids.get(name, b"\x07" * 16),
            partition_indexes=list(partitions),
        )
        for name in topics
    ]
    group_row = _Group(group_id=group, topics=wanted or None, **more)
    return OffsetFetchRequest(groups=[group_row])


def old_fetch(group: str, *topics: str, partitions: tuple[int, ...] = (0,)) -> OffsetFetchRequest:
    """OffsetFetch up to version 7; no topics means all."""
    wanted = [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=list(partitions))
        for name in topics
    ]
    return OffsetFetchRequest(group_id=group, topics=wanted or None)


@scene
def commit_and_fetch_without_members(s: Scene) -> None:
    coordinator(s)
    s.topic("simple", 2)
    for version in range(2, newest(OffsetCommitRequest) + 1):
        s.ask("commit", commit(s, f"simple-{version}", "simple"), version)
        both = [
            _Part(partition_index=n, committed_offset=n, committed_metadata=None) for n in (0, 7)
        ]
        s.ask("unknown partition too", commit(s, f"simple-{version}", "simple", *both), version)
        s.ask("unknown topic", commit(s, f"simple-{version}", "absent"), version)
        s.ask("no group id", commit(s, "", "simple"), version)
        s.ask("negative offset", commit(s, "neg", "simple", _Part(committed_offset=-1)), version)
        long = _Part(committed_offset=1, committed_metadata="x" * 4097)
        s.ask("long metadata", commit(s, "long", "simple", long), version)
        fits = _Part(committed_offset=1, committed_metadata="x" * 4096)
        s.ask("metadata that fits", commit(s, "long", "simple", fits), version)
        s.ask("member of no group", commit(s, "none", "simple", member="x"), version)
        request = commit(s, "none", "simple", generation=3, member="x")
        s.ask("generation of no group", request, version)
        s.ask("generation 0", commit(s, "none", "simple", generation=0), version)
        s.ask("nothing", OffsetCommitRequest(group_id="simple-2"), version)
    for version in range(1, 8):
        for group in ("simple-2", "neg", "long", "absent", ""):
            s.ask(
                f"fetch {group}",
                old_fetch(group, "simple", "absent", partitions=(0, 1, 9)),
                version,
            )
            if version > 1:
                s.ask(f"fetch all of {group}", old_fetch(group), version)
    for version in (8, 9, 10):
        for group in ("simple-2", "neg", "long", "absent", ""):
            request = fetch(s, group, "simple", "absent", partitions=(0, 1, 9))
            s.ask(f"fetch {group}", request, version)
            request.require_stable = True
            s.ask(f"fetch {group}, stable", request, version)
            s.ask(f"fetch all of {group}", fetch(s, group), version)
        several = OffsetFetchRequest(
            groups=[fetch(s, name, "simple").groups[0] for name in ("simple-2", "x", "simple-2")]
        )
        s.ask("several groups", several, version)
        s.ask("no groups", OffsetFetchRequest(), version)
    s.ask("no topics", OffsetFetchRequest(groups=[_Group(group_id="simple-2", topics=[])]))
    for epoch in (-1, 0, 5):
        request = fetch(s, "simple-2", "simple", member_id="x", member_epoch=epoch)
        s.ask(f"with a member and epoch {epoch}", request)
        s.ask("and no group", fetch(s, "absent", "simple", member_id="x", member_epoch=epoch))


@scene
def commit_epochs_and_retention(s: Scene) -> None:
    coordinator(s)
    s.topic("details")
    part = _Part(committed_offset=5, committed_leader_epoch=3, committed_metadata="m")
    s.ask("epoch", commit(s, "details", "details", part), BY_NAME)
    s.ask("epoch is kept", fetch(s, "details", "details"), BY_NAME)
    s.ask("in an old form", old_fetch("details", "details"), 4)
    request = commit(s, "kept", "details", retention_time_ms=60_000)
    s.ask("with retention", request, 3)
    s.ask("is there", fetch(s, "kept", "details"), BY_NAME)
    empty = _Part(committed_offset=5, committed_metadata="")
    s.ask("empty metadata", commit(s, "details", "details", empty), BY_NAME)
    s.ask("null metadata", commit(s, "n", "details", _Part(committed_metadata=None)), BY_NAME)
    s.ask("shown as", fetch(s, "n", "details"), BY_NAME)
    s.ask("internal topic", commit(s, "details", "__consumer_offsets"), BY_NAME)
    s.ask("its offset", fetch(s, "details", "__consumer_offsets"), BY_NAME)
    s.ask("bad name", commit(s, "details", "no/slash"), BY_NAME)
    s.ask("its offset", fetch(s, "details", "no/slash"), BY_NAME)
    s.ask("zero id", _zero(s), 10)


def _zero(s: Scene) -> OffsetCommitRequest:
    request = commit(s, "details", "details")
    request.topics[0].topic_id = bytes(16)
    return request


@scene
def commit_as_a_member(s: Scene) -> None:
    coordinator(s)
    s.topic("owned")
    me = admitted(s, "members").member_id
    for version in versions(OffsetCommitRequest, 7):
        for member in (me, "x", ""):
            for generation in (-1, 0, 1, 2):
                request = commit(s, "members", "owned", generation=generation, member=member)
                s.ask(
                    f"generation {generation} {member[-2:] if member != me else 'me'}",
                    request,
                    version,
                )
        request = commit(s, "members", "owned", generation=1, member=me, group_instance_id="i")
        s.ask("with an unknown instance", request, version)
    s.ask("completing", join("members", me))
    request = commit(s, "members", "owned", generation=2, member=me)
    s.ask("while completing", request, BY_NAME)
    request = commit(s, "members", "owned", generation=1, member=me)
    s.ask("of the old generation while completing", request, BY_NAME)
    s.ask("leaves", leave("members", (me, None)))
    s.ask("after leaving", request, BY_NAME)
    s.ask("as nobody", commit(s, "members", "owned"), BY_NAME)
    for epoch in (-1, 0, 1):
        request = fetch(s, "members", "owned", member_id=me, member_epoch=epoch)
        s.ask(f"fetch as a member, epoch {epoch}", request, BY_NAME)


def forget(group: str, topic: str, *partitions: int) -> OffsetDeleteRequest:
    """An OffsetDelete request."""
    rows = [
        OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=it) for it in partitions
    ]
    return OffsetDeleteRequest(
        group_id=group,
        topics=[OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=rows)],
    )


@scene
def delete_offsets(s: Scene) -> None:
    coordinator(s)
    s.topic("t")
    s.topic("other", 2)
    s.ask("unknown group", forget("absent", "t", 0))
    s.ask("unknown group and topic", forget("absent", "absent", 0))
    s.ask("no group id", forget("", "t", 0))
    me = admitted(s, "reads-t").member_id
    for topic in ("t", "other"):
        s.peer.call(commit(s, "reads-t", topic, generation=1, member=me), BY_NAME)
    s.ask("subscribed", forget("reads-t", "t", 0, 1))
    s.ask("not subscribed", forget("reads-t", "other", 0, 1, 9))
    s.ask("unknown topic", forget("reads-t", "absent", 0))
    s.ask("nothing", OffsetDeleteRequest(group_id="reads-t"))
    s.ask("what is left", fetch(s, "reads-t"), BY_NAME)
    s.ask("leaves", leave("reads-t", (me, None)))
    s.ask("empty now", forget("reads-t", "t", 0))
    s.ask("nothing is left", fetch(s, "reads-t"), BY_NAME)
    s.peer.call(commit(s, "simple-x", "t"), BY_NAME)
    s.ask("of a group without members", forget("simple-x", "t", 0))
    s.ask("again", forget("simple-x", "t", 0))
    worker = admitted(s, "workers", protocol_type="connect", metadata=b"?")
    s.peer.call(commit(s, "workers", "t", generation=1, member=worker.member_id), BY_NAME)
    s.ask("of a group that is not of consumers", forget("workers", "t", 0))
