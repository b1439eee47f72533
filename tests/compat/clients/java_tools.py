"""Kafka's own command-line tools, as one client: what an operator types, in the order of the verbs."""

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.java import tool

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
from tests.compat.member import Acknowledged, Assigned, Delivered, Event, Failed, Member, Writer
from tests.compat.tool_server import Ended, ToolServer

IDEMPOTENT = Path(__file__).resolve().parent.parent / "java" / "idempotent.properties"
_NULL = "<null>"
_CONFIG = re.compile(r"^  (\S+?)=(.*?) sensitive=", re.MULTILINE)
_EXCEPTIONS = {
    "GroupIdNotFoundException": "GROUP_ID_NOT_FOUND",
    "GroupNotEmptyException": "NON_EMPTY_GROUP",
    "InvalidConfigurationException": "INVALID_CONFIG",
    "OffsetOutOfRangeException": "OFFSET_OUT_OF_RANGE",
    "UnknownTopicOrPartitionException": "UNKNOWN_TOPIC_OR_PARTITION",
}


class JavaTools(Client):
    name = "Java tools"
    binary_safe = False
    names_errors = False  # kafka-topics prints the broker's sentence, not the error's name

    def __init__(self, bootstrap: str, server: ToolServer):
        super().__init__(bootstrap)
        self.server = server

    def at(self, bootstrap: str) -> "JavaTools":
        """The same JVM with another address."""
        return JavaTools(bootstrap, self.server)

    def run(self, script: str, *arguments: str, stdin: str = "") -> Ended:
        """Runs a tool against the broker; an exit status other than 0 is a refusal."""
        ended = self.server.run(
            script, *arguments, "--bootstrap-server", self.bootstrap, stdin=stdin
        )
        if ended.status:
            raise _refused(ended)
        return ended

    def produce(
        self, topic: str, messages: list[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        reader = {"parse.key": "true", "parse.headers": "true", "null.marker": _NULL}
        client = {"enable.idempotence": str(idempotent).lower(), "max.request.size": "4000000"}
        arguments = [w for k, v in reader.items() for w in ("--reader-property", f"{k}={v}")]
        arguments += [w for k, v in client.items() for w in ("--command-property", f"{k}={v}")]
        arguments += ["--compression-codec", codec, "--request-required-acks", "all"]
        lines = "".join(map(_line, messages))
        self.run("kafka-console-producer", "--topic", topic, *arguments, stdin=lines)

    def consume(self, topic: str, start: Start, count: int) -> list[Received]:
        where = ["--partition", "0"]
        if start.kind == "start":
            where += ["--from-beginning"]
        elif start.kind == "time":
            where = ["--group", self._group_at_time(topic, start.at)]
        else:
            where += ["--offset", "latest" if start.kind == "end" else str(start.at)]
        shown = ["timestamp", "partition", "offset", "headers", "key"]
        form = [f"print.{field}=true" for field in shown] + [f"null.literal={_NULL}"]
        arguments = [w for f in form for w in ("--formatter-property", f)]
        limit = ["--max-messages", str(count), "--timeout-ms", "180000"]
        ended = self.run("kafka-console-consumer", "--topic", topic, *where, *arguments, *limit)
        lines = ended.stdout.splitlines()
        if len(lines) < count:
            raise _refused(ended)
        return [_received(line) for line in lines]

    def _group_at_time(self, topic: str, at: int) -> str:
        """The tools know time only as a place to reset a group to."""
        group = f"at-{at}-{topic}"
        reset = ["--topic", topic, "--to-datetime", date_text(at), "--execute"]
        self._groups("--reset-offsets", group, *reset)
        return group

    def _groups(self, action: str, group: str, *arguments: str) -> Ended:
        ended = self.run("kafka-consumer-groups", action, "--group", group, *arguments)
        if "Error:" in ended.text:
            raise _refused(ended)
        return ended

    def member(
        self, group: str, topic: str, *, session_ms: int, instance: str | None = None
    ) -> Member:
        arguments = ["--group-id", group, "--topic", topic, "--session-timeout", str(session_ms)]
        arguments += ["--bootstrap-server", self.bootstrap, "--reset-policy", "earliest"]
        if instance:
            arguments += ["--group-instance-id", instance]
        self.server.calls["kafka-verifiable-consumer"] += 1
        command = tool("kafka-verifiable-consumer", *arguments)
        return Member(command, parse_event, name="kafka-verifiable-consumer")

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        with _file("".join(f"{topic},{p},{at}\n" for p, at in offsets.items())) as file:
            self._groups("--reset-offsets", group, "--from-file", file, "--execute")

    def committed(self, group: str, topic: str) -> dict[int, int]:
        rows = _rows(self._groups("--describe", group, "--offsets").stdout)
        return {
            int(row["PARTITION"]): int(row["CURRENT-OFFSET"])
            for row in rows
            if row["TOPIC"] == topic and row["CURRENT-OFFSET"] != "-"
        }

    def groups(self) -> set[str]:
        rows = _rows(self.run("kafka-groups", "--list").stdout)
        listed = set(self.run("kafka-consumer-groups", "--list").stdout.split())
        return listed & {row["GROUP"] for row in rows}

    def describe_group(self, group: str) -> GroupView:
        found = self._groups("--describe", group, "--state").stdout.split("\n")
        state, members = next(line.split()[-2:] for line in found if line.startswith(group))
        return GroupView(state, int(members))

    def delete_group(self, group: str) -> None:
        self._groups("--delete", group)

    def create_topic(
        self, topic: str, partitions: int, configs: dict[str, str], replicas: int = 1
    ) -> None:
        options = [w for k, v in configs.items() for w in ("--config", f"{k}={v}")]
        create = ["--create", "--topic", topic, "--partitions", str(partitions)]
        self.run("kafka-topics", *create, "--replication-factor", str(replicas), *options)

    def topics(self) -> set[str]:
        return set(self.run("kafka-topics", "--list").stdout.split())

    def describe_topic(self, topic: str) -> dict[int, PartitionView]:
        told = self.run("kafka-topics", "--describe", "--topic", topic).stdout
        line = re.compile(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: (\S+)\s+Isr: (\S+)")
        return {
            int(p): PartitionView(int(leader), _ids(replicas), _ids(isr))
            for p, leader, replicas, isr in line.findall(told)
        }

    def grow_topic(self, topic: str, partitions: int) -> None:
        self.run("kafka-topics", "--alter", "--topic", topic, "--partitions", str(partitions))

    def delete_topic(self, topic: str) -> None:
        self.run("kafka-topics", "--delete", "--topic", topic)

    def offsets(self, topic: str, start: Start) -> dict[int, int]:
        at = {"start": -2, "end": -1, "time": start.at, "latest-time": -3}[start.kind]
        told = self.run("kafka-get-offsets", "--topic", topic, "--time", str(at)).stdout.split()
        found = [row.rsplit(":", 2) for row in told]
        return {int(p): int(offset) for name, p, offset in found if name == topic and offset}

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        rows = [{"topic": topic, "partition": p, "offset": at} for p, at in before.items()]
        with json_file({"version": 1, "partitions": rows}) as file:
            ended = self.run("kafka-delete-records", "--offset-json-file", file)
        found = re.findall(r"partition: \S+-(\d+)\s+low_watermark: (-?\d+)", ended.stdout)
        if len(found) < len(before):
            raise _refused(ended)
        return {int(p): int(low) for p, low in found}

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        return self._configs("topics", topic)

    def broker_configs(self) -> dict[str, str | None]:
        told = self.run("kafka-cluster", "list-endpoints").stdout
        return self._configs("brokers", _rows(told)[0]["ID"])

    def _configs(self, kind: str, name: str) -> dict[str, str | None]:
        entity = ["--entity-type", kind, "--entity-name", name]
        told = self.run("kafka-configs", "--describe", "--all", *entity).stdout
        return dict(_CONFIG.findall(told))

    def set_topic_config(self, topic: str, key: str, value: str | None) -> None:
        change = ["--delete-config", key] if value is None else ["--add-config", f"{key}={value}"]
        entity = ["--entity-type", "topics", "--entity-name", topic]
        self.run("kafka-configs", "--alter", *entity, *change)

    def writer(self, topic: str) -> Writer:
        load = ["--topic", topic, "--throughput", "50", "--command-config", str(IDEMPOTENT)]
        self.server.calls["kafka-verifiable-producer"] += 1
        command = tool("kafka-verifiable-producer", "--bootstrap-server", self.bootstrap, *load)
        return Writer(command, parse_event, name="kafka-verifiable-producer")

    def reassign(self, topic: str, replicas: dict[int, list[int] | None]) -> None:
        """Without a cancellation: the tool asks which moves there are, and cancels those."""
        if None in replicas.values():
            raise NotOffered("kafka-reassign-partitions cancels only what is being moved")
        with plan({(topic, p): brokers or [] for p, brokers in replicas.items()}) as file:
            move = ["--reassignment-json-file", file, "--execute", "--additional"]
            self.run("kafka-reassign-partitions", *move)

    def reassigning(self, topic: str) -> set[int]:
        told = self.run("kafka-reassign-partitions", "--list").stdout
        return {int(p) for p in re.findall(rf"^{topic}-(\d+): ", told, re.MULTILINE)}

    def elect(self, topic: str, partition: int) -> None:
        election = ["--election-type", "preferred", "--topic", topic]
        told = self.run("kafka-leader-election", *election, "--partition", str(partition)).stdout
        if f"Successfully completed leader election (PREFERRED) for partitions {topic}" not in told:
            raise Refused("ELECTION_NOT_NEEDED" if "already elected" in told else told)


def date_text(at: int) -> str:
    """Milliseconds as kafka-consumer-groups reads a date."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _refused(ended: Ended) -> Exception:
    named = [name for text, name in _EXCEPTIONS.items() if text in ended.text]
    return Refused(named[0] if named else ended.text)


@contextmanager
def plan(replicas: dict[tuple[str, int], list[int]]) -> Iterator[str]:
    """A file for kafka-reassign-partitions."""
    rows = [{"topic": t, "partition": p, "replicas": ids} for (t, p), ids in replicas.items()]
    with json_file({"version": 1, "partitions": rows}) as file:
        yield file


@contextmanager
def json_file(content: dict[str, Any]) -> Iterator[str]:
    """A file that a tool reads."""
    with _file(json.dumps(content)) as file:
        yield file


@contextmanager
def _file(content: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(content)
        file.flush()
        yield file.name


def _rows(table: str) -> list[dict[str, str]]:
    """The rows of a table with one line of titles; cells have no spaces in the columns we read."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    titles = next(i for i, words in enumerate(lines) if words[0].isupper() and len(words) > 2)
    return [dict(zip(lines[titles], words, strict=False)) for words in lines[titles + 1 :]]


def _ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _line(m: Message) -> str:
    if m.timestamp is not None:
        raise NotOffered("the console producer cannot set a timestamp")
    headers = ",".join(f"{name}:{_shown(value)}" for name, value in m.headers)
    return f"{headers or _NULL}\t{_shown(m.key)}\t{_shown(m.value)}\n"


def _shown(raw: bytes | None) -> str:
    return _NULL if raw is None else raw.decode()


def _read(text: str) -> bytes | None:
    return None if text == _NULL else text.encode()


def _received(line: str) -> Received:
    time, partition, offset, headers, key, value = line.split("\t")
    pairs = [] if headers == "NO_HEADERS" else [h.split(":", 1) for h in headers.split(",")]
    return Received(
        _read(value),
        _read(key),
        tuple((name, _read(text)) for name, text in pairs),
        int(time.split(":")[1]),
        int(partition.split(":")[1]),
        int(offset.split(":")[1]),
    )


def parse_event(line: str) -> Event:
    """The verifiable tools tell each step as JSON."""
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    if event.get("name") == "partitions_assigned":
        return Assigned(frozenset(p["partition"] for p in event["partitions"]))
    if event.get("name") == "partitions_revoked":
        return Assigned(frozenset())
    if event.get("name") == "producer_send_success":
        return Acknowledged([int(event["value"])])
    if event.get("name") == "producer_send_error":
        return Failed(event["message"])
    if event.get("name") == "records_consumed":
        return Delivered(
            [
                (row["partition"], offset)
                for row in event["partitions"]
                for offset in range(row["minOffset"], row["maxOffset"] + 1)
            ]
        )
    return None
