import pytest

from headwater.wire import codec
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from headwater.wire.messages.groups import FindCoordinatorRequest
from headwater.wire.schema import EMPTY, Struct, i16, i32, since
from headwater.wire.versions import Versions


def test_a_message_is_made_by_keyword_and_the_rest_has_defaults():
    request = FindCoordinatorRequest(key="group")
    assert (request.key, request.key_type, request.coordinator_keys) == ("group", 0, [])


def test_an_unknown_keyword_is_refused():
    with pytest.raises(TypeError, match="coordinator_key"):
        FindCoordinatorRequest(coordinator_key="group")  # type: ignore[call-arg]


def test_an_unknown_attribute_is_refused():
    with pytest.raises(AttributeError):
        FindCoordinatorRequest().kye = "group"  # type: ignore[attr-defined]


def test_each_object_has_its_own_empty_list():
    first, second = FindCoordinatorRequest(), FindCoordinatorRequest()
    first.coordinator_keys.append("group")
    assert second.coordinator_keys == []


def test_messages_are_equal_when_all_fields_are():
    assert FindCoordinatorRequest(key="a") == FindCoordinatorRequest(key="a")
    assert FindCoordinatorRequest(key="a") != FindCoordinatorRequest(key="b")
    assert FetchResponse.LeaderIdAndEpoch() != FetchResponse.SnapshotId()


def test_a_message_prints_its_fields():
    state = FetchRequest.ReplicaState(replica_id=3)
    assert repr(state) == "FetchRequest.ReplicaState(replica_id=3, replica_epoch=-1)"


def test_a_shared_default_cannot_be_changed_by_one_of_its_holders():
    partition = FetchResponse.PartitionData()
    with pytest.raises(AttributeError, match="assign a new LeaderIdAndEpoch"):
        partition.current_leader.leader_id = 3
    partition.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=3)
    assert FetchResponse.PartitionData().current_leader.leader_id == -1


def test_a_shared_default_equals_one_made_by_hand():
    assert FetchResponse.PartitionData().current_leader == FetchResponse.LeaderIdAndEpoch()


def test_a_struct_without_fields_is_a_struct_all_the_same():
    class Nothing(Struct, versions="0-1", flexible="1+"):
        pass

    assert codec.encode_bytes(Nothing(), 0) == b""
    assert codec.encode_bytes(Nothing(), 1) == b"\x00"
    assert codec.decode(Nothing, 1, b"\x00") == (Nothing(), 1)


def test_an_annotation_that_no_wire_type_stands_for_is_refused():
    class Odd(Struct, versions="0"):
        mapping: dict[str, str] = since(default={})

    with pytest.raises(TypeError, match="no wire type"):
        Odd()


class Layered(Struct, versions="0-2", flexible="2+"):
    class Outer(Struct):
        inner: "Layered.Inner | None" = None

    class Inner(Struct):
        number: i16 = since("1+", default=7)

    outer: Outer = since(default=EMPTY)
    count: i32 = 0


def test_a_struct_may_name_one_that_is_declared_after_it():
    message = Layered(outer=Layered.Outer(inner=Layered.Inner(number=2)), count=1)
    assert codec.encode_bytes(message, 1) == b"\x01\x00\x02\x00\x00\x00\x01"
    assert codec.encode_bytes(message, 2) == b"\x01\x00\x02\x00\x00\x00\x00\x00\x01\x00"
    assert codec.encode_bytes(Layered(), 1) == b"\xff\x00\x00\x00\x00"


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("0-2", [0, 1, 2], [3]), ("4+", [4, 99], [3]), ("none", [], [0, 1])],
)
def test_a_version_range_holds_its_versions(text, inside, outside):
    versions = Versions.parse(text)
    assert all(map(versions.holds, inside))
    assert not any(map(versions.holds, outside))
