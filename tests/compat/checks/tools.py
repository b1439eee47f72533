"""Each of Kafka's command-line tools once, called as its script is."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from tools.java import run_tool

from tests.compat.broker_under_test import BASE_TIME, BrokerUnderTest, eventually
from tests.compat.checks import refused
from tests.compat.client import BEGINNING, END, Message, NotOffered
from tests.compat.clients.java_tools import JavaTools, date_text
from tests.compat.member import wait_until
from tests.compat.raw import stored_batches
from tests.compat.transactions.confluent import Transactional

ToolCheck = Callable[[JavaTools, BrokerUnderTest], None]
TOOL_CHECKS: dict[str, ToolCheck] = {}


def tool_check(function: ToolCheck) -> ToolCheck:
    """Enters a function under the script it is named after: kafka_topics checks kafka-topics."""
    TOOL_CHECKS[function.__name__.replace("_", "-")] = function
    return function


def _log_dir(broker: BrokerUnderTest) -> Path:
    if broker.log_dir is None:
        raise NotOffered("the log folder of the broker is not known (HEADWATER_COMPAT_LOG_DIR)")
    return broker.log_dir


def _events(text: str) -> list[dict[str, object]]:
    """What the verifiable tools print: one JSON object a line."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@tool_check
def kafka_topics(java: JavaTools, broker: BrokerUnderTest) -> None:
    name = broker.fresh("by-tool")
    java.create_topic(name, 3, {"cleanup.policy": "compact", "retention.ms": "3600000"})
    told = java.run("kafka-topics", "--describe", "--topic", name).stdout
    assert "PartitionCount: 3" in told
    assert "ReplicationFactor: 1" in told
    assert "cleanup.policy=compact" in told
    assert re.search(r"TopicId: [\w-]{22}\b", told), "a topic has an id"
    for flag in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert not java.run("kafka-topics", "--describe", flag, "--topic", name).stdout.strip()
    java.grow_topic(name, 5)
    eventually(lambda: len(java.describe_topic(name)) == 5)
    java.run("kafka-topics", "--delete", "--topic", f"{name[:-1]}.*")
    eventually(lambda: name not in java.topics())
    java.run("kafka-topics", "--delete", "--if-exists", "--topic", name)
    java.run("kafka-topics", "--create", "--if-not-exists", "--topic", broker.topic())


@tool_check
def kafka_configs(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    java.set_topic_config(topic, "max.message.bytes", "2000000")
    eventually(lambda: java.topic_configs(topic)["max.message.bytes"] == "2000000")
    with refused(java, "INVALID_CONFIG"):
        java.set_topic_config(topic, "max.mesage.bytes", "2000000")
    leader = str(next(iter(broker.hand.describe_topic(topic).values())).leader)
    for entity in (["--entity-name", leader], ["--entity-default"]):
        where = ["--entity-type", "brokers", *entity]
        java.run("kafka-configs", "--alter", *where, "--add-config", "log.cleaner.threads=2")
        eventually(
            lambda where=where: (
                "log.cleaner.threads=2"
                in java.run(  # type: ignore[misc]
                    "kafka-configs", "--describe", *where
                ).stdout
            )
        )
        java.run("kafka-configs", "--alter", *where, "--delete-config", "log.cleaner.threads")
    every = ["kafka-configs", "--describe", "--entity-type", "topics"]
    titled = f"Dynamic configs for topic {topic} are:"
    eventually(lambda: titled in java.run(*every).stdout)  # refused if one is deleted meanwhile
    with refused(java, "INVALID_REQUEST"):  # a read-only key
        where = ["--entity-type", "brokers", "--entity-name", leader]
        java.run("kafka-configs", "--alter", *where, "--add-config", "log.dirs=/elsewhere")
    _quotas(java, broker.fresh("who"))
    _scram_users(java, broker.fresh("user"))


def _scram_users(java: JavaTools, name: str) -> None:
    """Set, show and delete the password of a user for each mechanism."""
    alter = ["kafka-configs", "--alter", "--entity-type", "users", "--entity-name", name]
    show = ["kafka-configs", "--describe", "--entity-type", "users", "--entity-name", name]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        java.run(*alter, "--add-config", f"{mechanism}=[iterations=8192,password=a-secret]")
        eventually(lambda one=mechanism: f"{one}=iterations=8192" in java.run(*show).stdout)  # type: ignore[misc]
        java.run(*alter, "--delete-config", mechanism)
        eventually(lambda one=mechanism: one not in java.run(*show).stdout)  # type: ignore[misc]


def _quotas(java: JavaTools, name: str) -> None:
    """Set, show and remove the quotas of each kind of entity."""
    user = ["--entity-type", "users", "--entity-name", name]
    client = ["--entity-type", "clients", "--entity-name", name]
    for where, quota in (
        (user, "producer_byte_rate=1000000"),
        (client, "request_percentage=99.5"),
        ([*user, *client], "consumer_byte_rate=2000000"),
        ([*user, "--entity-type", "clients", "--entity-default"], "controller_mutation_rate=9.5"),
        (["--entity-type", "ips", "--entity-name", "10.9.8.7"], "connection_creation_rate=5"),
    ):
        key, _, value = quota.partition("=")

        def shown(where: list[str] = where) -> str:
            return java.run("kafka-configs", "--describe", *where).stdout

        java.run("kafka-configs", "--alter", *where, "--add-config", quota)
        eventually(lambda: f"{key}={float(value)}" in shown())  # noqa: B023
        java.run("kafka-configs", "--alter", *where, "--delete-config", key)
        eventually(lambda: key not in shown())  # noqa: B023
    with refused(java, "INVALID_REQUEST"):
        java.run("kafka-configs", "--alter", *user, "--add-config", "producer_byte_rate=-5")


@tool_check
def kafka_consumer_groups(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic, group = broker.topic(2), broker.fresh("group")
    broker.fill(topic, 10, partitions=2)
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--execute"]
    for where, expected in (
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--shift-by", "-3"], 7),
        (["--to-offset", "4"], 4),
        (["--to-datetime", date_text(BASE_TIME + 2500)], 3),
    ):
        java.run("kafka-consumer-groups", *reset, *where)
        assert java.committed(group, topic) == {0: expected, 1: expected}, where
    with broker.hand.member(group, topic, session_ms=30000) as member:
        wait_until("it reads on", lambda: len(member.records) == 14, member)
        told = java.run(
            "kafka-consumer-groups", "--describe", "--group", group, "--members", "--verbose"
        ).stdout
        assert re.search(rf"{topic}[:(]0,1", told), told
        member.leave()
    java.run("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    assert java.committed(group, topic) == {0: 10}
    java.delete_group(group)
    assert group not in java.groups()


@tool_check
def kafka_groups(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic, group = broker.topic(), broker.fresh("group")
    broker.hand.commit(group, topic, {0: 0})
    told = java.run("kafka-groups", "--list").stdout
    assert re.search(rf"^{group}\s+Classic\b", told, re.MULTILINE), told


@tool_check
def kafka_get_offsets(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic = broker.topic(2)
    broker.fill(topic, 10, partitions=2)
    told = java.run("kafka-get-offsets", "--topic-partitions", f"{topic}:1").stdout
    assert told.split() == [f"{topic}:1:10"]
    # A pattern: every topic there is includes those that the cells beside this one delete.
    told = java.run(
        "kafka-get-offsets", "--exclude-internal-topics", "--topic", f"{topic}.*"
    ).stdout
    assert told.split() == [f"{topic}:0:10", f"{topic}:1:10"]


@tool_check
def kafka_delete_records(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic = broker.topic(2)
    broker.fill(topic, 10, partitions=2)
    assert java.delete_records(topic, {0: 3, 1: 7}) == {0: 3, 1: 7}
    assert java.offsets(topic, BEGINNING) == {0: 3, 1: 7}


@tool_check
def kafka_log_dirs(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic = broker.topic(2)
    broker.fill(topic, 100)
    told = java.run("kafka-log-dirs", "--describe", "--topic-list", topic).stdout
    (answer,) = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    (directory,) = answer["brokers"][0]["logDirs"]
    assert directory["error"] is None
    sizes = {row["partition"]: row["size"] for row in directory["partitions"]}
    assert sorted(sizes) == [f"{topic}-0", f"{topic}-1"]
    assert sizes[f"{topic}-0"] > sizes[f"{topic}-1"] == 0
    assert all(row["offsetLag"] == 0 for row in directory["partitions"])


@tool_check
def kafka_broker_api_versions(java: JavaTools, broker: BrokerUnderTest) -> None:
    told = java.run("kafka-broker-api-versions").stdout
    usable = re.findall(r"(\w+)\((\d+)\): .*\[usable: (\d+)\]", told)
    served = {int(key) for _, key, _ in usable}
    assert served >= {*range(4), *range(8, 17), *range(18, 24), 32, 33, 35, 37, 42, 44, 47, 60, 61}
    if not broker.is_apache:
        assert served - {17, 36} == {
            *range(4), *range(8, 17), *range(18, 36), *range(37, 52), 60, 61, 65, 66, 74, 75,
        }, "what is advertised is what is served"  # fmt: skip


@tool_check
def kafka_cluster(java: JavaTools, broker: BrokerUnderTest) -> None:
    told = java.run("kafka-cluster", "cluster-id").stdout
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", told)
    port = broker.bootstrap.rsplit(":", 1)[1]
    endpoints = java.run("kafka-cluster", "list-endpoints").stdout
    assert re.search(rf"^\d+\s+\S+\s+{port}\b", endpoints, re.MULTILINE), endpoints


@tool_check
def kafka_console_producer(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    java.run("kafka-console-producer", "--topic", topic, "--sync", stdin="one\ntwo\nthree\n")
    assert [r.value for r in broker.hand.consume(topic, BEGINNING, 3)] == [b"one", b"two", b"three"]


@tool_check
def kafka_console_consumer(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic, group = broker.topic(2), broker.fresh("group")
    broker.fill(topic, 10, partitions=2)
    limits = ["--max-messages", "15", "--timeout-ms", "180000"]
    read = ["--topic", topic, "--group", group, "--from-beginning", *limits]
    told = java.run("kafka-console-consumer", *read).stdout.split()
    assert len(told) == len(set(told)) == 15
    assert sum(broker.hand.committed(group, topic).values()) == 15
    committed = ["--isolation-level", "read_committed", "--include", f"{topic[:-1]}.*"]
    read = [*committed, "--from-beginning", "--max-messages", "20", "--timeout-ms", "180000"]
    assert len(java.run("kafka-console-consumer", *read).stdout.split()) == 20


@tool_check
def kafka_producer_perf_test(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    load = ["--num-records", "20000", "--record-size", "100", "--throughput", "-1"]
    ended = java.server.run(
        "kafka-producer-perf-test", "--topic", topic, *load,
        "--command-property", f"bootstrap.servers={java.bootstrap}", "acks=all",
    )  # fmt: skip
    assert ended.status == 0, ended.text
    assert "20000 records sent" in ended.stdout
    assert broker.end(topic) == 20000


@tool_check
def kafka_consumer_perf_test(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    broker.hand.produce(topic, [Message(b"x" * 100)] * 20000)
    load = ["--topic", topic, "--num-records", "20000", "--timeout", "180000"]
    titles, figures = java.run("kafka-consumer-perf-test", *load).stdout.splitlines()[:2]
    row = dict(zip(titles.split(", "), figures.split(", "), strict=True))
    assert int(row.get("data.consumed.in.nMsg", row.get("nMsg", 0))) == 20000, row


@tool_check
def kafka_verifiable_producer(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    load = ["--topic", topic, "--max-messages", "500", "--acks", "-1", "--value-prefix", "7"]
    ended = run_tool("kafka-verifiable-producer", *load, "--bootstrap-server", java.bootstrap)
    events = _events(ended.stdout)  # its last sends are flushed by a shutdown hook of the JVM
    acked = [event for event in events if event["name"] == "producer_send_success"]
    assert len(acked) == 500
    assert broker.end(topic) == 500
    assert {event["topic"] for event in acked} == {topic}


@tool_check
def kafka_verifiable_consumer(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic, group = broker.topic(2), broker.fresh("group")
    broker.fill(topic, 100, partitions=2)
    load = ["--topic", topic, "--group-id", group, "--max-messages", "200"]
    ended = java.run("kafka-verifiable-consumer", *load, "--reset-policy", "earliest")
    read = [
        event["count"] for event in _events(ended.stdout) if event["name"] == "records_consumed"
    ]
    assert sum(map(int, map(str, read))) == 200
    assert broker.hand.committed(group, topic) == broker.hand.offsets(topic, END)


@tool_check
def verifiable_tools_of_kafka_3_9(java: JavaTools, broker: BrokerUnderTest) -> None:
    """The clients that Spark 4 brings along: older versions of every request."""
    topic, group = broker.topic(), broker.fresh("group")
    to = {"jars": "kafka-tools-3.9.2"}
    load = ["--bootstrap-server", java.bootstrap, "--topic", topic, "--max-messages", "200"]
    sent = _events(run_tool("kafka-verifiable-producer", *load, **to).stdout)
    assert sum(event["name"] == "producer_send_success" for event in sent) == 200
    load += ["--group-id", group, "--reset-policy", "earliest"]
    read = _events(run_tool("kafka-verifiable-consumer", *load, **to).stdout)
    assert sum(int(str(e["count"])) for e in read if e["name"] == "records_consumed") == 200
    assert broker.hand.committed(group, topic) == broker.hand.offsets(topic, END)


@tool_check
def kafka_transactions(java: JavaTools, broker: BrokerUnderTest) -> None:
    """A transactional producer of Java, which bumps its epoch with each end, and its descriptions."""
    topic, name = broker.topic(), broker.fresh("id")
    load = ["--num-records", "2000", "--record-size", "10", "--throughput", "-1"]
    ended = java.server.run(
        "kafka-producer-perf-test", "--topic", topic, *load,
        "--transactional-id", name, "--transaction-duration-ms", "10",
        "--command-property", f"bootstrap.servers={java.bootstrap}",
    )  # fmt: skip
    assert ended.status == 0, ended.text
    assert "2000 records sent" in ended.text

    def told(*command: str) -> dict[str, str]:
        titles, row = (line.split() for line in _transactions(java, *command)[:2])
        return dict(zip(titles, row, strict=False))

    eventually(
        lambda: told("describe", "--transactional-id", name)["TransactionState"] == "CompleteCommit"
    )
    listed = told("list", "--transactional-id-pattern", name)
    assert (listed["TransactionalId"], listed["TransactionState"]) == (name, "CompleteCommit")
    producer = told("describe-producers", "--topic", topic, "--partition", "0")
    *_, marker = stored_batches(broker.bootstrap, topic)
    assert producer["ProducerId"] == listed["ProducerId"] == str(marker.producer_id)
    assert producer["CurrentTransactionStartOffset"] == "None"
    hanging = ["find-hanging", "--topic", topic, "--max-transaction-timeout", "0"]
    assert len(_transactions(java, *hanging)) == 1, "only the titles"

    _abort_by_hand(java, broker, told)


def _transactions(java: JavaTools, *command: str) -> list[str]:
    ended = java.server.run("kafka-transactions", "--bootstrap-server", java.bootstrap, *command)
    assert ended.status == 0, ended.text
    return ended.stdout.splitlines()


def _abort_by_hand(
    java: JavaTools, broker: BrokerUnderTest, told: Callable[..., dict[str, str]]
) -> None:
    """`abort` ends a transaction in one partition, and `forceTerminateTransaction` all of it."""
    topic, name = broker.topic(), broker.fresh("open")
    producer = Transactional(broker.bootstrap, name, 600_000)
    producer.begin()
    producer.send(topic, [(0, b"open")])
    producer.flush()
    where = ["--topic", topic, "--partition", "0"]
    described = told("describe-producers", *where)
    assert described["CurrentTransactionStartOffset"] == "0"
    _transactions(java, "abort", *where, "--start-offset", "0")
    assert told("describe-producers", *where)["CurrentTransactionStartOffset"] == "None"
    assert len(stored_batches(broker.bootstrap, topic)) == 2, "the batch and a marker"
    before = told("describe", "--transactional-id", name)
    assert before["TransactionState"] == "Ongoing", "its coordinator has not heard of it"
    _transactions(java, "forceTerminateTransaction", "--transactionalId", name)
    after = told("describe", "--transactional-id", name)
    assert after["TransactionState"] == "Empty", "it was aborted, and another producer begins"
    assert int(after["ProducerEpoch"]) > int(before["ProducerEpoch"]), "the producer is fenced"


@tool_check
def kafka_e2e_latency(java: JavaTools, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    load = ["--topic", topic, "--num-records", "100", "--producer-acks", "all"]
    told = java.run("kafka-e2e-latency", *load, "--record-size", "100").stdout
    assert re.search(r"Percentiles: 50th = \d+, 99th = \d+", told), told


@tool_check
def kafka_dump_log(java: JavaTools, broker: BrokerUnderTest) -> None:
    log_dir = _log_dir(broker)
    topic = broker.topic()
    messages = [Message(f"value {n}".encode(), b"key", (("h", b"v"),)) for n in range(10)]
    broker.hand.produce(topic, messages, codec="zstd", idempotent=True)
    segment = next(log_dir.rglob(f"{topic}-0/{0:020}.log"))
    ended = java.server.run("kafka-dump-log", "--files", str(segment), "--print-data-log")
    assert ended.status == 0, ended.text
    assert "compresscodec: zstd" in ended.stdout
    assert "isvalid: true" in ended.stdout
    assert ended.stdout.count("headerKeys: [h] key: key payload: value") == 10


@tool_check
def kafka_dump_log_of_indexes(java: JavaTools, broker: BrokerUnderTest) -> None:
    """Of a segment that was rolled: the indexes of the active one are longer than what is in them."""
    log_dir = _log_dir(broker)
    topic = broker.topic(segment_bytes="1048576")
    for _ in range(80):
        broker.hand.produce(topic, [Message(b"x" * 1000)] * 16)
    first = next(log_dir.rglob(f"{topic}-0/{0:020}.log"))
    assert first.stat().st_size <= 1048576
    eventually(first.with_suffix(".timeindex").exists)  # written after the roll, not before it
    indexes = ",".join(str(first.with_suffix(kind)) for kind in (".index", ".timeindex"))
    ended = java.server.run("kafka-dump-log", "--files", indexes, "--verify-index-only")
    assert ended.status == 0, ended.text
    assert "Mismatches" not in ended.text, ended.text
    assert "not found" not in ended.text, ended.text
