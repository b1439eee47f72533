"""What a consumer commits, by hand and automatically, on both brokers."""

import headwater
from headwater.client.consumer.record import OffsetAndMetadata
from headwater.model import TopicPartition
from tests.clients.broker_under_test import until
from tests.clients.faces import both_faces

NUMBERS = [b"%d" % number for number in range(100)]


@both_faces
def test_commits_are_where_the_next_member_begins(broker, consumer_of, member, group, lane):
    broker.fill(lane, NUMBERS)
    place = TopicPartition(lane, 0)
    member.assign([place])
    assert member.committed([place]) == {place: None}
    records = member.poll(60, max_records=10)
    member.commit_record(records[4])
    assert member.committed([place])[place].offset == 5
    member.commit()
    assert member.committed([place])[place].offset == 10
    member.commit({place: OffsetAndMetadata(42, "a note")})
    member.commit({})
    assert member.committed([place])[place][:2] == (42, "a note")
    successor = consumer_of(group_id=group)
    successor.assign([place])
    assert successor.poll(60)[0].offset == 42


@both_faces
def test_asynchronous_commits_call_back_and_come_in_order(broker, member, lane):
    broker.fill(lane, NUMBERS)
    place = TopicPartition(lane, 0)
    member.assign([place])
    told = []
    for offset in range(1, 20):
        member.commit_async({place: offset}, lambda offsets, error: told.append((offsets, error)))
    member.commit({place: 20})
    assert [(offsets[place].offset, error) for offsets, error in told] == [
        (offset, None) for offset in range(1, 20)
    ]
    assert member.committed([place])[place].offset == 20
    assert len(member.poll(60, max_records=30)) == 30
    member.commit_async(on_commit=lambda offsets, error: told.append((offsets, error)))
    until("the callback", lambda: len(told) == 20, lambda: member.poll(0.01))
    assert (told[-1][0][place].offset, told[-1][1]) == (50, None)


@both_faces
def test_automatic_commits_follow_the_position_and_close_makes_the_last(
    broker, consumer_of, group, lane
):
    broker.fill(lane, NUMBERS)
    place = TopicPartition(lane, 0)
    consumer = consumer_of(group_id=group, auto_commit_interval_ms=50)
    consumer.assign([place])
    consumer.poll(60, max_records=30)
    consumer.pause([place])
    until(
        "a commit",
        lambda: (consumer.committed([place])[place] or (0,))[0] == 30,
        lambda: consumer.poll(0.05),
    )
    consumer.resume([place])
    consumer.poll(60, max_records=3)
    consumer.close()
    assert consumer_of(group_id=group).committed([place])[place].offset == 33


def test_automatic_commits_come_also_while_records_are_always_at_hand(
    broker, bootstrap, group, lane
):
    broker.fill(lane, [b"%d" % number for number in range(20_000)])
    place = TopicPartition(lane, 0)
    with (
        headwater.Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=20,
        ) as consumer,
        headwater.Consumer(bootstrap_servers=bootstrap, group_id=group) as onlooker,
    ):
        consumer.assign([place])
        found = consumer.poll(60, 1)
        until(
            "a commit on the way",
            lambda: onlooker.committed([place])[place],
            lambda: found.extend(consumer.poll(0, 1)),
        )
        assert len(found) < 20_000
