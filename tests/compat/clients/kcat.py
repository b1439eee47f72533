"""kcat: the command-line client of Debian, on librdkafka 2.0."""

import json
import re
import shutil
import subprocess
import tempfile
from typing import Any, NoReturn

from tests.compat.client import (
    Client,
    GroupView,
    Message,
    NotOffered,
    PartitionView,
    Received,
    Refused,
    Start,
    Unavailable,
)
from tests.compat.member import Assigned, Delivered, Event, Member

WAIT_S = 180
_ASSIGNED = re.compile(r"% Group .* rebalanced .*: (assigned|revoked): ?(.*)$")
_PARTITION = re.compile(r" \[(\d+)\]")
_RECORD = re.compile(r"@(\d+) (\d+)$")


class Kcat(Client):
    name = "kcat"
    binary_safe = False  # it shows keys and values inside JSON text
    names_errors = False  # librdkafka's own sentence is all it prints

    def __init__(self, bootstrap: str):
        super().__init__(bootstrap)
        if shutil.which("kcat") is None:
            raise Unavailable("kcat is not installed (apt-get install kcat)")

    def _command(self, *arguments: str) -> list[str]:
        return ["kcat", "-b", self.bootstrap, *arguments]

    def _run(self, *arguments: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            self._command(*arguments), input=stdin, capture_output=True, timeout=WAIT_S, check=False
        )
        if done.returncode:
            raise Refused(done.stderr.decode(errors="replace"))
        return done.stdout.decode()

    def produce(
        self, topic: str, messages: list[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        """Plain values go in one run, a line each; a message with a key or headers has its own."""
        options = ["-P", "-t", topic, "-p", "0", "-z", codec, "-X", "acks=all"]
        options += ["-X", f"enable.idempotence={str(idempotent).lower()}"]
        options += ["-X", "message.max.bytes=4000000", "-X", "linger.ms=5"]
        plain = [m for m in messages if m.value and not m.key and not m.headers]
        if len(plain) == len(messages) > 1:
            self._run(*options, stdin=b"\n".join(m.value or b"" for m in plain))
            return
        for message in messages:
            self._produce_one(options, message)

    def _produce_one(self, options: list[str], m: Message) -> None:
        if m.timestamp is not None:
            raise NotOffered("kcat cannot set a timestamp")
        for name, value in m.headers:
            options = [*options, "-H", name if value is None else f"{name}={value.decode()}"]
        if m.key and m.value is not None:
            options = [*options, "-k", m.key.decode()]
        if m.value is None:  # an empty value after a key is null with -Z; an empty file is nothing
            self._run(*options, "-Z", "-K", ":", stdin=b"%s:\n" % (m.key or b""))
            return
        with tempfile.NamedTemporaryFile() as file:
            file.write(m.value or b"")
            file.flush()
            self._run(*options, file.name)

    def consume(self, topic: str, start: Start, count: int) -> list[Received]:
        where = {
            "start": "beginning",
            "end": "end",
            "offset": str(start.at),
            "time": f"s@{start.at}",
        }[start.kind]
        more = ["-X", "fetch.message.max.bytes=4000000", "-X", "topic.auto.offset.reset=error"]
        lines = self._run(
            "-C", "-t", topic, "-p", "0", "-o", where, "-c", str(count), "-J", "-u", *more
        )
        return [_received(json.loads(line)) for line in lines.splitlines()]

    def member(
        self, group: str, topic: str, *, session_ms: int, instance: str | None = None
    ) -> Member:
        options = {
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": 1000,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if instance:
            options["group.instance.id"] = instance
        settings = [word for key, value in options.items() for word in ("-X", f"{key}={value}")]
        command = self._command("-G", group, "-u", *settings, "-f", "@%p %o\n", topic)
        return Member(command, parse_event, name="kcat")

    def topics(self) -> set[str]:
        return {topic["topic"] for topic in json.loads(self._run("-L", "-J"))["topics"]}

    def describe_topic(self, topic: str) -> dict[int, PartitionView]:
        (found,) = json.loads(self._run("-L", "-J", "-t", topic))["topics"]
        if "error" in found:
            raise Refused(
                "UNKNOWN_TOPIC_OR_PARTITION"
                if "Unknown topic" in found["error"]
                else found["error"]
            )
        return {
            p["partition"]: PartitionView(
                p["leader"],
                tuple(r["id"] for r in p["replicas"]),
                tuple(r["id"] for r in p["isrs"]),
            )
            for p in found["partitions"]
        }

    def offsets(self, topic: str, start: Start) -> dict[int, int]:
        at = {"start": -2, "end": -1, "time": start.at, "latest-time": -3}[start.kind]
        if at == -3:
            raise NotOffered("librdkafka 2.0 cannot ask for the greatest timestamp")
        wanted = [w for p in self.describe_topic(topic) for w in ("-t", f"{topic}:{p}:{at}")]
        lines = self._run("-Q", *wanted).splitlines()
        found = [re.fullmatch(r".* \[(\d+)\] offset (-?\d+)", line) for line in lines]
        return {int(match[1]): int(match[2]) for match in found if match}

    def _no_admin(self) -> NoReturn:
        raise NotOffered("kcat has no admin requests")

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        raise NotOffered("kcat commits only what it has read as a member")

    def committed(self, group: str, topic: str) -> dict[int, int]:
        raise NotOffered("kcat cannot show a group's offsets")

    def groups(self) -> set[str]:
        self._no_admin()

    def describe_group(self, group: str) -> GroupView:
        self._no_admin()

    def delete_group(self, group: str) -> None:
        self._no_admin()

    def create_topic(
        self, topic: str, partitions: int, configs: dict[str, str], replicas: int = 1
    ) -> None:
        self._no_admin()

    def grow_topic(self, topic: str, partitions: int) -> None:
        self._no_admin()

    def delete_topic(self, topic: str) -> None:
        self._no_admin()

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        self._no_admin()

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        self._no_admin()

    def set_topic_config(self, topic: str, key: str, value: str | None) -> None:
        self._no_admin()

    def broker_configs(self) -> dict[str, str | None]:
        self._no_admin()


def _received(got: dict[str, Any]) -> Received:
    names, values = got.get("headers", [])[::2], got.get("headers", [])[1::2]
    headers = tuple((n, _bytes(v)) for n, v in zip(names, values, strict=True))
    return Received(
        _bytes(got["payload"]),
        _bytes(got["key"]),
        headers,
        got["ts"],
        got["partition"],
        got["offset"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def parse_event(line: str) -> Event:
    """kcat tells rebalances on stderr; records come in the format asked for."""
    if told := _ASSIGNED.search(line):
        numbers = _PARTITION.findall(told[2]) if told[1] == "assigned" else []
        return Assigned(frozenset(map(int, numbers)))
    if record := _RECORD.match(line):
        return Delivered([(int(record[1]), int(record[2]))])
    return None
