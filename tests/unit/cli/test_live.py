"""The commands against a broker that `headwater up` started, as a person would use them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headwater.cli.app import command
from headwater.cli.cluster import Cluster
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse

UP = [sys.executable, "-m", "headwater", "up", "--port", "0", "--log-level", "warning"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [*UP, "--json", "--data-dir", str(data)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    ready = process.stdout.readline()
    yield json.loads(ready)["address"]
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 0, errors.decode()


def run(broker: str, *words: str) -> Result:
    environment = {**os.environ, "HEADWATER_BOOTSTRAP": broker}
    return CliRunner(env=environment).invoke(command, words)


def shown(broker: str, *words: str) -> object:
    result = run(broker, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def produce(broker: str, topic: str, *values: bytes) -> None:
    async def work() -> None:
        async with Cluster(broker) as cluster:
            batch = build_batch([Record(value=value) for value in values], now=1_700_000_000_000)
            partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
            topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])]
            request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)
            answer = await cluster.ask(request, ProduceResponse, newest=11)
            assert answer.responses[0].partition_responses[0].error_code == 0

    asyncio.run(work())


def commit(broker: str, group: str, topic: str, offset: int) -> None:
    async def work() -> int:
        async with Cluster(broker) as cluster:
            partition = OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=offset)
            row = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])
            request = OffsetCommitRequest(group_id=group, topics=[row])
            answer = await cluster.ask_coordinator(group, request, OffsetCommitResponse, newest=8)
            return answer.topics[0].partitions[0].error_code

    assert asyncio.run(work()) == 0


def test_a_topic_lives_from_create_to_delete(broker: str) -> None:
    created = run(broker, "topics", "create", "orders", "-p", "2", "-c", "retention.ms=60000")
    assert created.stdout == "orders: created\n"
    assert "TOPIC_ALREADY_EXISTS" in run(broker, "topics", "create", "orders").stderr
    assert run(broker, "topics", "create", "orders", "--if-not-exists").exit_code == 0
    assert "orders" in shown(broker, "topics", "list")  # type: ignore[operator]

    [topic] = shown(broker, "topics", "describe", "orders")  # type: ignore[misc]
    assert topic["configs"] == {"retention.ms": "60000"}
    assert [row["leader"] for row in topic["partitions"]] == [1, 1]
    assert "PARTITION  LEADER" in run(broker, "topics", "describe", "orders").stdout

    altered = ["-p", "3", "-u", "retention.ms", "-c", "cleanup.policy+=compact"]
    assert run(broker, "topics", "alter", "orders", *altered).exit_code == 0
    [topic] = shown(broker, "topics", "describe", "orders")  # type: ignore[misc]
    assert topic["configs"] == {"cleanup.policy": "delete,compact"}
    assert len(topic["partitions"]) == 3
    shrunk = run(broker, "topics", "alter", "orders", "-p", "1")
    assert (shrunk.exit_code, shrunk.stderr.count("\n")) == (1, 1)

    assert run(broker, "topics", "delete", "orders").stdout == "orders: deleted\n"
    assert run(broker, "topics", "delete", "orders", "--if-exists").exit_code == 0
    assert run(broker, "topics", "delete", "orders").exit_code == 1


def test_what_could_be_done_is_done_and_what_could_not_is_told(broker: str) -> None:
    run(broker, "topics", "create", "first")
    result = run(broker, "topics", "create", "first", "second", "third/", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == [{"topic": "second", "created": True}]
    assert "first: " in result.stderr
    assert "third/: " in result.stderr


def test_configs_show_where_they_come_from(broker: str) -> None:
    run(broker, "topics", "create", "logs")
    run(broker, "configs", "set", "--cluster-default", "message.max.bytes=2000000")
    run(broker, "configs", "set", "--broker", "1", "message.max.bytes=3000000")
    [config] = shown(broker, "configs", "describe", "--topic", "logs", "max.message.bytes")  # type: ignore[misc]
    assert (config["value"], config["source"]) == ("3000000", "broker")
    assert [row["source"] for row in config["synonyms"]] == ["broker", "cluster", "default"]
    assert config["doc"]
    text = run(broker, "configs", "describe", "--broker", "1", "--all").stdout
    assert "message.max.bytes" in text
    assert len(text.splitlines()) > 100

    run(broker, "configs", "unset", "--broker", "1", "message.max.bytes")
    run(broker, "configs", "unset", "--cluster-default", "message.max.bytes")
    [config] = shown(broker, "configs", "describe", "--topic", "logs", "max.message.bytes")  # type: ignore[misc]
    assert (config["value"], config["source"]) == ("1048588", "default")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--topic", "nowhere", "retention.ms=1"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("--broker", "1", "node.id=7"), "cannot change while the broker runs"),
        (("--broker", "9", "message.max.bytes=7"), "broker 9 is not in the cluster"),
        (("--cluster-default", "mesage.max.bytes=7"), "did you mean message.max.bytes?"),
    ],
)
def test_a_config_that_cannot_be_set_is_told_in_one_line(
    broker: str, words: tuple[str, ...], reason: str
) -> None:
    result = run(broker, "configs", "set", *words)
    assert result.exit_code == 1
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_group_is_shown_with_its_lag_and_deleted(broker: str) -> None:
    run(broker, "topics", "create", "clicks")
    produce(broker, "clicks", b"a", b"b", b"c")
    commit(broker, "readers", "clicks", 1)
    assert shown(broker, "groups", "list") == [
        {"group": "readers", "state": "Empty", "type": "classic", "protocol": ""}
    ]
    [group] = shown(broker, "groups", "describe", "readers")  # type: ignore[misc]
    [row] = group["partitions"]
    assert (row["topic"], row["committed"], row["end"], row["lag"]) == ("clicks", 1, 3, 2)
    assert run(broker, "groups", "delete", "readers").stdout == "readers: deleted\n"
    assert "GROUP_ID_NOT_FOUND" in run(broker, "groups", "describe", "readers").stderr


def test_what_was_produced_can_be_dumped(broker: str, data: Path) -> None:
    run(broker, "topics", "create", "dumped")
    produce(broker, "dumped", b"one", b"two")
    result = run(broker, "log", "dump", str(data / "dumped-0" / f"{0:020}.log"))
    assert 'value "two"' in result.stdout
    assert result.exit_code == 0


def test_a_data_folder_in_use_is_refused_in_one_line(broker: str, data: Path) -> None:
    second = subprocess.run(
        [*UP, "--data-dir", str(data)], capture_output=True, text=True, timeout=10, check=False
    )
    assert second.returncode == 1
    assert second.stderr.startswith("Error: ")
    assert second.stderr.count("\n") == 1
