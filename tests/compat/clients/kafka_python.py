"""kafka-python 3: the pure Python client."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from time import monotonic
from typing import Any

from kafka import (
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    OffsetSpec,
    TopicPartition,
    errors,
)
from kafka.admin import ConfigResource, NewTopic
from kafka.errors import KafkaError

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
PATIENCE_MS = 3000
"""A poll that ends while a SyncGroup is on its way loses the assignment for good (3.0.12)."""


@contextmanager
def refusals() -> Iterator[None]:
    """Raises what kafka-python says as the broker's error."""
    try:
        yield
    except KafkaError as said:
        raise refused(said) from said


def refused(error: Any) -> Refused:
    """From an error or an error class; those of the client itself have no code."""
    code = getattr(error, "errno", -1)
    return Refused(code if code >= 0 else repr(error))


class KafkaPython(Client):
    name = "kafka-python"
    null_headers = False  # it insists on bytes
    tries_other_brokers = False  # a refused connection ends the call

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as client, refusals():
            yield client

    def produce(
        self, topic: str, messages: list[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=5,
            max_request_size=4 << 20,
            max_block_ms=WAIT_S * 1000,
        )
        with closing(producer), refusals():
            sent = [
                producer.send(
                    topic, m.value, m.key, list(m.headers), m.partition, timestamp_ms=m.timestamp
                )
                for m in messages
            ]
            for future in sent:
                future.get(WAIT_S)

    def consume(self, topic: str, start: Start, count: int) -> list[Received]:
        with closing(self._consumer()) as consumer, refusals():
            where = TopicPartition(topic, 0)
            consumer.assign([where])
            _seek(consumer, where, start)
            return _read(consumer, count)

    def _consumer(self, **more: Any) -> KafkaConsumer:
        settings = {"auto_offset_reset": "none", "enable_auto_commit": False, **more}
        return KafkaConsumer(bootstrap_servers=self.bootstrap, **settings)

    def member(
        self, group: str, topic: str, *, session_ms: int, instance: str | None = None
    ) -> Member:
        return start_member(__name__, self.bootstrap, group, topic, session_ms, instance)

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        wanted = {
            TopicPartition(topic, p): OffsetAndMetadata(at, "", -1) for p, at in offsets.items()
        }
        with self.admin() as admin:
            for error in admin.alter_group_offsets(group, wanted).values():
                if error.errno:
                    raise refused(error)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        with self.admin() as admin:
            found = admin.list_group_offsets({group: None})[group]
        return {where.partition: at.offset for where, at in found.items() if where.topic == topic}

    def groups(self) -> set[str]:
        with self.admin() as admin:
            return {group["group_id"] for group in admin.list_groups()}

    def describe_group(self, group: str) -> GroupView:
        with self.admin() as admin:
            found = admin.describe_groups([group])[group]
        return GroupView(found["group_state"], len(found["members"]))

    def delete_group(self, group: str) -> None:
        with self.admin() as admin:
            answer = admin.delete_groups([group])
        if answer[group] != "OK":
            raise refused(getattr(errors, answer[group])())

    def create_topic(
        self, topic: str, partitions: int, configs: dict[str, str], replicas: int = 1
    ) -> None:
        with self.admin() as admin:
            admin.create_topics([NewTopic(topic, partitions, replicas, topic_configs=configs)])

    def topics(self) -> set[str]:
        with self.admin() as admin:
            return set(admin.list_topics())

    def describe_topic(self, topic: str) -> dict[int, PartitionView]:
        with self.admin() as admin:
            (found,) = admin.describe_topics([topic])
        if found["error_code"]:
            raise Refused(found["error_code"])
        return {
            p["partition_index"]: PartitionView(
                p["leader_id"], tuple(p["replica_nodes"]), tuple(p["isr_nodes"])
            )
            for p in found["partitions"]
        }

    def grow_topic(self, topic: str, partitions: int) -> None:
        with self.admin() as admin:
            admin.create_partitions({topic: partitions})

    def delete_topic(self, topic: str) -> None:
        with self.admin() as admin:
            admin.delete_topics([topic])

    def offsets(self, topic: str, start: Start) -> dict[int, int]:
        spec = {
            "start": OffsetSpec.EARLIEST,
            "end": OffsetSpec.LATEST,
            "latest-time": OffsetSpec.MAX_TIMESTAMP,
            "time": start.at,
        }[start.kind]
        wanted = {TopicPartition(topic, p): spec for p in self.describe_topic(topic)}
        with self.admin() as admin:
            found = admin.list_partition_offsets(wanted)
        return {where.partition: at.offset for where, at in found.items()}

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        wanted = {TopicPartition(topic, p): at for p, at in before.items()}
        with self.admin() as admin:
            done = admin.delete_records(wanted)
        return {where.partition: answer["low_watermark"] for where, answer in done.items()}

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        return self._configs("topic", topic)

    def broker_configs(self) -> dict[str, str | None]:
        with self.admin() as admin:
            broker = admin.describe_cluster()["brokers"][0]
        return self._configs("broker", str(broker.get("broker_id", broker.get("node_id"))))

    def _configs(self, kind: str, name: str) -> dict[str, str | None]:
        with self.admin() as admin:
            found = admin.describe_configs([ConfigResource(kind, name)], config_filter="all")
        return {key: entry["value"] for key, entry in found[kind][name].items()}

    def set_topic_config(self, topic: str, key: str, value: str | None) -> None:
        with self.admin() as admin:
            if value is None:
                done = admin.reset_configs([ConfigResource("topic", topic, [key])])
            else:
                wanted = ConfigResource("topic", topic, {key: value})
                done = admin.alter_configs([wanted], raise_on_unknown=False)
        told = done["topic"][topic]
        if told != "OK":
            raise Refused(int(re.match(r"\[Error (\d+)\]", told)[1]))

    def writer(self, topic: str) -> Writer:
        return start_writer(__name__, self.bootstrap, topic)

    def reassign(self, topic: str, replicas: dict[int, list[int] | None]) -> None:
        wanted = {TopicPartition(topic, p): brokers for p, brokers in replicas.items()}
        with self.admin() as admin:
            for error in admin.alter_partition_reassignments(wanted).values():
                if error is not None:
                    raise refused(error)

    def reassigning(self, topic: str) -> set[int]:
        with self.admin() as admin:
            return {
                at.partition for at in admin.list_partition_reassignments() if at.topic == topic
            }

    def elect(self, topic: str, partition: int) -> None:
        with self.admin() as admin:
            answer = admin.elect_leaders(0, {topic: [partition]})
        for row in (row for one in answer.replica_election_results for row in one.partition_result):
            if row.error_code:
                raise Refused(row.error_code)


def _seek(consumer: KafkaConsumer, where: TopicPartition, start: Start) -> None:
    if start.kind == "start":
        consumer.seek_to_beginning(where)
    elif start.kind == "end":
        consumer.seek_to_end(where)
    elif start.kind == "offset":
        consumer.seek(where, start.at)
    else:
        consumer.seek(where, consumer.offsets_for_times({where: start.at})[where].offset)


def _read(consumer: KafkaConsumer, count: int) -> list[Received]:
    out: list[Received] = []
    deadline = monotonic() + WAIT_S
    while len(out) < count:
        assert monotonic() < deadline, f"read {len(out)} of {count}"
        for records in consumer.poll(500).values():
            out += map(_received, records)
    return out[:count]


def _received(got: Any) -> Received:
    headers = tuple((name, value) for name, value in got.headers)
    return Received(got.value, got.key, headers, got.timestamp, got.partition, got.offset)


def run_member(options: MemberOptions, emit: Callable[..., None]) -> None:
    """Joins and reads until told to leave; shows what it has committed."""
    pending: list[tuple[int, int]] = []

    class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            emit(assigned=[])

        def on_partitions_assigned(self, assigned: Any) -> None:
            pending.clear()
            emit(assigned=[where.partition for where in assigned])

    consumer = KafkaConsumer(
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
    while not options.leaving.is_set():
        batches = consumer.poll(PATIENCE_MS).values()
        pending += [(record.partition, record.offset) for batch in batches for record in batch]
        if pending:
            with suppress(KafkaError):  # a rebalance is near: commit again, or read again after it
                consumer.commit()
                emit(records=pending)
                pending.clear()
    consumer.close()


def run_writer(options: WriterOptions, emit: Callable[..., None]) -> None:
    """Writes until told to stop; shows what became of each number."""
    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=2,
        delivery_timeout_ms=WAIT_S * 1000,
        max_block_ms=WAIT_S * 1000,
    )
    for number in options.numbers():
        sent = producer.send(options.topic, str(number).encode(), partition=0)
        sent.add_callback(lambda _, number=number: emit(acknowledged=[number]))
        sent.add_errback(lambda error: emit(failed=repr(error)))
    producer.flush(WAIT_S)
    producer.close()
