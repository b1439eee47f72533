"""confluent-kafka: librdkafka 2.16."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.client import (
    Client,
    GroupView,
    Message,
    PartitionView,
    Received,
    Refused,
    Start,
)
from tests.compat.clients.python_member import MemberOptions, start_member
from tests.compat.clients.python_writer import WriterOptions, start_writer
from tests.compat.member import Member, Writer

WAIT_S = 180


@contextmanager
def refusals() -> Iterator[None]:
    """Raises what librdkafka says as the broker's error."""
    try:
        yield
    except KafkaException as said:
        raise refused(said.args[0]) from said


def refused(error: KafkaError) -> Refused:
    """A broker's error has a code of 0 or more; librdkafka's own are negative and have a name."""
    return Refused(error.code() if error.code() >= 0 else error.name())


def done(future: "Future[Any]") -> Any:
    with refusals():
        return future.result(WAIT_S)


class Confluent(Client):
    name = "confluent-kafka"

    def __init__(self, bootstrap: str):
        super().__init__(bootstrap)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def produce(
        self, topic: str, messages: list[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 5,
                "message.max.bytes": 4 << 20,
                "message.timeout.ms": WAIT_S * 1000,
            }
        )
        errors: list[KafkaError] = []
        for m in messages:
            producer.produce(
                topic,
                m.value,
                m.key,
                partition=m.partition,
                headers=list(m.headers),
                timestamp=m.timestamp or 0,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(WAIT_S) == 0, "records still in the queue"
        if errors:
            raise refused(errors[0])

    def consume(self, topic: str, start: Start, count: int) -> list[Received]:
        consumer = self._consumer("compat-no-group", **{"auto.offset.reset": "error"})
        try:
            with refusals():
                consumer.assign([TopicPartition(topic, 0, self._position(consumer, topic, start))])
                return [_received(_next(consumer)) for _ in range(count)]
        finally:
            consumer.close()

    def _position(self, consumer: Consumer, topic: str, start: Start) -> int:
        if start.kind == "time":
            found = consumer.offsets_for_times([TopicPartition(topic, 0, start.at)], WAIT_S)
            return int(found[0].offset)
        return {"start": OFFSET_BEGINNING, "end": OFFSET_END, "offset": start.at}[start.kind]

    def _consumer(self, group: str, **more: Any) -> Consumer:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": group}
        settings |= {"enable.auto.commit": False, "fetch.message.max.bytes": 4 << 20}
        return Consumer({**settings, **more})

    def member(
        self, group: str, topic: str, *, session_ms: int, instance: str | None = None
    ) -> Member:
        return start_member(__name__, self.bootstrap, group, topic, session_ms, instance)

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        partitions = [TopicPartition(topic, p, at) for p, at in offsets.items()]
        request = ConsumerGroupTopicPartitions(group, partitions)
        for future in self._admin.alter_consumer_group_offsets([request]).values():
            for partition in done(future).topic_partitions:
                if partition.error:
                    raise refused(partition.error)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        request = ConsumerGroupTopicPartitions(group)
        (future,) = self._admin.list_consumer_group_offsets([request]).values()
        return {p.partition: p.offset for p in done(future).topic_partitions if p.topic == topic}

    def groups(self) -> set[str]:
        listing = done(self._admin.list_consumer_groups())
        assert not listing.errors, listing.errors
        return {group.group_id for group in listing.valid}

    def describe_group(self, group: str) -> GroupView:
        (future,) = self._admin.describe_consumer_groups([group]).values()
        found = done(future)
        return GroupView(found.state.name, len(found.members))

    def delete_group(self, group: str) -> None:
        (future,) = self._admin.delete_consumer_groups([group]).values()
        done(future)

    def create_topic(
        self, topic: str, partitions: int, configs: dict[str, str], replicas: int = 1
    ) -> None:
        new = NewTopic(topic, partitions, replicas, config=configs)
        (future,) = self._admin.create_topics([new]).values()
        done(future)

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=WAIT_S).topics)

    def describe_topic(self, topic: str) -> dict[int, PartitionView]:
        found = self._admin.list_topics(topic, timeout=WAIT_S).topics[topic]
        if found.error:
            raise refused(found.error)
        return {
            p.id: PartitionView(p.leader, tuple(p.replicas), tuple(p.isrs))
            for p in found.partitions.values()
        }

    def grow_topic(self, topic: str, partitions: int) -> None:
        (future,) = self._admin.create_partitions([NewPartitions(topic, partitions)]).values()
        done(future)

    def delete_topic(self, topic: str) -> None:
        (future,) = self._admin.delete_topics([topic]).values()
        done(future)

    def offsets(self, topic: str, start: Start) -> dict[int, int]:
        spec = {
            "start": OffsetSpec.earliest,
            "end": OffsetSpec.latest,
            "latest-time": OffsetSpec.max_timestamp,
            "time": lambda: OffsetSpec.for_timestamp(start.at),
        }[start.kind]()
        wanted = {TopicPartition(topic, p): spec for p in self.describe_topic(topic)}
        answers = self._admin.list_offsets(wanted)
        return {key.partition: done(future).offset for key, future in answers.items()}

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        wanted = [TopicPartition(topic, p, at) for p, at in before.items()]
        answers = self._admin.delete_records(wanted)
        return {key.partition: done(future).low_watermark for key, future in answers.items()}

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        return self._configs(ConfigResource(ResourceType.TOPIC, topic))

    def broker_configs(self) -> dict[str, str | None]:
        broker = next(iter(self._admin.list_topics(timeout=WAIT_S).brokers))
        return self._configs(ConfigResource(ResourceType.BROKER, str(broker)))

    def _configs(self, resource: ConfigResource) -> dict[str, str | None]:
        (future,) = self._admin.describe_configs([resource]).values()
        return {name: entry.value for name, entry in done(future).items()}

    def set_topic_config(self, topic: str, key: str, value: str | None) -> None:
        how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(key, value, incremental_operation=how)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (future,) = self._admin.incremental_alter_configs([resource]).values()
        done(future)

    def writer(self, topic: str) -> Writer:
        return start_writer(__name__, self.bootstrap, topic)

    def elect(self, topic: str, partition: int) -> None:
        wanted = [TopicPartition(topic, partition)]
        for problem in done(self._admin.elect_leaders(ElectionType.PREFERRED, wanted)).values():
            if problem is not None:
                raise refused(problem)


def _next(consumer: Consumer) -> Any:
    message = consumer.poll(WAIT_S)
    assert message is not None, "nothing to read"
    if message.error():
        raise KafkaException(message.error())
    return message


def _received(message: Any) -> Received:
    return Received(
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
        message.partition(),
        message.offset(),
    )


def run_member(options: MemberOptions, emit: Callable[..., None]) -> None:
    """Joins and reads until told to leave; shows what it has committed."""
    pending: list[tuple[int, int]] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "session.timeout.ms": options.session_ms,
        "heartbeat.interval.ms": 1000,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 1000,
    }
    if options.instance:
        settings["group.instance.id"] = options.instance
    consumer = Consumer(settings)

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        pending.clear()
        emit(assigned=[p.partition for p in partitions])

    consumer.subscribe([options.topic], on_assign=assigned, on_revoke=lambda *_: emit(assigned=[]))
    while not options.leaving.is_set():
        messages = consumer.consume(500, 0.2)
        pending += [(m.partition(), m.offset()) for m in messages if not m.error()]
        if pending:
            with suppress(
                KafkaException
            ):  # a rebalance is near: commit again, or read again after it
                consumer.commit(asynchronous=False)
                emit(records=pending)
                pending.clear()
    consumer.close()


def run_writer(options: WriterOptions, emit: Callable[..., None]) -> None:
    """Writes until told to stop; shows what became of each number."""
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.timeout.ms": WAIT_S * 1000,
        }
    )

    def told(error: KafkaError | None, message: Any) -> None:
        if error:
            emit(failed=str(error))
        else:
            emit(acknowledged=[int(message.value())])

    for number in options.numbers():
        producer.produce(options.topic, str(number), partition=0, on_delivery=told)
        producer.poll(0)
    producer.flush(WAIT_S)
