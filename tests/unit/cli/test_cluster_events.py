"""What `headwater up --brokers` prints of a cluster."""

from headwater.cli.cluster_events import ClusterView, changes
from headwater.client.topology import PartitionView


def view(
    brokers: set[int], controller: int, **partitions: tuple[int, tuple[int, ...]]
) -> ClusterView:
    return ClusterView(
        frozenset(brokers),
        controller,
        {
            (name, 0): PartitionView(0, leader, 1, (1, 2, 3), isr, ())
            for name, (leader, isr) in partitions.items()
        },
    )


def test_brokers_and_the_controller_are_named() -> None:
    before, now = view({1, 2}, 1), view({2, 3}, 2)
    assert list(changes(before, now)) == [
        "broker 3 joined",
        "broker 1 left",
        "broker 2 is the controller",
    ]
    assert list(changes(now, now)) == []


def test_a_new_leader_and_who_is_behind_are_named() -> None:
    before = view({1, 2, 3}, 1, orders=(1, (1, 2, 3)))
    assert list(changes(ClusterView(before.brokers, 1), before)) == [
        "orders-0: leader 1, in sync 1, 2, 3"
    ]
    after = view({1, 2, 3}, 1, orders=(2, (2, 3)))
    assert list(changes(before, after)) == ["orders-0: leader 2, in sync 2, 3; not in sync: 1"]
    gone = view({1, 2, 3}, 1, orders=(-1, (2,)))
    assert list(changes(after, gone)) == ["orders-0: no leader, in sync 2; not in sync: 1, 3"]


def test_many_changed_partitions_are_counted() -> None:
    before = view({1}, 1)
    now = view({1}, 1, **{f"topic{number:02}": (1, (1, 2, 3)) for number in range(25)})
    lines = list(changes(before, now))
    assert len(lines) == 11
    assert lines[-1] == "and 15 more partitions changed"
