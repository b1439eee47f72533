"""Consumer groups: members that join, leave and crash; static members; commits and resets."""

from tests.compat.broker_under_test import BrokerUnderTest, eventually
from tests.compat.checks import check, refused
from tests.compat.client import Client
from tests.compat.member import Member, wait_until

PARTITIONS = 4
ALL = frozenset(range(PARTITIONS))
SHORT_SESSION_MS = 6000
LONG_SESSION_MS = 30000


def _owns_all(member: Member) -> None:
    wait_until("one member owns all", lambda: member.partitions == ALL, member)


def _share(one: Member, other: Member) -> None:
    def shared() -> bool:
        both = one.partitions and other.partitions
        return bool(both) and sorted([*one.partitions, *other.partitions]) == sorted(ALL)

    wait_until("two members share the partitions", shared, one, other)


def _read(count: int, *members: Member) -> None:
    """Waits until the members have together read offsets below `count` of each partition."""
    expected = {(p, offset) for p in ALL for offset in range(count)}

    def all_read() -> bool:
        return {record for member in members for record in member.records} >= expected

    wait_until(f"{count} records of each partition are read", all_read, *members)


@check("group: join and leave")
def join_and_leave(client: Client, broker: BrokerUnderTest) -> None:
    topic, group = broker.topic(PARTITIONS), broker.fresh("group")
    broker.fill(topic, 20, PARTITIONS)
    with client.member(group, topic, session_ms=LONG_SESSION_MS) as first:
        _owns_all(first)
        _read(20, first)
        with client.member(group, topic, session_ms=LONG_SESSION_MS) as second:
            _share(first, second)
            broker.fill(topic, 20, PARTITIONS, first=20)
            _read(40, first, second)
            second.leave()
            _owns_all(first)
        broker.fill(topic, 20, PARTITIONS, first=40)
        _read(60, first, second)
        first.leave()
    delivered = first.records + second.records
    assert len(delivered) == len(set(delivered)), "a record came twice though everyone said goodbye"
    assert second.records, "the second member read nothing"


@check("group: crash")
def crash(client: Client, broker: BrokerUnderTest) -> None:
    topic, group = broker.topic(PARTITIONS), broker.fresh("group")
    with client.member(group, topic, session_ms=SHORT_SESSION_MS) as survivor:
        _owns_all(survivor)
        with client.member(group, topic, session_ms=SHORT_SESSION_MS) as victim:
            _share(survivor, victim)
            victim.crash()
        broker.fill(topic, 10, PARTITIONS)
        _owns_all(survivor)
        _read(10, survivor)
        survivor.leave()


@check("group: static members")
def static_members(client: Client, broker: BrokerUnderTest) -> None:
    """Either member comes back after a crash, to the same partitions and without a rebalance."""
    topic, group = broker.topic(PARTITIONS), broker.fresh("group")

    def start(instance: str) -> Member:
        return client.member(group, topic, session_ms=LONG_SESSION_MS, instance=instance)

    with start("one") as one, start("two") as two:
        _share(one, two)
        first_half, second_half = one.partitions, two.partitions
        two.crash()
        with start("two") as two_again:
            wait_until(
                "it has its old half", lambda: two_again.partitions == second_half, two_again
            )
            rebalances = len(two_again.assignments)
            one.crash()
            with start("one") as one_again:
                wait_until(
                    "so has the other", lambda: one_again.partitions == first_half, one_again
                )
                broker.fill(topic, 10, PARTITIONS)
                _read(10, one_again, two_again)
                assert len(two_again.assignments) == rebalances, "a return made a rebalance"


@check("commits")
def commits(client: Client, broker: BrokerUnderTest) -> None:
    topic, group = broker.topic(PARTITIONS), broker.fresh("group")
    broker.fill(topic, 10, PARTITIONS)
    with client.member(group, topic, session_ms=LONG_SESSION_MS) as member:
        _read(10, member)
        member.leave()
    assert broker.hand.committed(group, topic) == dict.fromkeys(range(PARTITIONS), 10)
    broker.fill(topic, 5, PARTITIONS, first=10)
    with client.member(group, topic, session_ms=LONG_SESSION_MS) as later:
        _read_from = {(p, offset) for p in ALL for offset in range(10, 15)}
        wait_until("the rest is read", lambda: set(later.records) >= _read_from, later)
        later.leave()
    assert set(later.records) == _read_from, "it did not begin at the committed offsets"


@check("offset resets")
def resets(client: Client, broker: BrokerUnderTest) -> None:
    topic, group = broker.topic(PARTITIONS), broker.fresh("group")
    broker.fill(topic, 10, PARTITIONS)
    client.commit(group, topic, {0: 9, 1: 8, 2: 7, 3: 6})
    assert client.committed(group, topic) == {0: 9, 1: 8, 2: 7, 3: 6}
    client.commit(group, topic, {0: 5, 3: 10})
    assert client.committed(group, topic) == {0: 5, 1: 8, 2: 7, 3: 10}
    with client.member(group, topic, session_ms=LONG_SESSION_MS) as member:
        wait_until("it reads on", lambda: len(member.records) >= 10, member)
        assert sorted(member.records) == sorted(
            [(0, n) for n in range(5, 10)] + [(1, n) for n in (8, 9)] + [(2, n) for n in (7, 8, 9)]
        )
        with refused(client, "UNKNOWN_MEMBER_ID"):
            client.commit(group, topic, {0: 0})
        member.leave()


@check("group admin")
def group_admin(client: Client, broker: BrokerUnderTest) -> None:
    topic, group = broker.topic(PARTITIONS), broker.fresh("group")
    with client.member(group, topic, session_ms=LONG_SESSION_MS) as member:
        _owns_all(member)
        assert group in client.groups()
        eventually(lambda: client.describe_group(group).state.lower() == "stable")
        assert client.describe_group(group).members == 1
        member.leave()
    eventually(lambda: client.describe_group(group).state.lower() == "empty")


@check("group delete")
def group_delete(client: Client, broker: BrokerUnderTest) -> None:
    topic, group = broker.topic(PARTITIONS), broker.fresh("group")
    with broker.hand.member(group, topic, session_ms=LONG_SESSION_MS) as member:
        _owns_all(member)
        with refused(client, "NON_EMPTY_GROUP"):
            client.delete_group(group)
        member.leave()
    client.delete_group(group)
    assert group not in broker.hand.groups()
    with refused(client, "GROUP_ID_NOT_FOUND"):
        client.delete_group(group)
