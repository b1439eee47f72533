"""Ctrl-C at every moment of a call of the consumer: nothing is lost, doubled, or left hanging."""

import asyncio
import sys

import pytest

import headwater
import headwater.aio
from headwater.testing import Broker
from tests.clients.interrupting import interrupt

pytestmark = [
    # An interruption between the making of a coroutine and its start, or inside a finalizer.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
pytest.importorskip("pyarrow")  # or every moment of its import is interrupted as well
COUNT = 4000


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        running.create_topic("t", 2)
        with headwater.Producer(bootstrap_servers=running.bootstrap, batch_size=300) as producer:
            for number in range(COUNT):
                producer.send("t", b"%d" % number, partition=number % 2)
        yield running


def ctrl_c_inside() -> None:
    """Not in this file: what a test does with its records does not concern the client."""
    frame = sys._getframe(3)
    if frame.f_code.co_filename != __file__:
        raise KeyboardInterrupt


def arrow_rows(batch):
    if batch is None:
        return []
    return list(zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True))


class Reader:
    """Reads on, whatever interrupts it, and keeps what it got."""

    def __init__(self, consumer) -> None:
        self.consumer = consumer
        self.seen: dict[int, list[int]] = {0: [], 1: []}

    def keep(self, rows) -> None:
        for partition, offset in rows:
            self.seen[partition].append(offset)

    def poll(self) -> None:
        self.keep([(r.partition, r.offset) for r in self.consumer.poll(5, max_records=7)])

    def iterate(self) -> None:
        record = next(iter(self.consumer))
        self.keep([(record.partition, record.offset)])

    def arrow(self) -> None:
        self.keep(arrow_rows(self.consumer.poll_arrow(5, max_records=7)))

    def check(self) -> None:
        for offsets in self.seen.values():
            assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("way", ["poll", "iterate", "arrow"])
def test_an_interruption_at_any_moment_loses_and_doubles_nothing(broker, way) -> None:
    options = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 400}
    with headwater.Consumer(bootstrap_servers=broker.bootstrap, **options) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        reader = Reader(consumer)
        work, moment = getattr(reader, way), 0
        while interrupt(work, moment, ctrl_c_inside):
            moment += 1
            reader.check()
        assert moment > 50
        work()
        reader.check()


def test_a_commit_after_an_interrupted_poll_leaves_its_records_out(broker) -> None:
    options = {"auto_offset_reset": "earliest", "group_id": "g", "enable_auto_commit": False}
    with headwater.Consumer(bootstrap_servers=broker.bootstrap, **options) as consumer:
        consumer.assign([("t", 0)])
        reader, moment = Reader(consumer), 0
        while interrupt(reader.poll, moment, ctrl_c_inside):
            moment += 3
            consumer.commit()
            committed = consumer.committed([("t", 0)])[headwater.TopicPartition("t", 0)]
            assert (committed.offset if committed else 0) == len(reader.seen[0])


def test_interrupted_commits_and_seeks_leave_a_consumer_that_works(broker) -> None:
    options = {"auto_offset_reset": "earliest", "group_id": "h", "enable_auto_commit": False}
    with headwater.Consumer(bootstrap_servers=broker.bootstrap, **options) as consumer:
        consumer.assign([("t", 0)])

        def work() -> None:
            consumer.seek(("t", 0), 10)
            consumer.commit({headwater.TopicPartition("t", 0): 10})

        moment = 0
        while interrupt(work, moment, ctrl_c_inside):
            moment += 7
        assert consumer.poll(5, max_records=1)[0].offset == 10


def test_an_interrupted_close_can_be_repeated(broker) -> None:
    moment = 0
    while True:
        consumer = headwater.Consumer(bootstrap_servers=broker.bootstrap)
        consumer.assign([("t", 0)])
        reached = interrupt(consumer.close, moment, ctrl_c_inside)
        consumer.close()
        with pytest.raises(headwater.KafkaError, match="closed"):
            consumer.poll(0)
        if not reached:
            return
        moment += 11


def test_the_asyncio_consumer_keeps_what_it_could_not_return(broker) -> None:
    async def work() -> None:
        options = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 400}
        async with headwater.aio.Consumer(
            bootstrap_servers=broker.bootstrap, **options
        ) as consumer:
            await consumer.assign([("t", 0), ("t", 1)])
            reader = Reader(consumer)
            for moment in range(400):
                poll = consumer.poll(5, max_records=7)
                try:
                    while True:
                        done = StopIteration()
                        waits: list[object] = []

                        def step(coroutine=poll, waits=waits, moment=moment) -> None:
                            waits.append(coroutine.send(None))

                        try:
                            interrupt(step, moment, ctrl_c_inside)
                        except StopIteration as finished:
                            done = finished
                        if not waits:
                            break
                        if waits[0] is None:
                            await asyncio.sleep(0)
                        else:
                            await waits[0]
                except RuntimeError:
                    pass  # the coroutine has ended by the interruption
                if done.value is not None:
                    reader.keep([(r.partition, r.offset) for r in done.value])
                reader.check()

    asyncio.run(work())
