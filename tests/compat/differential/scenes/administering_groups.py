"""DescribeGroups (15), ListGroups (16), DeleteGroups (42)."""

from headwater.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from tests.compat.differential.coordinator import admitted, coordinator, join, leave
from tests.compat.differential.scene import Scene, newest, scene, versions
from tests.compat.differential.scenes.committing import BY_NAME, commit, fetch


@scene
def describe_groups(s: Scene) -> None:
    coordinator(s)
    s.topic("described")
    me = admitted(s, "described", instance="one").member_id
    s.peer.call(commit(s, "only-offsets", "described"), BY_NAME)
    s.peer.call(join("pending"), 9)
    names = ["described", "absent", "only-offsets", "pending", ""]
    for version in range(newest(DescribeGroupsRequest) + 1):
        for name in names:
            s.ask(f"group {name!r}", DescribeGroupsRequest(groups=[name]), version)
        if version >= 3:
            request = DescribeGroupsRequest(groups=names, include_authorized_operations=True)
            s.ask("operations", request, version)
        s.ask("none", DescribeGroupsRequest(), version)
    s.ask("a group named twice", DescribeGroupsRequest(groups=["described"] * 2), 5)
    s.ask("rejoins", join("described", me, instance="one"))
    s.ask("while completing", DescribeGroupsRequest(groups=["described"]), 5)
    s.ask("leaves", leave("described", ("", "one")))
    s.ask("empty", DescribeGroupsRequest(groups=["described"]), 5)


@scene
def list_groups(s: Scene) -> None:
    coordinator(s)
    s.topic("listed")
    admitted(s, "listed-stable")
    me = admitted(s, "listed-empty").member_id
    s.peer.call(leave("listed-empty", (me, None)), 5)
    s.peer.call(commit(s, "listed-offsets", "listed"), BY_NAME)
    s.peer.call(join("listed-pending"), 9)
    admitted(s, "listed-workers", protocol_type="connect")

    def ask(label: str, request: ListGroupsRequest, version: int) -> None:
        with s.line() as line:
            line.send(request, version)
            answer = line.receive()
        if not isinstance(answer, str):
            mine = [it for it in answer.groups if it.group_id.startswith("listed-")]
            answer.groups = sorted(mine, key=lambda it: it.group_id)
        s.note(f"{label} (v{version})", answer)

    for version in range(newest(ListGroupsRequest) + 1):
        ask("all", ListGroupsRequest(), version)
    for states in (["Stable"], ["stable"], ["EMPTY", "Stable"], ["Nonsense"], ["Dead"], [""]):
        for version in (4, 5):
            ask(f"in {states}", ListGroupsRequest(states_filter=states), version)
    for types in (["classic"], ["Classic"], ["CLASSIC", "consumer"], ["share"], ["x"], [""]):
        ask(f"of {types}", ListGroupsRequest(types_filter=types), 5)
    both = ListGroupsRequest(states_filter=["Empty"], types_filter=["classic"])
    ask("empty and classic", both, 5)


@scene
def delete_groups(s: Scene) -> None:
    coordinator(s)
    s.topic("deleted")
    me = admitted(s, "deleted-1").member_id
    s.peer.call(commit(s, "deleted-2", "deleted"), BY_NAME)
    s.peer.call(commit(s, "deleted-3", "deleted"), BY_NAME)
    s.peer.call(join("deleted-pending"), 9)
    for version in versions(DeleteGroupsRequest):
        names = ["deleted-1", "absent", "", "deleted-pending"]
        for name in names:
            s.ask(f"delete {name!r}", DeleteGroupsRequest(groups_names=[name]), version)
        s.ask("none", DeleteGroupsRequest(), version)
    s.ask("with offsets", DeleteGroupsRequest(groups_names=["deleted-2"]))
    s.ask("they are gone", fetch(s, "deleted-2"), BY_NAME)
    s.ask("again", DeleteGroupsRequest(groups_names=["deleted-2"]))
    s.ask("several", DeleteGroupsRequest(groups_names=["deleted-3", "absent", "deleted-1"]))
    s.ask("one group twice", DeleteGroupsRequest(groups_names=["absent", "absent"]))
    s.ask("leaves", leave("deleted-1", (me, None)))
    s.ask("empty now", DeleteGroupsRequest(groups_names=["deleted-1"]))
