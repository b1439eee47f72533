"""`process` gives the consumer back as it took it, however it ends; both faces."""

import asyncio
import itertools
import threading

import pytest

import headwater
import headwater.aio
from headwater.client.consumer.processing.dead_letters import producer_options
from headwater.client.consumer.processing.process import ProcessingError
from headwater.config.client import ConsumerSettings
from headwater.errors import UnknownTopicOrPartitionError
from headwater.model import TopicPartition
from headwater.testing import Broker

HERE = TopicPartition("t", 0)
_groups = itertools.count(1)


@pytest.fixture(scope="module")
def broker():
    with Broker({"auto.create.topics.enable": "false"}) as running:
        running.create_topic("t")
        with headwater.Producer(
            bootstrap_servers=running.bootstrap, value_serializer="json"
        ) as producer:
            producer.send_many("t", [{"n": number} for number in range(40)]).result(60)
        yield running


@pytest.fixture
def options(broker):
    return {
        "bootstrap_servers": broker.bootstrap,
        "group_id": f"group-{next(_groups)}",
        "auto_offset_reset": "earliest",
        "value_deserializer": "json",
    }


def committed(options):
    with headwater.Admin(bootstrap_servers=options["bootstrap_servers"]) as admin:
        rows = admin.group_offsets(options["group_id"])
    return rows[HERE].offset if HERE in rows else 0


def test_a_consumer_goes_on_after_process_as_it_was_before(options) -> None:
    with headwater.Consumer(**options) as consumer:
        consumer.subscribe(["t"])
        done = []

        def work(record):
            done.append(record.value["n"])
            if len(done) == 10:
                consumer.stop_processing()

        consumer.process(work, workers=1, order="partition", max_unfinished=5)
        assert consumer.paused() == set()
        seen = list(done)
        while len(seen) < 40:
            seen += [record.value["n"] for record in consumer.poll(5)]
        assert seen == list(range(40))
    assert committed(options) == 40  # by the automatic commit of close()


def test_the_asyncio_consumer_goes_on_as_well(options) -> None:
    async def main() -> None:
        async with headwater.aio.Consumer(**options) as consumer:
            await consumer.subscribe(["t"])
            done = []

            async def work(record):
                done.append(record.value["n"])
                if len(done) == 10:
                    consumer.stop_processing()

            await consumer.process(work, workers=1, order="partition", max_unfinished=5)
            assert consumer.paused() == set()
            seen = list(done)
            while len(seen) < 40:
                seen += [record.value["n"] for record in await consumer.poll(5)]
            assert seen == list(range(40))

    asyncio.run(main())
    assert committed(options) == 40


def test_a_cancelled_process_ends_at_once_and_commits_what_is_finished(options) -> None:
    async def main() -> None:
        at_work = asyncio.Event()

        async def work(record):
            if record.offset >= 3:
                at_work.set()
                await asyncio.Event().wait()

        async def consume() -> None:
            async with headwater.aio.Consumer(**options) as consumer:
                await consumer.subscribe(["t"])
                await consumer.process(work, workers=1, order="partition")

        task = asyncio.create_task(consume())
        await at_work.wait()
        task.cancel()
        # Far less than the half of max.poll.interval.ms that a rebalance would wait for the work.
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert committed(options) == 3


def test_work_that_raises_cancelled_error_fails_the_process_and_hangs_nothing(options) -> None:
    async def work(record):
        raise asyncio.CancelledError

    async def main() -> None:
        async with headwater.aio.Consumer(**options) as consumer, asyncio.timeout(60):
            await consumer.subscribe(["t"])
            with pytest.raises(asyncio.CancelledError):
                await consumer.process(work, workers=2)

    asyncio.run(main())
    assert committed(options) == 0


def test_an_interrupted_process_commits_nothing_that_is_not_done(options) -> None:
    with headwater.Consumer(**options) as consumer:
        consumer.subscribe(["t"])
        begun = threading.Event()

        def work(record):
            if record.offset >= 5:
                begun.set()
                raise ValueError("bad")

        with pytest.raises(ProcessingError):
            consumer.process(work, workers=1, order="partition", retries=0)
        assert consumer.position(HERE) == 5
    assert committed(options) == 5


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_a_dead_letter_topic_that_does_not_exist_is_reported_before_any_work(
    options, face, monkeypatch
) -> None:
    monkeypatch.setattr("headwater.client.cluster._GRACE_MS", 50)
    done = []

    async def main() -> None:
        async def work(record):
            done.append(record)

        async with headwater.aio.Consumer(**options) as consumer:
            await consumer.subscribe(["t"])
            await consumer.process(work, dead_letter_topic="nowhere")

    def blocking() -> None:
        with headwater.Consumer(**options) as consumer:
            consumer.subscribe(["t"])
            consumer.process(done.append, dead_letter_topic="nowhere")

    with pytest.raises(UnknownTopicOrPartitionError, match="headwater topics create nowhere"):
        blocking() if face == "blocking" else asyncio.run(main())
    assert done == []
    assert committed(options) == 0


def test_dead_letters_are_sent_with_all_client_settings_of_the_consumer() -> None:
    settings = ConsumerSettings.of(
        {
            "bootstrap_servers": "a:1,b:2",
            "group_id": "g",
            "client_id": "me",
            "request_timeout_ms": 7,
            "max_poll_records": 3,
        }
    )
    assert producer_options(settings) == {
        "bootstrap_servers": ("a:1", "b:2"),
        "client_id": "me",
        "request_timeout_ms": 7,
    }


def test_a_dead_letter_that_cannot_be_stored_names_the_work_that_failed(broker, options) -> None:
    broker.create_topic("small", configs={"max.message.bytes": "200"})

    def work(record):
        raise ValueError("the work" + "!" * 500)

    with headwater.Consumer(**options) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(headwater.KafkaError) as refused:
            consumer.process(work, workers=1, retries=0, dead_letter_topic="small")
    assert isinstance(refused.value.__cause__, ValueError)
