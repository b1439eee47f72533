"""What leaving a `with` by an error commits, and which positions an interrupted poll leaves."""

import asyncio
import itertools

import pytest

import headwater
import headwater.aio
from headwater.client.consumer.handover import Handover
from headwater.client.consumer.partition_state import PartitionState
from headwater.client.consumer.record import OffsetAndMetadata
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from headwater.testing import Broker

HERE = TopicPartition("t", 0)
_groups = itertools.count(1)


class Oops(Exception):
    pass


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        running.create_topic("t")
        with headwater.Producer(bootstrap_servers=running.bootstrap) as producer:
            producer.send_many("t", [b"%d" % number for number in range(10)]).result(60)
        yield running


@pytest.fixture
def options(broker):
    return {
        "bootstrap_servers": broker.bootstrap,
        "group_id": f"group-{next(_groups)}",
        "auto_offset_reset": "earliest",
    }


def committed(options):
    with headwater.Admin(bootstrap_servers=options["bootstrap_servers"]) as admin:
        rows = admin.group_offsets(options["group_id"])
    return rows[HERE].offset if HERE in rows else 0


def run(options, work):
    with headwater.Consumer(**options) as consumer:
        consumer.subscribe(["t"])
        work(consumer)


def first_records(consumer):
    while not (records := consumer.poll(5, max_records=4)):
        pass
    return records


def test_the_record_whose_work_raised_is_not_committed(options) -> None:
    def work(consumer):
        for record in consumer:
            if record.offset == 3:
                raise Oops

    with pytest.raises(Oops):
        run(options, work)
    assert committed(options) == 3


def test_all_records_of_the_last_poll_come_again(options) -> None:
    def work(consumer):
        first_records(consumer)
        first_records(consumer)
        raise Oops

    with pytest.raises(Oops):
        run(options, work)
    assert committed(options) == 4


def test_an_error_of_poll_itself_leaves_what_was_done_before_it_committed(options) -> None:
    def work(consumer):
        first_records(consumer)
        consumer.wakeup()
        consumer.poll(5)

    with pytest.raises(KafkaError, match="wakeup"):
        run(options, work)
    assert committed(options) == 4


def test_a_commit_by_hand_is_not_taken_back(options) -> None:
    def work(consumer):
        consumer.commit_record(first_records(consumer)[1])
        raise Oops

    with pytest.raises(Oops):
        run(options, work)
    assert committed(options) == 2


def test_a_with_that_ends_well_commits_everything(options) -> None:
    with headwater.Consumer(**options) as consumer:
        consumer.subscribe(["t"])
        for record in consumer:
            if record.offset == 9:
                break
    assert committed(options) == 10


def test_the_asyncio_consumer_does_the_same(options) -> None:
    async def work() -> None:
        async with headwater.aio.Consumer(**options) as consumer:
            await consumer.subscribe(["t"])
            async for record in consumer:
                if record.offset == 3:
                    raise Oops

    with pytest.raises(Oops):
        asyncio.run(work())
    assert committed(options) == 3


def place_at(offset: int) -> PartitionState:
    state = PartitionState(HERE)
    state.seek(offset, 5)
    return state


def test_a_seek_after_an_interrupted_poll_wins() -> None:
    state, handover = place_at(10), Handover()
    handover.remember(state)
    state.seek(3)
    assert handover.check()
    handover.restore_positions()
    assert state.position == 3
    assert not handover.check()


def test_the_first_position_of_a_poll_counts_and_not_one_in_its_middle() -> None:
    state, handover = place_at(10), Handover()
    for position in (10, 20, 30):
        state.position = position
        handover.remember(state)
    state.position = 40
    handover.begin()
    handover.restore_positions()
    assert (state.position, state.epoch, state.fetch_offset) == (10, 5, 10)


def test_what_is_committed_in_the_middle_of_a_poll_stays_done() -> None:
    state, handover = place_at(10), Handover()
    handover.remember(state)
    state.position = 20
    handover.committed({HERE: OffsetAndMetadata(15)})
    handover.committed({HERE: OffsetAndMetadata(12)})
    handover.restore_positions()
    assert state.position == 15
