"""aiokafka: the asyncio client, which speaks the oldest versions of all."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from tests.compat.client import (
    Client,
    GroupView,
    Message,
    NotOffered,
    PartitionView,
    Received,
    Refused,
    Start,
)
from tests.compat.clients.python_member import MemberOptions, start_member
from tests.compat.clients.python_writer import WriterOptions, start_writer
from tests.compat.member import Member, Writer

WAIT_S = 180
T = TypeVar("T")


def run(work: Awaitable[T]) -> T:
    """Runs one verb on a loop of its own; aiokafka's errors become the broker's."""

    async def bounded() -> T:
        return await asyncio.wait_for(work, WAIT_S)

    try:
        return asyncio.run(bounded())
    except KafkaError as said:
        raise Refused(_code(said)) from said


class Aiokafka(Client):
    name = "aiokafka"

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await client.start()
        try:
            yield client
        finally:
            await client.close()

    @asynccontextmanager
    async def consumer(self, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
        client = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, **settings
        )
        await client.start()
        try:
            yield client
        finally:
            await client.stop()

    def produce(
        self, topic: str, messages: list[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        run(self._produce(topic, messages, codec, idempotent))

    async def _produce(
        self, topic: str, messages: list[Message], codec: str, idempotent: bool
    ) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=5,
            max_request_size=4 << 20,
        ) as producer:
            sent = [
                await producer.send(
                    topic,
                    m.value,
                    m.key,
                    m.partition,
                    timestamp_ms=m.timestamp,
                    headers=list(m.headers),
                )
                for m in messages
            ]
            await asyncio.gather(*sent)

    def consume(self, topic: str, start: Start, count: int) -> list[Received]:
        return run(self._consume(TopicPartition(topic, 0), start, count))

    async def _consume(self, where: TopicPartition, start: Start, count: int) -> list[Received]:
        async with self.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([where])
            await _seek(consumer, where, start)
            return [_received(await consumer.getone()) for _ in range(count)]

    def member(
        self, group: str, topic: str, *, session_ms: int, instance: str | None = None
    ) -> Member:
        return start_member(__name__, self.bootstrap, group, topic, session_ms, instance)

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        async def work() -> None:
            async with self.consumer(group_id=group) as consumer:
                wanted = {TopicPartition(topic, p): at for p, at in offsets.items()}
                consumer.assign(list(wanted))
                await consumer.commit(wanted)

        run(work())

    def committed(self, group: str, topic: str) -> dict[int, int]:
        async def work() -> dict[int, int]:
            async with self.admin() as admin:
                found = await admin.list_consumer_group_offsets(group)
            return {w.partition: at.offset for w, at in found.items() if w.topic == topic}

        return run(work())

    def groups(self) -> set[str]:
        async def work() -> set[str]:
            async with self.admin() as admin:
                return {name for name, *_ in await admin.list_consumer_groups()}

        return run(work())

    def describe_group(self, group: str) -> GroupView:
        async def work() -> GroupView:
            async with self.admin() as admin:
                (answer,) = await admin.describe_consumer_groups([group])
            (found,) = answer.groups
            code, _, state, _, _, members, *_ = found
            _check(code)
            return GroupView(state, len(members))

        return run(work())

    def delete_group(self, group: str) -> None:
        raise NotOffered("aiokafka's admin client cannot delete groups")

    def create_topic(
        self, topic: str, partitions: int, configs: dict[str, str], replicas: int = 1
    ) -> None:
        async def work() -> None:
            async with self.admin() as admin:
                new = NewTopic(topic, partitions, replicas, topic_configs=configs)
                for _, code, *_ in (await admin.create_topics([new])).topic_errors:
                    _check(code)

        run(work())

    def topics(self) -> set[str]:
        async def work() -> set[str]:
            async with self.admin() as admin:
                return set(await admin.list_topics())

        return run(work())

    def describe_topic(self, topic: str) -> dict[int, PartitionView]:
        async def work() -> dict[int, PartitionView]:
            async with self.admin() as admin:
                (found,) = await admin.describe_topics([topic])
            _check(found["error_code"])
            return {
                p["partition"]: PartitionView(p["leader"], tuple(p["replicas"]), tuple(p["isr"]))
                for p in found["partitions"]
            }

        return run(work())

    def grow_topic(self, topic: str, partitions: int) -> None:
        async def work() -> None:
            async with self.admin() as admin:
                answer = await admin.create_partitions({topic: NewPartitions(partitions)})
                for _, code, *_ in answer.topic_errors:
                    _check(code)

        run(work())

    def delete_topic(self, topic: str) -> None:
        async def work() -> None:
            async with self.admin() as admin:
                for _, code in (await admin.delete_topics([topic])).topic_error_codes:
                    _check(code)

        run(work())

    def offsets(self, topic: str, start: Start) -> dict[int, int]:
        async def work() -> dict[int, int]:
            async with self.consumer() as consumer:
                wanted = [TopicPartition(topic, p) for p in self._partitions]
                if start.kind == "start":
                    found = await consumer.beginning_offsets(wanted)
                elif start.kind == "end":
                    found = await consumer.end_offsets(wanted)
                else:
                    times = await consumer.offsets_for_times(dict.fromkeys(wanted, start.at))
                    found = {w: at.offset for w, at in times.items() if at}
                return {where.partition: at for where, at in found.items()}

        if start.kind == "latest-time":
            raise NotOffered("aiokafka cannot ask for the greatest timestamp")
        self._partitions = sorted(self.describe_topic(topic))
        return run(work())

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        async def work() -> dict[int, int]:
            wanted = {TopicPartition(topic, p): RecordsToDelete(at) for p, at in before.items()}
            async with self.admin() as admin:
                done = await admin.delete_records(wanted)
            return {where.partition: low for where, low in done.items()}

        return run(work())

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        return run(self._configs(ConfigResourceType.TOPIC, topic))

    def broker_configs(self) -> dict[str, str | None]:
        async def work() -> dict[str, str | None]:
            async with self.admin() as admin:
                broker = (await admin.describe_cluster())["brokers"][0]["node_id"]
            return await self._configs(ConfigResourceType.BROKER, str(broker))

        return run(work())

    async def _configs(self, kind: ConfigResourceType, name: str) -> dict[str, str | None]:
        async with self.admin() as admin:
            (answer,) = await admin.describe_configs([ConfigResource(kind, name)])
        (found,) = answer.resources
        code, _, _, _, entries = found
        _check(code)
        return {key: value for key, value, *_ in entries}

    def set_topic_config(self, topic: str, key: str, value: str | None) -> None:
        """AlterConfigs replaces all overrides, so that leaving a key out deletes it."""

        async def work() -> None:
            configs = {} if value is None else {key: value}
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=configs)
            async with self.admin() as admin:
                (answer,) = await admin.alter_configs([resource])
            for code, *_ in answer.resources:
                _check(code)

        run(work())

    def writer(self, topic: str) -> Writer:
        return start_writer(__name__, self.bootstrap, topic)


def _code(error: BaseException | None) -> int | str:
    """The broker's code; CommitFailedError has none, but its context does."""
    while error is not None and getattr(error, "errno", -1) < 0:
        error = error.__cause__ or error.__context__
    return getattr(error, "errno", "an error of aiokafka itself")


def _check(code: int) -> None:
    if code:
        raise Refused(code)


async def _seek(consumer: AIOKafkaConsumer, where: TopicPartition, start: Start) -> None:
    if start.kind == "start":
        await consumer.seek_to_beginning(where)
    elif start.kind == "end":
        await consumer.seek_to_end(where)
    elif start.kind == "offset":
        consumer.seek(where, start.at)
    else:
        found = await consumer.offsets_for_times({where: start.at})
        consumer.seek(where, found[where].offset)


def _received(got: Any) -> Received:
    return Received(
        got.value, got.key, tuple(got.headers), got.timestamp, got.partition, got.offset
    )


def run_member(options: MemberOptions, emit: Callable[..., None]) -> None:
    """Joins and reads until told to leave; shows what it has committed."""
    pending: list[tuple[int, int]] = []

    class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            emit(assigned=[])

        async def on_partitions_assigned(self, assigned: Any) -> None:
            pending.clear()
            emit(assigned=[where.partition for where in assigned])

    async def work() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            group_instance_id=options.instance,
            session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=1000,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            metadata_max_age_ms=1000,
        )
        consumer.subscribe([options.topic], listener=Rebalances())
        await consumer.start()
        while not options.leaving.is_set():
            batches = (await consumer.getmany(timeout_ms=200)).values()
            pending.extend(
                (record.partition, record.offset) for batch in batches for record in batch
            )
            if pending:
                with suppress(
                    KafkaError
                ):  # a rebalance is near: commit again, or read again after it
                    await consumer.commit()
                    emit(records=pending)
                    pending.clear()
        await consumer.stop()

    asyncio.run(work())


def run_writer(options: WriterOptions, emit: Callable[..., None]) -> None:
    """Writes until told to stop; shows what became of each number."""

    def told(number: int, sent: "asyncio.Future[Any]") -> None:
        problem = sent.exception()
        if problem is None:
            emit(acknowledged=[number])
        else:
            emit(failed=repr(problem))

    async def work() -> None:
        numbers = options.numbers()
        async with AIOKafkaProducer(
            bootstrap_servers=options.bootstrap, enable_idempotence=True, linger_ms=2
        ) as producer:
            while (number := await asyncio.to_thread(next, numbers, None)) is not None:
                sent = await producer.send(options.topic, str(number).encode(), partition=0)
                sent.add_done_callback(partial(told, number))

    asyncio.run(work())
