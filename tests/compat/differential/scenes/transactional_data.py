"""What transactions write: Produce (0), WriteTxnMarkers (27), TxnOffsetCommit (28) and what readers see of it."""

import time
from typing import Any

from headwater.records.batch import batches
from headwater.wire.messages.fetch import FetchRequest
from headwater.wire.messages.groups import DeleteGroupsRequest
from headwater.wire.messages.offsets import (
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from headwater.wire.messages.producers import DescribeProducersRequest
from headwater.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    DescribeTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from tests.compat.differential.batch import batch
from tests.compat.differential.coordinator import admitted, coordinator, join, leave, sync
from tests.compat.differential.scene import Scene, scene
from tests.compat.differential.scenes.producing import produce
from tests.compat.differential.scenes.transacting import (
    NOT_READY,
    add,
    begun,
    completed,
    end,
    expecting,
    init,
    started,
    transactions,
)

ADDS = 12
"""The first version of Produce that adds its partitions to the transaction."""
MADE_UP = 4711
"""A producer id that no broker gave."""


def write(
    topic: str, name: str | None, who: dict[str, int], sequence: int, transactional: bool = True
) -> Any:
    producer = (who["producer_id"], who["producer_epoch"], sequence)
    part = batch(producer=producer, transactional=transactional)
    return produce(topic, part, transactional_id=name)


def readers(s: Scene, topic: str) -> None:
    """Write down what consumers of both kinds see; producer ids differ between brokers."""
    for isolation in (0, 1):
        wanted = FetchRequest.FetchPartition(fetch_offset=0, partition_max_bytes=1 << 24)
        request = FetchRequest(
            isolation_level=isolation,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
        )
        found = s.peer.call(request, 11).responses[0].partitions[0]
        stored = [
            (header.base_offset, header.base_sequence, header.attributes, header.producer_epoch)
            for _, header in batches(found.records or b"")
        ]
        aborted = found.aborted_transactions
        s.note(
            f"isolation {isolation}",
            [
                found.error_code,
                found.high_watermark,
                found.last_stable_offset,
                None if aborted is None else [row.first_offset for row in aborted],
                [list(row) for row in stored],
            ],
        )
        part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        ends = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])],
        )
        s.ask(f"the end, isolation {isolation}", ends, 6)
    described = s.peer.call(
        DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])]
        ),
        0,
    )
    rows = [
        [it.producer_epoch, it.last_sequence, it.coordinator_epoch, it.current_txn_start_offset]
        for it in described.topics[0].partitions[0].active_producers
    ]
    s.note("producers", sorted(rows))


@scene
def batches_of_transactions(s: Scene) -> None:
    transactions(s)
    for version in (3, 9, 10, 11):
        topic, name = f"data-{version}", f"data {version}"
        s.topic(topic)
        who = started(s, name)
        me = expecting(who)
        s.ask("before it is added", write(topic, name, me, 0), version)
        begun(s, name, topic, who)
        s.ask("of an unknown producer", write(topic, name, me | {"producer_id": 99}, 0), version)
        s.ask("of a newer epoch", write(topic, name, expecting(who, 1), 0), version)
        s.ask("with another id", write(topic, "another", me, 0), version)
        s.ask("the first", write(topic, name, me, 0), version)
        s.ask("the first again", write(topic, name, me, 0), version)
        s.ask("the second", write(topic, name, me, 1), version)
        s.ask("after a gap", write(topic, name, me, 7), version)
        s.ask("without an id", write(topic, None, me, 2), version)
        s.ask("outside of the transaction", write(topic, name, me, 2, False), version)
        readers(s, topic)
        s.peer.call(end(name, me), 4)
        completed(s, name)
        readers(s, topic)
        s.ask("outside", write(topic, name, me, 2, False), version)
        s.ask("after the end", write(topic, name, me, 3), version)
        begun(s, name, topic, who)
        s.ask("of the next one", write(topic, name, me, 3), version)
        s.peer.call(end(name, me, False), 4)
        completed(s, name)
        readers(s, topic)
        newer = started(s, name)
        s.ask("of the fenced", write(topic, name, me, 4), version)
        begun(s, name, topic, newer)
        s.ask("not from the start", write(topic, name, expecting(newer), 4), version)
        s.ask("of the newer", write(topic, name, expecting(newer), 0), version)
        s.ask("of the fenced, later", write(topic, name, me, 4), version)
        readers(s, topic)


@scene
def batches_that_add_their_partition(s: Scene) -> None:
    transactions(s)
    topic, name = "adding", "adding"
    s.topic(topic)
    who = started(s, name)
    me = expecting(who)
    s.ask("not from the start", write(topic, name, me, 3), ADDS)
    s.ask("of a newer epoch", write(topic, name, expecting(who, 1), 0), ADDS)
    s.ask("of an unknown producer", write(topic, name, me | {"producer_id": 99}, 0), ADDS)
    s.ask("of an unknown id", write(topic, "unknown", me, 0), ADDS)
    s.ask("the first", write(topic, name, me, 0), ADDS)
    s.ask("the second", write(topic, name, me, 1), ADDS)
    s.ask("the first again", write(topic, name, me, 0), ADDS)
    readers(s, topic)
    ended = s.peer.call(end(name, me), 5)
    completed(s, name)
    readers(s, topic)
    s.ask("of the one before", write(topic, name, me, 2), ADDS)
    mine = {"producer_id": ended.producer_id, "producer_epoch": ended.producer_epoch}
    s.ask("of the next", write(topic, name, mine, 0), ADDS)
    s.peer.call(end(name, mine, False), 5)
    completed(s, name)
    readers(s, topic)


def marker(
    topic: str,
    epoch: int,
    *,
    commit: bool = True,
    coordinator_epoch: int = 0,
    version: int = 0,
    partition: int = 0,
    producer: int = MADE_UP,
) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=producer,
                producer_epoch=epoch,
                transaction_result=commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=version,
                topics=[
                    WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                        name=topic, partition_indexes=[partition]
                    )
                ],
            )
        ]
    )


@scene
def markers_by_hand(s: Scene) -> None:
    transactions(s)
    s.topic("marked")
    for version in (1, 2):
        s.ask("nothing", WriteTxnMarkersRequest(), version)
        s.ask("no topic", marker("absent", 0), version)
        s.ask("no partition", marker("marked", 0, partition=7), version)
    s.ask("without a transaction", marker("marked", 2, coordinator_epoch=3), 1)
    s.ask("again", marker("marked", 2, coordinator_epoch=3), 1)
    s.ask("of an older epoch", marker("marked", 1, coordinator_epoch=3), 1)
    s.ask("of an older coordinator", marker("marked", 2, coordinator_epoch=2), 1)
    readers(s, "marked")
    who = started(s, "marked")
    mine = who.producer_id
    begun(s, "marked", "marked", who)
    s.ask("a batch", write("marked", "marked", expecting(who), 0), 9)
    late = marker("marked", who.producer_epoch, version=2, producer=mine)
    s.ask("of the same epoch, bumping", late, 2)
    s.ask("of the next epoch, bumping",
          marker("marked", who.producer_epoch + 1, commit=False, version=2, producer=mine), 2)  # fmt: skip
    s.ask("again, bumping",
          marker("marked", who.producer_epoch + 1, commit=False, version=2, producer=mine), 2)  # fmt: skip
    readers(s, "marked")
    s.ask("a batch after it", write("marked", "marked", expecting(who), 1), 9)


# -- offsets


def offsets(
    name: str, who: dict[str, int], group: str, topic: str, offset: int, **member: Any
) -> TxnOffsetCommitRequest:
    part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="m"
    )
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
        **who,
        **member,
    )


def committed(s: Scene, group: str, topic: str) -> None:
    for stable in (False, True):
        for topics in (
            None,
            [OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])],
        ):
            request = OffsetFetchRequest(
                require_stable=stable,
                groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)],
            )
            s.ask(f"offsets, stable {stable}", request, 9)
        older = OffsetFetchRequest(
            group_id=group,
            require_stable=stable,
            topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])],
        )
        s.ask(f"offsets, stable {stable}", older, 7)


@scene
def offsets_of_transactions(s: Scene) -> None:
    transactions(s)
    coordinator(s)
    s.topic("settled")
    for version in (0, 2, 3, 4):
        name, group = f"offsets of {version}", f"transactional group {version}"
        who = started(s, name)
        me = expecting(who)
        s.ask("before they are added", offsets(name, me, group, "settled", 3), version)
        added = s.peer.call(AddOffsetsToTxnRequest(transactional_id=name, group_id=group, **me), 3)
        assert added.error_code == 0, added
        s.ask("no group", offsets(name, me, "", "settled", 3), version)
        s.ask("no topic", offsets(name, me, group, "absent", 3), version)
        s.ask("another epoch", offsets(name, expecting(who, 1), group, "settled", 3), version)
        s.ask(
            "another producer",
            offsets(name, me | {"producer_id": 99}, group, "settled", 3),
            version,
        )
        if version >= 3:
            gone = offsets(name, me, group, "settled", 3, member_id="gone", generation_id=4)
            s.ask("a member that left", gone, version)
        s.ask("offsets", offsets(name, me, group, "settled", 5), version)
        committed(s, group, "settled")
        s.ask("later ones", offsets(name, me, group, "settled", 6), version)
        s.peer.call(end(name, me), 4)
        completed(s, name)
        committed(s, group, "settled")
        s.ask("after the end", offsets(name, me, group, "settled", 7), version)


@scene
def pending_offsets_and_others(s: Scene) -> None:
    transactions(s)
    coordinator(s)
    s.topic("shared")
    name, group = "pending", "pending"
    who = started(s, name)
    me = expecting(who)

    def pend(offset: int) -> None:
        while True:
            added = s.peer.call(
                AddOffsetsToTxnRequest(transactional_id=name, group_id=group, **me), 3
            )
            if added.error_code == 0:
                break
        s.ask("pending", offsets(name, me, group, "shared", offset), 3)

    def plain(offset: int) -> None:
        part = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="shared", partitions=[part])],
        )
        s.ask("plain", request, 8)

    plain(1)
    pend(10)
    plain(2)
    committed(s, group, "shared")
    s.peer.call(end(name, me), 4)
    completed(s, name)
    committed(s, group, "shared")
    pend(11)
    s.peer.call(end(name, me, False), 4)
    completed(s, name)
    committed(s, group, "shared")
    pend(12)
    delete = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name="shared",
                partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)],
            )
        ],
    )
    s.ask("offsets are deleted", delete)
    committed(s, group, "shared")
    pend(13)
    s.ask("the group is deleted", DeleteGroupsRequest(groups_names=[group]))
    s.peer.call(end(name, me), 4)
    completed(s, name)
    committed(s, group, "shared")


@scene
def producers_under_the_ids_of_others(s: Scene) -> None:
    transactions(s)
    coordinator(s)
    s.topic("swapped")
    one, other = (started(s, name) for name in ("swapped one", "swapped other"))
    mine, yours = expecting(one), expecting(other)
    for joins in (False, True):
        label = "both" if joins else "one"
        begun(s, "swapped one", "swapped", one)
        add_offsets(s, "swapped one", mine, "swapped")
        if joins:
            begun(s, "swapped other", "swapped", other)
            add_offsets(s, "swapped other", yours, "swapped")
        for version in (11, ADDS):
            s.ask(f"{label}, a batch", write("swapped", "swapped one", yours, 0), version)
        for version in (2, 3, 4):
            swapped = offsets("swapped one", yours, "swapped", "swapped", 3)
            s.ask(f"{label}, offsets", swapped, version)
        readers(s, "swapped")
        committed(s, "swapped", "swapped")
        for name, who in (("swapped one", mine), ("swapped other", yours)):
            s.ask(f"{label}, {name} ends", end(name, who), 4)
            completed(s, name)
        committed(s, "swapped", "swapped")
    readers(s, "swapped")


def add_offsets(s: Scene, name: str, who: dict[str, int], group: str) -> None:
    """Add the offsets of a group, once the markers of the last transaction are written."""
    request = AddOffsetsToTxnRequest(transactional_id=name, group_id=group, **who)
    while (answer := s.peer.call(request, 3)).error_code in NOT_READY:
        pass
    assert answer.error_code == 0, answer


@scene
def offsets_of_members_that_left(s: Scene) -> None:
    transactions(s)
    coordinator(s)
    s.topic("left")
    name = group = "left"
    who = expecting(started(s, name))
    add_offsets(s, name, who, group)
    me = admitted(s, group).member_id

    def commit(label: str, generation: int, member: str = me, **more: str) -> None:
        for version in (3, 4):
            request = offsets(
                name, who, group, "left", 7, member_id=member, generation_id=generation, **more
            )
            s.ask(f"{label}, generation {generation}", request, version)

    for generation in (-1, 0, 1, 2):
        commit("a member", generation)
    for generation in (-1, 1):
        commit("nobody", generation, "")
    commit("an unknown member", 1, "unknown")
    commit("an unknown instance", 1, group_instance_id="unknown")
    assert s.peer.call(join(group, me), 9).generation_id == 2
    for generation in (1, 2):
        commit("while the group completes", generation)
    s.ask("completed", sync(group, 2, me, me))
    for generation in (1, 2):
        commit("a member", generation)
    s.ask("leaves", leave(group, (me, None)))
    for generation in (1, 2, -1):
        commit("a member that left", generation)
    commit("nobody", -1, "")
    s.ask("the end", end(name, who), 4)
    completed(s, name)
    committed(s, group, "left")


@scene
def markers_of_offsets_by_hand(s: Scene) -> None:
    transactions(s)
    coordinator(s)
    s.topic("offsets-by-hand")
    place = "__consumer_offsets"
    for version in (1, 2):
        s.ask("no partition", marker(place, 0, partition=70), version)
    s.ask("without a transaction", marker(place, 2, coordinator_epoch=3), 1)
    s.ask("again", marker(place, 2, coordinator_epoch=3), 1)
    s.ask("of an older epoch", marker(place, 1, coordinator_epoch=3), 1)
    s.ask("of an older coordinator", marker(place, 2, coordinator_epoch=2), 1)
    for number, (version, commit) in enumerate([(1, True), (1, False), (2, True), (2, False)]):
        name = group = f"by hand {number}"
        who = started(s, name)
        me = expecting(who)
        add_offsets(s, name, me, group)
        s.ask("pending", offsets(name, me, group, "offsets-by-hand", 3), 3)
        epoch = who.producer_epoch + (version == 2)
        by_hand = marker(place, epoch, commit=commit, version=version, producer=who.producer_id)
        if version == 2:
            older = marker(place, epoch - 1, version=version, producer=who.producer_id)
            s.ask("of the same epoch, bumping", older, 2)
        s.ask(f"commit {commit}, transaction version {version}", by_hand, version)
        committed(s, group, "offsets-by-hand")
        s.ask("again", by_hand, version)
        s.ask("pending after it", offsets(name, me, group, "offsets-by-hand", 4), 3)
        committed(s, group, "offsets-by-hand")
        s.ask("the end", end(name, me, not commit), 3 + version)
        completed(s, name)
        committed(s, group, "offsets-by-hand")


SHORT_MS = 10_000
"""A timeout that leaves a busy machine enough time for what must come before it."""


@scene
def after_the_timeout(s: Scene) -> None:
    transactions(s)
    coordinator(s)
    opened = {}
    for version in (11, ADDS):
        topic, name, group = f"late-{version}", f"late {version}", f"late group {version}"
        s.topic(topic)
        who = opened[version] = started(s, name, SHORT_MS)
        me = expecting(who)
        begun(s, name, topic, who)
        s.ask("in time", write(topic, name, me, 0), version)
        s.peer.call(AddOffsetsToTxnRequest(transactional_id=name, group_id=group, **me), 3)
        s.ask("offsets in time", offsets(name, me, group, topic, 3), 4)
    for version, who in opened.items():
        topic, name, group = f"late-{version}", f"late {version}", f"late group {version}"
        me = expecting(who)
        timed_out(s, name)
        for newer in (4, 5):
            s.ask("a late commit", end(name, me), newer)
            s.ask("a late abort", end(name, me, False), newer)
        s.ask("a late partition", add(name, me, **{topic: [0]}), 3)
        s.ask("a late batch", write(topic, name, me, 1), version)
        s.ask("late offsets", offsets(name, me, group, topic, 4), 4)
        committed(s, group, topic)
        s.ask("a late bump", init(name, **me))
        s.note("epochs", started(s, name).producer_epoch - who.producer_epoch)
        readers(s, topic)


def timed_out(s: Scene, name: str) -> None:
    """Wait until the coordinator has aborted a transaction."""
    request = DescribeTransactionsRequest(transactional_ids=[name])
    while s.peer.call(request, 0).transaction_states[0].transaction_state != "CompleteAbort":
        time.sleep(0.1)
