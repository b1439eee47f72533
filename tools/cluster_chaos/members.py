"""Members of consumer groups, ours and confluent-kafka's, and the offsets that they commit."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

import confluent_kafka

import headwater
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from tools.chaos_clients import CONFLUENT_QUICK
from tools.client_chaos import QUICK
from tools.cluster_chaos.access import Access
from tools.cluster_chaos.history import History, Written

SESSION_TIMEOUT_MS = 10_000
BETWEEN_LOOKS_S = 0.4

Offsets: TypeAlias = dict[TopicPartition, int]
"""The next offset to read."""


class Member(Protocol):
    """A member on a thread of its own."""

    def finish(self) -> None:
        """Leave the group."""


class _Notes:
    """What members of one group read and commit."""

    def __init__(self, group: str, name: str, history: History) -> None:
        self.group = group
        self.name = name
        self._history = history

    def read(self, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        written = Written.from_value(value)
        self._history.note(
            "read", group=self.group, member=self.name, topic=topic, partition=partition,
            offset=offset, **written._asdict(),
        )  # fmt: skip

    def commit(self, offsets: Offsets, call: Callable[[], None]) -> None:
        """Commit; a commit that fails may count or not."""
        began = self._history.now_us()
        try:
            call()
        except (KafkaError, confluent_kafka.KafkaException) as failure:
            self._history.note("commit failed", group=self.group, error=str(failure))
            return
        for (topic, partition), offset in offsets.items():
            self._history.note(
                "commit", began=began, group=self.group, member=self.name, topic=topic,
                partition=partition, offset=offset,
            )  # fmt: skip

    def problem(self, text: str) -> None:
        self._history.note("problem", text=f"member {self.name}: {text}")


class OwnMember:
    """A consumer of ours that commits what it has read."""

    def __init__(
        self, access: Access, group: str, name: str, topics: list[str], history: History
    ) -> None:
        self._notes = _Notes(group, name, history)
        self._consumer = headwater.Consumer(
            **access.own, client_id=name, group_id=group,
            auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS, heartbeat_interval_ms=500, **QUICK,
        )  # fmt: skip
        self._consumer.subscribe(topics)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                records = self._consumer.poll(0.1)
            except KafkaError as failure:
                self._notes.problem(f"poll failed: {failure!r}")
                self._stop.wait(0.5)
                continue
            offsets: Offsets = {}
            for record in records:
                self._notes.read(record.topic, record.partition, record.offset, record.value)
                offsets[record.topic_partition] = record.offset + 1
            if offsets:
                self._notes.commit(offsets, partial(self._consumer.commit, offsets))

    def finish(self) -> None:
        """Leave the group."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()


class ConfluentMember:
    """A consumer of confluent-kafka that commits what it has read."""

    def __init__(
        self, access: Access, group: str, name: str, topics: list[str], history: History
    ) -> None:
        self._notes = _Notes(group, name, history)
        self._consumer = confluent_kafka.Consumer(
            {
                **access.confluent,
                "client.id": name,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 500,
                "socket.timeout.ms": 10_000,
                "fetch.wait.max.ms": 100,
                **CONFLUENT_QUICK,
            }
        )
        self._consumer.subscribe(topics)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            offsets: Offsets = {}
            for message in self._consumer.consume(500, 0.1):
                if message.error() is not None:
                    continue  # it is repeated by the client
                topic, partition = message.topic() or "", message.partition() or 0
                self._notes.read(topic, partition, message.offset() or 0, message.value())
                offsets[TopicPartition(topic, partition)] = (message.offset() or 0) + 1
            if offsets:
                self._notes.commit(offsets, partial(self._commit, offsets))
        self._consumer.close()

    def _commit(self, offsets: Offsets) -> None:
        places = [confluent_kafka.TopicPartition(*at, offset) for at, offset in offsets.items()]
        for place in self._consumer.commit(offsets=places, asynchronous=False) or ():
            if place.error is not None:
                raise confluent_kafka.KafkaException(place.error)

    def finish(self) -> None:
        """Leave the group."""
        self._stop.set()
        self._thread.join()


class CommitWatch:
    """Asks for the committed offsets of groups again and again."""

    def __init__(
        self, access: Access, groups: list[str], places: list[TopicPartition], history: History
    ) -> None:
        self._admin = headwater.Admin(**access.own, **QUICK)
        self._groups, self._places = groups, places
        self._history = history
        for group in groups:
            history.note("group", group=group)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="commit watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(BETWEEN_LOOKS_S):
            for group in self._groups:
                self.look(group)

    def look(self, group: str) -> Offsets:
        """Ask once; nothing if the coordinator cannot be asked now."""
        began = self._history.now_us()
        try:
            found = self._admin.group_offsets(group)
        except KafkaError:
            return {}
        offsets = {at: place.offset for at, place in found.items()}
        for at in self._places:  # a place without an offset counts: it may have had one
            self._history.note(
                "committed", began=began, group=group, topic=at.topic, partition=at.partition,
                offset=offsets.get(at, -1),
            )  # fmt: skip
        return offsets

    def finish(self) -> None:
        """Ask no more."""
        self._stop.set()
        self._thread.join()
        self._admin.close()
