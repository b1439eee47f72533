"""FindCoordinator (10) and the classic membership protocol (11-14)."""

from headwater.wire.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.compat.differential.coordinator import (
    SUBSCRIPTION,
    admitted,
    beat,
    coordinator,
    join,
    leave,
    sync,
)
from tests.compat.differential.scene import Scene, newest, scene, versions

JOIN, SYNC = newest(JoinGroupRequest), newest(SyncGroupRequest)


@scene
def find_coordinator(s: Scene) -> None:
    coordinator(s)
    for version in range(newest(FindCoordinatorRequest) + 1):
        for key in ("g", ""):
            for kind in (0, 2, 3, -1) if version else (0,):
                request = FindCoordinatorRequest(key=key, key_type=kind)
                if version >= 4:
                    request = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
                s.ask(f"key {key!r} of type {kind}", request, version)
    several = FindCoordinatorRequest(coordinator_keys=["a", "", "b", "a"])
    s.ask("several", several)
    s.ask("none", FindCoordinatorRequest(coordinator_keys=[]))


@scene
def join_refused(s: Scene) -> None:
    coordinator(s)
    for version in versions(JoinGroupRequest):
        s.ask("no group id", join(""), version)
        s.ask("unknown member", join("refused", "nobody"), version)
        s.ask("no protocols", join("refused", protocols=()), version)
        s.ask("no protocol type", join("refused", protocol_type=""), version)
        for limit in (-1, 0, 5999, 1_800_001):
            s.ask(f"session of {limit} ms", join("refused", session_ms=limit), version)
        s.ask("no group id and a bad session", join("", session_ms=1), version)
        s.ask("unknown member and a bad session", join("refused", "x", session_ms=1), version)
    s.ask("rebalance timeout of -1", join("refused-2", "x", rebalance_ms=-1))
    s.ask("instance and unknown member", join("refused", "nobody", instance="i"))
    s.ask("empty instance", join("refused-3", instance=""))
    s.ask("bad instance", join("refused-4", instance="no/slash"))
    s.ask("long group id", join("g" * 300))


@scene
def join_alone(s: Scene) -> None:
    coordinator(s)
    for version in range(newest(JoinGroupRequest) + 1):
        group = f"alone-{version}"
        first = s.ask("first join", join(group), version)
        if first.error_code == 79:
            again = join(group, first.member_id)
            s.ask("of another type", join(group, first.member_id, protocol_type="other"), version)
            first = s.ask("second join", again, version)
        me = first.member_id
        syncs = min(version, SYNC)
        s.ask("generation too low", sync(group, 0, me, me), syncs)
        s.ask("generation too high", sync(group, 2, me, me), syncs)
        s.ask("unknown member", sync(group, 1, "x", me), syncs)
        s.ask("heartbeat before sync", beat(group, 1, me), min(version, 4))
        s.ask("sync", sync(group, 1, me, me), syncs)
        s.ask("sync again", sync(group, 1, me), syncs)
        s.ask("heartbeat", beat(group, 1, me), min(version, 4))
        s.ask("joins again", join(group, me), version)
        s.ask("heartbeat of the old generation", beat(group, 1, me), min(version, 4))
        s.ask("sync nobody", sync(group, 2, me), syncs)
        one = LeaveGroupRequest(group_id=group, member_id=me)
        request = leave(group, (me, None)) if version >= 3 else one
        s.ask("leave", request, min(version, 5))
        s.ask("leave again", request, min(version, 5))
        s.ask("heartbeat after", beat(group, 2, me), min(version, 4))
        s.ask("sync after", sync(group, 2, me), syncs)
        s.ask("join after", join(group, me), version)


@scene
def protocols_that_do_not_match(s: Scene) -> None:
    coordinator(s)
    me = admitted(s, "match", protocols=("range", "sticky")).member_id
    s.ask("another type", join("match", protocol_type="connect"))
    s.ask("another type, v3", join("match", protocol_type="connect"), 3)
    s.ask("no common protocol", join("match", protocols=("other",)))
    s.ask("no common protocol, v3", join("match", protocols=("other",)), 3)
    s.ask("none at all", join("match", protocols=()))
    s.ask("unknown member, no common", join("match", "x", protocols=("other",)))
    s.ask("sync of another type", sync("match", 1, me, protocol_type="connect"))
    s.ask("sync of another name", sync("match", 1, me, protocol_name="sticky"))
    s.ask("sync of no type", sync("match", 1, me, protocol_type=None, protocol_name=None))
    s.ask("sync, wrong name and generation", sync("match", 7, me, protocol_name="sticky"))
    s.ask("sync, wrong name and member", sync("match", 1, "x", protocol_name="sticky"))
    s.ask("old sync needs no name", sync("match", 1, me), 3)


@scene
def groups_that_are_not_there(s: Scene) -> None:
    coordinator(s)
    for version in versions(HeartbeatRequest):
        s.ask("heartbeat", beat("absent", 1, "x"), version)
        s.ask("heartbeat without a group id", beat("", 1, "x"), version)
        s.ask("heartbeat without a member", beat("absent", -1, ""), version)
    for version in versions(SyncGroupRequest):
        s.ask("sync", sync("absent", 1, "x"), version)
        s.ask("sync without a group id", sync("", 1, "x"), version)
    for version in (0, 2):
        one = LeaveGroupRequest(group_id="absent", member_id="x")
        s.ask("leave", one, version)
        s.ask("leave without a group", LeaveGroupRequest(group_id="", member_id="x"), version)
    for version in (3, 5):
        s.ask("leave", leave("absent", ("x", None), ("", "i")), version)
        s.ask("leave without a group id", leave("", ("x", None)), version)
        s.ask("nobody leaves", leave("absent"), version)


@scene
def two_members(s: Scene) -> None:
    coordinator(s)
    first = admitted(s, "two").member_id
    with s.line() as line:
        asked = s.ask("second asks", join("two"))
        second = asked.member_id
        line.send(join("two", second), JOIN)
        while s.peer.call(beat("two", 1, first), 4).error_code == 0:
            pass
        s.ask("first is told to rejoin", beat("two", 1, first))
        s.ask("second waits", beat("two", 1, second))
        s.ask("sync while preparing", sync("two", 1, first, first))
        s.ask("wrong generation while preparing", beat("two", 9, first))
        joined = s.ask("first joins again", join("two", first))
        s.hear("second has joined", line)
        s.ask("heartbeat while completing", beat("two", 2, second))
        line.send(sync("two", 2, second), SYNC)
        s.ask("heartbeat while completing, parked", beat("two", 2, first))
        s.ask("leader gives", sync("two", 2, first, first, second, "stranger"))
        s.hear("follower gets", line)
        s.note("the leader knows them", sorted(it.member_id == first for it in joined.members))
        s.ask("follower joins again, unchanged", join("two", second))
        s.ask("follower syncs again", sync("two", 2, second))
        line.send(join("two", second, metadata=SUBSCRIPTION + b"x"), JOIN)
        while s.peer.call(beat("two", 2, first), 4).error_code == 0:
            pass
        s.ask("first leaves meanwhile", leave("two", (first, None)))
        s.hear("the other leads now", line)
        s.ask("the old one is gone", beat("two", 3, first))
        s.ask("the other leads", sync("two", 3, second, second))
        both = leave("two", (second, None), (first, None), ("x", "y"), ("", None))
        s.ask("all leave", both)
        s.ask("empty", beat("two", 3, second))
        s.ask("empty, sync", sync("two", 3, second))


@scene
def static_members(s: Scene) -> None:
    coordinator(s)
    first = s.ask("joins at once", join("static", instance="one"))
    me = first.member_id
    s.ask("sync", sync("static", 1, me, me, instance="one"))
    s.ask("heartbeat", beat("static", 1, me, "one"))
    s.ask("heartbeat without the instance", beat("static", 1, me))
    s.ask("heartbeat of another instance", beat("static", 1, me, "two"))
    s.ask("heartbeat of an unknown member", beat("static", 1, "x", "one"))
    s.ask("sync of an unknown member", sync("static", 1, "x", instance="one"))
    s.ask("join of an unknown member", join("static", "x", instance="one"))
    s.ask("join of an unknown instance", join("static", me, instance="two"))
    again = s.ask("comes back", join("static", instance="one"))
    s.ask("the old id is fenced", beat("static", 1, me, "one"))
    s.ask("the old id without the instance", beat("static", 1, me))
    s.ask("the old id syncs", sync("static", 1, me, instance="one"))
    s.ask("the old id leaves", leave("static", (me, "one")))
    new = again.member_id
    s.ask("new id syncs", sync("static", again.generation_id, new, new, instance="one"))
    s.ask("new id beats", beat("static", again.generation_id, new, "one"))
    changed = join("static", instance="one", metadata=SUBSCRIPTION + b"y")
    third = s.ask("comes back with another subscription", changed)
    newer = third.member_id
    s.ask("syncs", sync("static", third.generation_id, newer, newer, instance="one"))
    old_version = s.ask("comes back with an old version", join("static", instance="one"), 5)
    s.ask("unknown instance leaves", leave("static", ("", "two")))
    s.ask("member and wrong instance leave", leave("static", (old_version.member_id, "two")))
    s.ask("leaves by its instance", leave("static", ("", "one")))
    s.ask("leaves again", leave("static", ("", "one")))


@scene
def static_member_replaced_while_others_wait(s: Scene) -> None:
    coordinator(s)
    with s.line() as line:
        first = admitted(s, "replaced", instance="a")
        line.send(join("replaced", instance="b"), JOIN)
        while s.peer.call(beat("replaced", 1, first.member_id, "a"), 4).error_code == 0:
            pass
        s.ask("joins under the same instance", join("replaced", instance="a"))
        s.hear("the second joined", line)
