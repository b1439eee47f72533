"""franz-go: a small Go program of ours (`../franz`) gives one verb per run."""

import base64
import fcntl
import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.compat.client import (
    Client,
    GroupView,
    Message,
    PartitionView,
    Received,
    Refused,
    Start,
    Unavailable,
)
from tests.compat.clients.python_member import parse_event
from tests.compat.member import Member, Writer

SOURCE = Path(__file__).resolve().parent.parent / "franz"
BINARY = SOURCE.parents[2] / ".cache" / "compat" / "franz"
WAIT_S = 180


@functools.cache
def build() -> Path:
    """The program, built again only when a source is newer."""
    BINARY.parent.mkdir(parents=True, exist_ok=True)
    with BINARY.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        sources = max(file.stat().st_mtime for file in SOURCE.iterdir())
        if BINARY.exists() and BINARY.stat().st_mtime >= sources:
            return BINARY
        go = shutil.which("go")
        if go is None:
            raise Unavailable("Go is not installed, so the franz-go program cannot be built")
        fresh = BINARY.with_suffix(".new")
        command = [go, "build", "-o", str(fresh), "."]
        done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"the franz-go program did not build:\n{done.stderr}")
        fresh.rename(BINARY)
    return BINARY


class Franz(Client):
    name = "franz-go"
    keeps_its_place = False  # "rejoining after we previously errored and backed off"

    def __init__(self, bootstrap: str):
        super().__init__(bootstrap)
        self._program = str(build())

    def _ask(self, verb: str, **request: Any) -> Any:
        done = subprocess.run(
            [self._program, self.bootstrap, verb],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=True,
        )
        answer = json.loads(done.stdout)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def produce(
        self, topic: str, messages: list[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        rows = [_row(message) for message in messages]
        self._ask("produce", topic=topic, messages=rows, codec=codec, idempotent=idempotent)

    def consume(self, topic: str, start: Start, count: int) -> list[Received]:
        rows = self._ask("consume", topic=topic, start=start.kind, at=start.at, count=count)
        return [_received(row) for row in rows]

    def member(
        self, group: str, topic: str, *, session_ms: int, instance: str | None = None
    ) -> Member:
        request = {"group": group, "topic": topic, "session_ms": session_ms}
        command = [self._program, self.bootstrap, "member"]
        stdin = json.dumps({**request, "instance": instance or ""})
        return Member(command, parse_event, stdin=stdin, name="franz-go")

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        self._ask("commit", group=group, topic=topic, offsets=offsets)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        return _by_partition(self._ask("committed", group=group, topic=topic))

    def groups(self) -> set[str]:
        return set(self._ask("groups"))

    def describe_group(self, group: str) -> GroupView:
        return GroupView(**self._ask("describeGroup", group=group))

    def delete_group(self, group: str) -> None:
        self._ask("deleteGroup", group=group)

    def create_topic(
        self, topic: str, partitions: int, configs: dict[str, str], replicas: int = 1
    ) -> None:
        request = {"topic": topic, "partitions": partitions, "configs": configs}
        self._ask("create", replicas=replicas, **request)

    def topics(self) -> set[str]:
        return set(self._ask("topics"))

    def describe_topic(self, topic: str) -> dict[int, PartitionView]:
        return {
            int(p): PartitionView(row["leader"], tuple(row["replicas"]), tuple(row["isr"]))
            for p, row in self._ask("describe", topic=topic).items()
        }

    def grow_topic(self, topic: str, partitions: int) -> None:
        self._ask("grow", topic=topic, partitions=partitions)

    def delete_topic(self, topic: str) -> None:
        self._ask("delete", topic=topic)

    def offsets(self, topic: str, start: Start) -> dict[int, int]:
        return _by_partition(self._ask("offsets", topic=topic, start=start.kind, at=start.at))

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        return _by_partition(self._ask("deleteRecords", topic=topic, offsets=before))

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        return dict(self._ask("configs", topic=topic))

    def set_topic_config(self, topic: str, key: str, value: str | None) -> None:
        self._ask("setConfig", topic=topic, key=key, value=value)

    def broker_configs(self) -> dict[str, str | None]:
        return dict(self._ask("brokerConfigs"))

    def writer(self, topic: str) -> Writer:
        command = [self._program, self.bootstrap, "writer"]
        return Writer(command, parse_event, stdin=json.dumps({"topic": topic}), name="franz-go")

    def reassign(self, topic: str, replicas: dict[int, list[int] | None]) -> None:
        self._ask("reassign", topic=topic, brokers=replicas)

    def reassigning(self, topic: str) -> set[int]:
        return set(self._ask("reassigning", topic=topic))

    def elect(self, topic: str, partition: int) -> None:
        self._ask("elect", topic=topic, partition=partition)


def _by_partition(row: dict[str, int]) -> dict[int, int]:
    return {int(partition): at for partition, at in row.items()}


def _row(m: Message) -> dict[str, Any]:
    return {
        "key": _text(m.key),
        "value": _text(m.value),
        "headers": [{"key": name, "value": _text(value)} for name, value in m.headers],
        "timestamp": m.timestamp,
        "partition": m.partition,
    }


def _received(row: dict[str, Any]) -> Received:
    headers = tuple((h["key"], _bytes(h["value"])) for h in row["headers"] or ())
    return Received(
        _bytes(row["value"]),
        _bytes(row["key"]),
        headers,
        row["timestamp"],
        row["partition"],
        row["offset"],
    )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
