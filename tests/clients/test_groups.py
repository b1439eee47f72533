"""What members of a group promise each other, on both brokers."""

import asyncio
import contextlib

import confluent_kafka.admin
import pytest

import headwater
from headwater import aio
from headwater.client.consumer.assignors import Assignor
from headwater.client.consumer.group import group_loop
from headwater.client.consumer.listener import RebalanceListener
from headwater.client.errors import CommitFailedError
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from tests.clients.broker_under_test import (
    PATIENCE_S,
    partitions_of,
    poll_until,
    settle,
    until,
    values_of,
)

STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


class Heard(RebalanceListener):
    """Writes down what it hears."""

    def __init__(self):
        self.words = []

    def on_assigned(self, partitions):
        self.words.append(("assigned", sorted(number for _, number in partitions)))

    def on_revoked(self, partitions):
        self.words.append(("revoked", sorted(number for _, number in partitions)))

    def on_lost(self, partitions):
        self.words.append(("lost", sorted(number for _, number in partitions)))


@pytest.fixture
def join(bootstrap, group):
    """Makes members that read from the start and commit by hand."""
    with contextlib.ExitStack() as members:

        def make(topic=None, listener=None, **options):
            member = headwater.Consumer(
                bootstrap_servers=bootstrap,
                group_id=options.pop("group_id", group),
                **{
                    "auto_offset_reset": "earliest",
                    "enable_auto_commit": False,
                    "heartbeat_interval_ms": 50,
                    "session_timeout_ms": 10_000,
                    **options,
                },
            )
            members.callback(member.close)
            if topic is not None:
                member.subscribe([topic], listener=listener)
            return member

        yield make


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_share_come_and_go_and_each_record_is_read_once(broker, join, strategy):
    topic = broker.topic(partitions=6)
    seen, members = [], []

    def read(*numbers):
        """Store more, and read until the group has it all; commit as we go."""
        for number in numbers:
            broker.fill(topic, [b"%d" % number] * 60, key=lambda n: b"%d" % n)
        wanted = len(seen) + 60 * len(numbers)

        def turn():
            for member in members:
                records = member.poll(0.02)
                if records:
                    seen.extend((r.partition, r.offset) for r in records)
                    member.commit()

        until("all is read", lambda: len(seen) >= wanted, turn)

    for number in range(3):
        members.append(join(topic, partition_assignment_strategy=strategy))
        settle(6, *members)
        read(number)
    assert [len(partitions_of(one)) for one in members] == [2, 2, 2]
    members.pop(0).close()
    settle(6, *members)
    read(3)
    assert len(seen) == len(set(seen)) == 240


def test_a_listener_hears_of_every_change_in_order_and_of_the_end(broker, join, topic):
    heard, other = Heard(), Heard()
    first = join(topic, heard, partition_assignment_strategy="range")
    settle(3, first)
    second = join(topic, other, partition_assignment_strategy="range")
    settle(3, first, second)
    kept = sorted(partitions_of(first))
    assert heard.words == [("assigned", [0, 1, 2]), ("revoked", [0, 1, 2]), ("assigned", kept)]
    assert other.words == [("assigned", sorted({0, 1, 2} - set(kept)))]
    second.close()
    settle(3, first)
    first.close()
    assert heard.words[3:] == [
        ("revoked", kept), ("assigned", [0, 1, 2]), ("revoked", [0, 1, 2]),
    ]  # fmt: skip


def test_cooperative_members_keep_what_does_not_move(broker, join, topic):
    heard = Heard()
    first = join(topic, heard, partition_assignment_strategy="cooperative-sticky")
    settle(3, first)
    second = join(topic, partition_assignment_strategy="cooperative-sticky")
    settle(3, first, second)
    moved = sorted(partitions_of(second))
    gone = [words for words in heard.words if words[0] == "revoked"]
    assert gone == [("revoked", moved)]
    assert ("assigned", []) in heard.words
    assert not any(set(numbers) - {0, 1, 2} for _, numbers in heard.words)


def test_commits_in_on_revoked_reach_the_next_owner(broker, join, topic):
    class Commit(RebalanceListener):
        def on_revoked(self, partitions):
            first.commit()

    for partition in range(3):
        broker.fill(topic, [b"%d" % n for n in range(50)], partition=partition)
    first = join(topic, Commit())
    seen = poll_until(150, first)
    second = join(topic)
    settle(3, first, second)
    assert second.poll(0.2) == first.poll(0.2) == []
    assert len(seen) == 150


def test_a_seek_in_on_assigned_decides_where_reading_begins(broker, join, lane):
    class Seek(RebalanceListener):
        def on_assigned(self, partitions):
            for partition in partitions:
                member.seek(partition, 7)

    broker.fill(lane, [b"%d" % n for n in range(10)])
    member = join(lane, Seek())
    assert values_of(poll_until(3, member)) == [b"7", b"8", b"9"]


def test_a_static_member_comes_back_without_a_rebalance(broker, join, topic):
    heard = Heard()
    one = join(topic, heard, group_instance_id="one")
    two = join(topic, group_instance_id="two")
    settle(3, one, two)
    words, share = list(heard.words), partitions_of(two)
    two.close()
    again = join(topic, group_instance_id="two")
    until(
        "the same share", lambda: partitions_of(again) == share, lambda: (one.poll(0), again.poll(0.02))
    )  # fmt: skip
    assert heard.words == words


def test_heartbeats_go_on_while_the_application_works(broker, join, topic):
    member = join(topic, session_timeout_ms=1500, heartbeat_interval_ms=100)
    settle(3, member)
    before = member.metrics()["heartbeat-total"]
    beats = 20  # longer than the session
    until("heartbeats", lambda: member.metrics()["heartbeat-total"] >= before + beats)
    member.commit({TopicPartition(topic, 0): 0})


def test_a_second_member_of_the_same_instance_fences_the_first(broker, join, topic):
    first = join(topic, group_instance_id="twin")
    settle(3, first)
    second = join(topic, group_instance_id="twin")
    with pytest.raises(KafkaError) as caught:
        until("fenced", lambda: None, lambda: (second.poll(0.02), first.poll(0.02)))
    assert caught.value.code is E.FENCED_INSTANCE_ID
    settle(3, second)


def test_a_member_that_does_not_poll_loses_its_share_and_hears_why(broker, join, topic, caplog):
    broker.fill(topic, [b"v"] * 30, key=lambda n: b"%d" % n)
    heard = Heard()
    slow = join(topic, heard, max_poll_interval_ms=400, session_timeout_ms=6000)
    poll_until(30, slow)
    other = join(topic)
    settle(3, other)
    with pytest.raises(CommitFailedError) as failed:
        slow.commit()
    for words in ("max.poll.interval.ms is 400", "(1)", "(2)", "(3)", "(4)", "process()"):
        assert words in failed.value.message
    assert "max_poll_interval_ms" in caplog.text
    settle(3, slow, other)
    assert ("lost", [0, 1, 2]) in heard.words


def test_what_was_given_up_cannot_be_committed_before_the_new_share_is_known(join, topic):
    one = join(topic, partition_assignment_strategy="range")
    settle(3, one)
    two = join(topic, partition_assignment_strategy="range")
    until("it gives up", lambda: not one.assignment(), lambda: (two.poll(0.02), one.poll(0)))
    until("the other has a share", two.assignment, lambda: two.poll(0.02))
    mine = next(iter(two.assignment()))
    two.commit({mine: 3})
    with pytest.raises(CommitFailedError, match="call poll"):
        one.commit({mine: 1})
    assert two.committed([mine])[mine].offset == 3
    settle(3, one, two)


@pytest.mark.parametrize("code", [E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID])
def test_a_late_answer_to_a_commit_does_not_end_the_next_membership(join, topic, code):
    heard = Heard()
    one = join(topic, heard, partition_assignment_strategy="cooperative-sticky")
    settle(3, one)
    commits = one._core._commits
    former = commits.member()
    two = join(topic, partition_assignment_strategy="cooperative-sticky")
    settle(3, one, two)
    assert "call poll" in str(commits._refused(code, "", former))
    one.commit({next(iter(one.assignment())): 1})
    assert not [word for word in heard.words if word[0] == "lost"]


def test_a_pattern_finds_topics_as_they_come(broker, join, group):
    prefix = broker.name("many")
    first = broker.topic(name=f"{prefix}.a")
    member = join(metadata_max_age_ms=100)
    member.subscribe(pattern=rf"{prefix}\..*")
    until("the first", lambda: member.assignment() == {(first, 0)}, lambda: member.poll(0.02))
    second = broker.topic(name=f"{prefix}.b")
    broker.topic(name=f"not.{prefix}.c")
    until("the second", lambda: len(member.assignment()) == 2, lambda: member.poll(0.02))
    assert member.assignment() == {(first, 0), (second, 0)}
    assert member.subscription() == (first, second)


def test_new_partitions_are_found(broker, join, topic):
    member = join(topic, metadata_max_age_ms=100)
    settle(3, member)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    wish = confluent_kafka.admin.NewPartitions(topic, 5)
    admin.create_partitions([wish])[topic].result(60)
    settle(5, member)


def test_a_changed_subscription_changes_the_share(broker, join):
    one, two = broker.topic(), broker.topic()
    member = join(one)
    until("one", lambda: member.assignment() == {(one, 0)}, lambda: member.poll(0.02))
    member.subscribe([two])
    until("two", lambda: member.assignment() == {(two, 0)}, lambda: member.poll(0.02))
    member.unsubscribe()
    assert member.assignment() == set()


def test_a_subscription_that_changes_while_the_group_joins_counts(broker, join, group):
    prefix = broker.name("late")
    one, two = (broker.topic(name=f"{prefix}.{name}") for name in "ab")
    settled = join(one)
    settle(1, settled)
    by_list, by_pattern = join(metadata_max_age_ms=100), join(metadata_max_age_ms=100)
    by_list.subscribe([one])
    by_pattern.subscribe(pattern=rf"{prefix}\.[bc]")
    members = (by_list, by_pattern)
    for member in members:
        member.poll(0.3)  # its join waits for the settled member, which does not poll
        assert member.assignment() == set()
    by_list.subscribe([one, two])
    three = broker.topic(name=f"{prefix}.c")
    until(
        "the new topic", lambda: three in by_pattern.subscription(), lambda: by_pattern.poll(0.02)
    )
    settled.close()

    def owned():
        return sorted(place for member in members for place in member.assignment())

    wanted = [(name, 0) for name in (one, two, three)]
    until("all topics", lambda: owned() == wanted, lambda: [one.poll(0.02) for one in members])


def test_a_static_leader_that_returned_watches_for_new_partitions(broker, join, topic):
    gone = join(topic, group_instance_id="one")
    settle(3, gone)
    gone.close()
    member = join(topic, group_instance_id="one", metadata_max_age_ms=100)
    settle(3, member)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    wish = confluent_kafka.admin.NewPartitions(topic, 5)
    admin.create_partitions([wish])[topic].result(60)
    settle(5, member)


def test_an_assignor_of_ones_own_shares_the_partitions(broker, join, topic):
    class AllToTheLast(Assignor):
        name = "all-to-the-last"

        def assign(self, partitions, members):
            chosen = max(member.member_id for member in members)
            everything = [
                TopicPartition(name, number)
                for name, count in partitions.items()
                for number in range(count)
            ]
            return {chosen: everything}

    members = [join(topic, assignors=[AllToTheLast()]) for _ in range(2)]
    until(
        "one has all",
        lambda: sorted(len(one.assignment()) for one in members) == [0, 3],
        lambda: [one.poll(0.02) for one in members],
    )


def test_automatic_commits_lose_and_repeat_nothing_over_a_rebalance(broker, join, topic):
    for partition in range(3):
        broker.fill(topic, [b"%d" % n for n in range(200)], partition=partition)
    options = {"enable_auto_commit": True, "max_poll_records": 20}
    first = join(topic, **options)
    seen = [(r.partition, r.offset) for r in poll_until(100, first)]
    second = join(topic, **options)

    def turn():
        for member in (first, second):
            seen.extend((r.partition, r.offset) for r in member.poll(0.02))

    until("all is read", lambda: len(set(seen)) == 600, turn)
    assert len(seen) == 600
    first.close()
    second.close()
    last = join()
    found = last.committed([(topic, number) for number in range(3)])
    assert [row.offset for row in found.values()] == [200] * 3


def test_a_join_that_waits_for_others_holds_up_nothing_else(broker, join, topic):
    settled = join(topic)
    settle(3, settled)
    waiting = join(topic, default_api_timeout_ms=5000)
    waiting.poll(0.3)  # its join waits for the other member, which does not poll
    assert waiting.assignment() == set()
    places = [(topic, number) for number in range(3)]
    assert set(waiting.end_offsets(places).values()) == {0}
    assert waiting.committed(places) == dict.fromkeys(places)
    waiting.close()
    settle(3, settled)


def test_members_that_speak_no_common_strategy_are_told(broker, join, topic):
    first = join(topic, partition_assignment_strategy="range")
    settle(3, first)
    second = join(topic, partition_assignment_strategy="roundrobin")
    with pytest.raises(KafkaError) as caught:
        until("refused", lambda: None, lambda: (first.poll(0.02), second.poll(0.02)))
    assert caught.value.code is E.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_moves_from_eager_to_cooperative_member_by_member(broker, join, topic):
    """As Kafka's upgrade path says: both strategies first, then the new one alone."""
    both = "cooperative-sticky,range"
    members = [join(topic, partition_assignment_strategy="range") for _ in range(2)]
    settle(3, *members)
    for strategy in (both, "cooperative-sticky"):
        for number in range(2):
            members[number].close()
            members[number] = join(topic, partition_assignment_strategy=strategy)
            settle(3, *members)
    broker.fill(topic, [b"%d" % n for n in range(90)], key=lambda n: b"%d" % n)
    found = poll_until(90, *members)
    assert len({(r.partition, r.offset) for r in found}) == len(found) == 90


@pytest.mark.parametrize("blob", [b"\xff\xff", None], ids=["unreadable", "empty topic name"])
def test_a_member_with_a_broken_subscription_does_not_stop_the_others(
    join, topic, group, monkeypatch, caplog, blob
):
    encode = group_loop.encode_subscription

    def broken(topics, *rest):
        if "odd" not in topics:
            return encode(topics, *rest)
        return blob or encode(["", topic], *rest)

    monkeypatch.setattr(group_loop, "encode_subscription", broken)
    heard = Heard()
    first = join(topic, heard)
    settle(3, first)
    second = join()
    second.subscribe(["odd"])
    until(
        "all partitions are assigned again",
        lambda: (
            len(heard.words) == 3
            and sorted([*partitions_of(first), *partitions_of(second)]) == [0, 1, 2]
        ),
        lambda: [one.poll(0.02) for one in (first, second)],
    )
    assert bool(second.assignment()) == (blob is None)
    (warning,) = [line for line in caplog.records if group in line.getMessage()]
    assert warning.levelname == "WARNING"


def test_listeners_of_the_asyncio_face_may_be_coroutines(broker, bootstrap, group, lane):
    broker.fill(lane, [b"before"])

    async def run():
        async with aio.Consumer(
            bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="latest"
        ) as consumer:

            class Seek(RebalanceListener):
                async def on_assigned(self, partitions):
                    await asyncio.sleep(0)
                    for partition in partitions:
                        consumer.seek(partition, 0)

            await consumer.subscribe([lane], listener=Seek())
            return (await anext(consumer)).value

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)) == b"before"
