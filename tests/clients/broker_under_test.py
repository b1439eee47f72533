"""What tests of clients set up and look at, with confluent-kafka as the hands and eyes."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import confluent_kafka

import headwater
from headwater.errors import E, KafkaError

PATIENCE_S = 60.0
"""How long a condition may take on a very busy machine."""
_numbers = itertools.count(1)


class Row(NamedTuple):
    """A record as confluent-kafka read it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


class BrokerUnderTest:
    """One running broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def name(self, what: str) -> str:
        """A name that nobody had."""
        return f"{what}-{next(_numbers)}"

    def topic(self, partitions: int = 1, name: str | None = None, **configs: str) -> str:
        """A fresh topic; configs with underscores."""
        made = name or self.name("topic")
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        with headwater.Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics([headwater.NewTopic(made, partitions, configs=settings)])
        return made

    def recreate(self, name: str) -> None:
        """Delete a topic of one partition and make it again, once the broker lets go of the name."""
        with headwater.Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.delete_topics([name])

        def made() -> bool:
            try:
                self.topic(name=name)
            except KafkaError as problem:
                if problem.code is not E.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        until(f"{name} can be made again", made)

    def fill(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        partition: int | None = None,
        key: Callable[[int], bytes] | None = None,
        timestamp: Callable[[int], int] | None = None,
        **config: Any,
    ) -> None:
        """Store values, in order within a partition."""
        failed: list[object] = []
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 1}
            | {name.replace("_", "."): value for name, value in config.items()}
        )
        for number, value in enumerate(values):
            options: dict[str, Any] = {"partition": partition} if partition is not None else {}
            if key is not None:
                options["key"] = key(number)
            if timestamp is not None:
                options["timestamp"] = timestamp(number)
            producer.produce(
                topic,
                value,
                on_delivery=lambda error, _: error and failed.append(error),
                **options,
            )
        assert producer.flush(PATIENCE_S) == 0
        assert not failed, failed[0]

    def rows(self, topic: str) -> list[Row]:
        """All records of a topic, by partition and offset."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "onlookers",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 5,
                "isolation.level": "read_uncommitted",
            }
        )
        try:
            known = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
            consumer.assign(
                [
                    confluent_kafka.TopicPartition(topic, n, confluent_kafka.OFFSET_BEGINNING)
                    for n in known
                ]
            )
            return sorted(_until_the_ends(consumer, len(known)))
        finally:
            consumer.close()

    def values(self, topic: str) -> list[bytes | None]:
        """All values, by partition and offset."""
        return [row.value for row in self.rows(topic)]


def _until_the_ends(consumer: confluent_kafka.Consumer, partitions: int) -> list[Row]:
    rows: list[Row] = []
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, "the topic could not be read to its ends"
        for message in consumer.consume(5000, 0.2):
            if message.error() is None:
                rows.append(
                    Row(
                        message.partition(),
                        message.offset(),
                        message.key(),
                        message.value(),
                        message.headers() or [],
                        message.timestamp()[1],
                    )
                )
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise confluent_kafka.KafkaException(message.error())
    return rows


def _pause() -> None:
    time.sleep(0.005)


def until(what: str, holds: Callable[[], Any], turn: Callable[[], object] = _pause) -> Any:
    """Take turns until `holds` gives something; an AssertionError that says `what` after a while."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not so after {PATIENCE_S:.0f} s: {what}"
        turn()
    return found


def poll_until(count: int, *consumers: Any) -> list[Any]:
    """Poll in turn until `count` records came in all, and then that no more are at hand."""
    found: list[Any] = []

    def turn() -> None:
        for consumer in consumers:
            found.extend(consumer.poll(0.1))

    until(f"{count} records, {len(found)} came", lambda: len(found) >= count, turn)
    return found


def values_of(records: Iterable[Any]) -> list[Any]:
    """Their values."""
    return [record.value for record in records]


def partitions_of(consumer: Any) -> set[int]:
    """The numbers of the partitions that it has."""
    return {number for _, number in consumer.assignment()}


def settle(partitions: int, *consumers: Any) -> None:
    """Poll until each has a share, and every partition one owner."""

    def settled() -> bool:
        shares = [partitions_of(one) for one in consumers]
        return all(shares) and sorted(itertools.chain(*shares)) == list(range(partitions))

    until("every partition has one owner", settled, lambda: [one.poll(0.02) for one in consumers])


def in_thread(work: Callable[[], object]) -> threading.Thread:
    """Started."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
