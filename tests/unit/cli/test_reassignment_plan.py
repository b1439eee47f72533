"""A plan spreads replicas and leaders evenly, over racks, and moves little; its JSON is Kafka's."""

import json
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.reassignment_log_dirs import (
    check_log_dirs,
    log_dir_state,
    moving_replicas,
    present_log_dirs,
)
from headwater.cli.reassignment_plan import decode, encode, plan
from headwater.cli.reassignment_throttle import FOLLOWERS, LEADERS, throttled_replicas
from headwater.client.admin import LogDirDescription
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition


def partitions(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", index): one for index, one in enumerate(replicas)}


def test_a_broker_that_is_left_out_loses_its_replicas_and_nobody_else_moves():
    present = partitions((1, 2), (2, 3), (3, 1))
    planned = plan(present, dict.fromkeys([1, 2, 4]))
    assert [set(replicas) for replicas in planned.values()] == [{1, 2}, {2, 4}, {1, 4}]


def test_a_new_broker_gets_its_share():
    present = partitions(*[(1, 2)] * 6)
    planned = plan(present, dict.fromkeys([1, 2, 3]))
    assert sum(3 in replicas for replicas in planned.values()) == 4


def test_new_replicas_go_to_other_racks():
    present = partitions((1,), (1,))
    planned = plan(present, {1: "a", 2: "a", 3: "b"}, 2)
    assert [3 in replicas for replicas in planned.values()] == [True, True]


@pytest.mark.parametrize("after", [1, 2])
def test_fewer_replicas_leave_the_leaders_and_copy_nothing(after):
    ids = (1, 2, 3)
    rows = [[row for row in permutations(ids) if row[0] == leader] for leader in ids]
    for present in (partitions(*chosen) for chosen in product(*rows)):
        for at, replicas in plan(present, dict.fromkeys(ids), after).items():
            assert replicas[0] == present[at][0]
            assert set(replicas) <= set(present[at])


def test_too_few_brokers_are_named():
    with pytest.raises(ValueError, match="3 replicas need as many brokers, and there are 2"):
        plan(partitions((1, 2, 3)), dict.fromkeys([1, 2]))


@given(
    st.integers(1, 6).flatmap(
        lambda brokers: st.tuples(
            st.just(brokers),
            st.lists(
                st.permutations(range(1, 9)).map(lambda ids: tuple(ids[:3])),
                min_size=1,
                max_size=30,
            ),
            st.integers(1, brokers),
        )
    )
)
def test_every_plan_is_valid_and_even(drawn):
    count, rows, factor = drawn
    racks = {broker: f"rack-{broker % 2}" for broker in range(1, count + 1)}
    planned = plan(partitions(*rows), racks, factor)
    held = [sum(broker in replicas for replicas in planned.values()) for broker in racks]
    for replicas in planned.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(racks)
    assert sum(held) == len(rows) * factor
    by_rack: dict[str, list[int]] = {}
    for broker, number in zip(racks, held, strict=True):
        by_rack.setdefault(racks[broker], []).append(number)
    assert all(max(numbers) - min(numbers) <= 1 for numbers in by_rack.values())


def test_the_json_is_kafkas_and_what_is_wrong_with_it_is_said():
    assignment = partitions((1, 2))
    assert json.loads(encode(assignment)) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}],
    }
    row = '{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}'
    assert decode(f'{{"version": 1, "partitions": [{row}]}}') == (assignment, {})
    dirs = {2: {TopicPartition("t", 0): "/b"}}
    assert decode(encode(assignment, dirs)) == (assignment, dirs)
    assert json.loads(encode(assignment, dirs))["partitions"][0]["log_dirs"] == ["any", "/b"]
    for text, said in [
        ("{", "not JSON"),
        ("[]", "write"),
        ('{"version": 2, "partitions": []}', "write"),
        ('{"partitions": [{"topic": "t"}]}', "a partition is .* not"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": "12"}]}', "a partition is"),
        (f'{{"partitions": [{row}, {row}]}}', "t-0 appears twice"),
        (row_with('["any"]'), "t-0 has 2 replicas and 1 log_dirs"),
        (row_with('"/a"'), "the log_dirs of t-0 are a list of paths"),
        (row_with("[1, 2]"), "the log_dirs of t-0 are a list of paths"),
    ]:
        with pytest.raises(ValueError, match=said):
            decode(text)


def test_a_throttle_lists_who_may_send_and_who_is_new():
    present = partitions((1, 2), (2, 3), (1, 3))
    targets = partitions((4, 2), (2, 3), (1, 4))
    assert throttled_replicas(present, targets) == {
        "t": {LEADERS: "0:1,0:2,2:1,2:3", FOLLOWERS: "0:4,2:4"}
    }


def row_with(log_dirs):
    row = f'{{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": {log_dirs}}}'
    return f'{{"partitions": [{row}]}}'


HERE = TopicPartition("t", 0)


def log_dirs(**futures):
    """Broker 1 has t-0 in /a; /b is empty, unless a copy is there; /c is offline."""
    return [
        LogDirDescription(1, "/a", E.NONE, {HERE: 10}, 99, 9, {}),
        LogDirDescription(1, "/b", E.NONE, {}, 99, 9, {HERE: 5} if futures else {}),
        LogDirDescription(1, "/c", E.KAFKA_STORAGE_ERROR, {}, -1, -1, {}),
    ]


def test_log_dirs_that_a_broker_lacks_or_that_are_offline_are_refused():
    check_log_dirs(log_dirs(), {1: {HERE: "/b"}})
    with pytest.raises(KafkaError, match="broker 1 has no log dir /d, only /a, /b, /c; nothing"):
        check_log_dirs(log_dirs(), {1: {HERE: "/d"}})
    with pytest.raises(KafkaError, match="log dir /c of broker 1 is offline; nothing is moved"):
        check_log_dirs(log_dirs(), {1: {HERE: "/c"}})


def test_how_far_moves_between_log_dirs_are():
    assert log_dir_state(log_dirs(), {1: {HERE: "/a"}}, HERE) == "complete"
    assert log_dir_state(log_dirs(), {}, HERE) == "complete"
    assert "has it in /a, not in /b" in log_dir_state(log_dirs(), {1: {HERE: "/b"}}, HERE)
    said = log_dir_state(log_dirs(copied=True), {1: {HERE: "/b"}}, HERE)
    assert said == "in progress: broker 1 copies to /b, 5 records to go"
    assert moving_replicas(log_dirs(copied=True)) == {1: [HERE]}
    assert present_log_dirs(log_dirs(copied=True), {1: [HERE]}) == {1: {HERE: "/a"}}
