"""A plan spreads replicas and leaders evenly, over racks, and moves little; its JSON is Kafka's."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.reassignment_plan import decode, encode, plan
from headwater.cli.reassignment_throttle import FOLLOWERS, LEADERS, throttled_replicas
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
    assert decode(f'{{"version": 1, "partitions": [{row}]}}') == assignment
    for text, said in [
        ("{", "not JSON"),
        ("[]", "write"),
        ('{"version": 2, "partitions": []}', "write"),
        ('{"partitions": [{"topic": "t"}]}', "a partition is .* not"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": "12"}]}', "a partition is"),
        (f'{{"partitions": [{row}, {row}]}}', "t-0 appears twice"),
    ]:
        with pytest.raises(ValueError, match=said):
            decode(text)


def test_a_throttle_lists_who_may_send_and_who_is_new():
    present = partitions((1, 2), (2, 3), (1, 3))
    targets = partitions((4, 2), (2, 3), (1, 4))
    assert throttled_replicas(present, targets) == {
        "t": {LEADERS: "0:1,0:2,2:1,2:3", FOLLOWERS: "0:4,2:4"}
    }
