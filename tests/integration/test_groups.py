"""Groups of our consumers, alone and mixed with those of others, against a real broker."""

import asyncio
import threading
import time
import uuid

import pytest

import headwater
from headwater import aio
from headwater.client.consumer.assignors import Assignor
from headwater.client.consumer.group import group_loop
from headwater.client.consumer.listener import RebalanceListener
from headwater.client.errors import CommitFailedError
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from tests.integration.either import EITHER, either


@pytest.fixture(scope="module", params=EITHER)
def broker(request):
    yield from either(request)


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=4)
    return name


@pytest.fixture
def member_of(broker):
    made = []

    def make(group, **options):
        options = {
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 100,
            "session_timeout_ms": 10_000,
            **options,
        }
        one = headwater.Consumer(bootstrap_servers=broker.bootstrap, group_id=group, **options)
        made.append(one)
        return one

    yield make
    for one in made:
        one.close(5)


class Heard(RebalanceListener):
    def __init__(self):
        self.calls = []

    def on_assigned(self, partitions):
        self.calls.append(("assigned", numbers(partitions)))

    def on_revoked(self, partitions):
        self.calls.append(("revoked", numbers(partitions)))

    def on_lost(self, partitions):
        self.calls.append(("lost", numbers(partitions)))


def numbers(partitions):
    return sorted(partition.partition for partition in partitions)


def until(condition, *members, timeout=20.0):
    """Poll all members in turn until the condition holds."""
    limit = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < limit, "the group did not get there"
        for member in members:
            member.poll(0.02)


def shared(topic, *members):
    """Whether the members have all four partitions, each once."""
    return numbers(tp for member in members for tp in member.assignment()) == [0, 1, 2, 3]


def test_members_share_the_partitions_and_leave_them_to_each_other(member_of, topic) -> None:
    group, heard = f"g-{topic}", Heard()
    first, second = member_of(group), member_of(group)
    first.subscribe([topic], listener=heard)
    until(lambda: len(first.assignment()) == 4, first)
    second.subscribe([topic])
    until(lambda: len(second.assignment()) == 2 and shared(topic, first, second), first, second)
    second.close()
    until(lambda: len(first.assignment()) == 4, first)
    assert heard.calls == [
        ("assigned", [0, 1, 2, 3]),
        ("revoked", [0, 1, 2, 3]),
        ("assigned", heard.calls[2][1]),
        ("revoked", heard.calls[2][1]),
        ("assigned", [0, 1, 2, 3]),
    ]


def test_cooperative_members_keep_what_does_not_move(member_of, topic) -> None:
    group, heard = f"g-{topic}", Heard()
    options = {"partition_assignment_strategy": "cooperative-sticky"}
    first, second = member_of(group, **options), member_of(group, **options)
    first.subscribe([topic], listener=heard)
    until(lambda: len(first.assignment()) == 4, first)
    second.subscribe([topic])
    until(lambda: len(second.assignment()) == 2 and shared(topic, first, second), first, second)
    revoked = [call for call in heard.calls if call[0] == "revoked"]
    assert len(revoked) == 1
    assert len(revoked[0][1]) == 2
    assert ("assigned", []) in heard.calls


def test_a_group_goes_on_where_it_committed(broker, member_of, topic) -> None:
    group = f"g-{topic}"
    with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(400):
            producer.send(topic, b"%d" % number, partition=number % 4)
    seen = []
    with_auto_commit = member_of(group, max_poll_records=50)
    with_auto_commit.subscribe([topic])
    limit = time.monotonic() + 20
    while len(seen) < 200 and time.monotonic() < limit:
        seen += with_auto_commit.poll(1)
    with_auto_commit.close()
    after = member_of(group)
    after.subscribe([topic])
    while len(seen) < 400 and time.monotonic() < limit:
        seen += after.poll(1)
    assert len(seen) == 400
    assert {record.value for record in seen} == {b"%d" % number for number in range(400)}


def test_a_pattern_finds_new_topics_and_partitions(broker, member_of) -> None:
    prefix = f"p-{uuid.uuid4().hex[:6]}"
    broker.create_topic(f"{prefix}-a")
    member = member_of(f"g-{prefix}", metadata_max_age_ms=200)
    member.subscribe(pattern=f"{prefix}-.*")
    until(lambda: len(member.assignment()) == 1, member)
    broker.create_topic(f"{prefix}-b", partitions=2)
    until(lambda: len(member.assignment()) == 3, member)
    with headwater.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_partitions({f"{prefix}-a": 3})
    until(lambda: len(member.assignment()) == 5, member)
    assert member.subscription() == (f"{prefix}-a", f"{prefix}-b")


def test_the_last_subscription_wins(broker, member_of, topic) -> None:
    other = f"{topic}-other"
    broker.create_topic(other)
    member = member_of(f"g-{topic}")
    member.subscribe([topic])
    until(lambda: len(member.assignment()) == 4, member)
    member.subscribe([other])
    until(lambda: member.assignment() == {TopicPartition(other, 0)}, member)


def test_who_polls_too_rarely_leaves_and_hears_why(member_of, topic, caplog) -> None:
    heard = Heard()
    member = member_of(
        f"g-{topic}",
        max_poll_interval_ms=400,
        session_timeout_ms=5000,
        enable_auto_commit=False,
    )
    member.subscribe([topic], listener=heard)
    until(lambda: len(member.assignment()) == 4, member)
    limit = time.monotonic() + 10
    with headwater.Admin(bootstrap_servers=member.settings.bootstrap_servers) as admin:
        while admin.describe_group(f"g-{topic}").members and time.monotonic() < limit:
            threading.Event().wait(0.05)
        assert not admin.describe_group(f"g-{topic}").members
    with pytest.raises(CommitFailedError) as failed:
        member.commit({TopicPartition(topic, 0): 0})
    for words in ("max.poll.interval.ms is 400", "(1)", "(2)", "(3)", "(4)", "process()"):
        assert words in failed.value.message
    assert "max_poll_interval_ms" in caplog.text
    until(lambda: heard.calls[-1] == ("assigned", [0, 1, 2, 3]) and len(heard.calls) > 1, member)
    assert heard.calls[1] == ("lost", [0, 1, 2, 3])


def test_heartbeats_go_on_while_the_application_works(member_of, topic) -> None:
    member = member_of(f"g-{topic}", session_timeout_ms=600, heartbeat_interval_ms=100)
    member.subscribe([topic])
    until(lambda: len(member.assignment()) == 4, member)
    before = member.metrics()["heartbeat-total"]
    threading.Event().wait(1.5)  # longer than the session
    member.commit({TopicPartition(topic, 0): 0})
    assert member.metrics()["heartbeat-total"] >= before + 5


def test_a_static_member_comes_back_without_a_rebalance(member_of, topic) -> None:
    group, heard = f"g-{topic}", Heard()
    other = member_of(group)
    other.subscribe([topic], listener=heard)
    one = member_of(group, group_instance_id="one")
    one.subscribe([topic])
    until(lambda: len(one.assignment()) == 2 and shared(topic, one, other), one, other)
    before, mine = list(heard.calls), one.assignment()
    one.close()
    again = member_of(group, group_instance_id="one")
    again.subscribe([topic])
    until(lambda: again.assignment() == mine, again, other)
    assert heard.calls == before


def test_two_members_with_one_instance_id_fence_each_other(member_of, topic) -> None:
    group = f"g-{topic}"
    old, new = (member_of(group, group_instance_id="one") for _ in range(2))
    old.subscribe([topic])
    until(lambda: len(old.assignment()) == 4, old)
    new.subscribe([topic])
    until(lambda: len(new.assignment()) == 4, new)
    with pytest.raises(KafkaError) as fenced:
        until(lambda: False, old)
    assert fenced.value.code is E.FENCED_INSTANCE_ID


def test_a_custom_assignor_is_used_by_the_group(member_of, topic) -> None:
    class Greedy(Assignor):
        name = "greedy"

        def assign(self, partitions, members):
            everything = [TopicPartition(t, n) for t, c in partitions.items() for n in range(c)]
            greediest = min(member.member_id for member in members)
            return {m.member_id: everything if m.member_id == greediest else [] for m in members}

    group = f"g-{topic}"
    pair = [member_of(group, assignors=[Greedy()]) for _ in range(2)]
    for member in pair:
        member.subscribe([topic])
    until(lambda: shared(topic, *pair) and {len(m.assignment()) for m in pair} == {0, 4}, *pair)


def test_members_without_a_common_strategy_are_refused(member_of, topic) -> None:
    group = f"g-{topic}"
    first = member_of(group, partition_assignment_strategy="range")
    first.subscribe([topic])
    until(lambda: len(first.assignment()) == 4, first)
    second = member_of(group, partition_assignment_strategy="roundrobin")
    second.subscribe([topic])
    with pytest.raises(KafkaError) as refused:
        until(lambda: False, second, timeout=10)
    assert refused.value.code is E.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("blob", [b"\xff\xff", None], ids=["unreadable", "empty topic name"])
def test_a_member_with_a_broken_subscription_does_not_stop_the_others(
    member_of, topic, monkeypatch, caplog, blob
) -> None:
    encode = group_loop.encode_subscription

    def broken(topics, *rest):
        if "odd" not in topics:
            return encode(topics, *rest)
        return blob or encode(["", topic], *rest)

    monkeypatch.setattr(group_loop, "encode_subscription", broken)
    first, second, heard = member_of(f"g-{topic}"), member_of(f"g-{topic}"), Heard()
    first.subscribe([topic], listener=heard)
    until(lambda: len(first.assignment()) == 4, first)
    second.subscribe(["odd"])
    until(lambda: len(heard.calls) == 3 and shared(topic, first, second), first, second)
    assert len(first.assignment()) == (4 if blob else 2)
    (warning,) = [line for line in caplog.records if f"g-{topic}" in line.getMessage()]
    assert warning.levelname == "WARNING"


def test_listeners_of_the_asyncio_face_may_be_coroutines(broker, topic) -> None:
    async def run():
        async with aio.Consumer(
            bootstrap_servers=broker.bootstrap, group_id=f"g-{topic}", auto_offset_reset="latest"
        ) as consumer:

            class Seek(RebalanceListener):
                async def on_assigned(self, partitions):
                    await asyncio.sleep(0)
                    for partition in partitions:
                        consumer.seek(partition, 0)

            with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
                producer.send(topic, b"before")
            await consumer.subscribe([topic], listener=Seek())
            return (await anext(consumer)).value

    assert asyncio.run(asyncio.wait_for(run(), 20)) == b"before"
