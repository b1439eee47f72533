"""Kafka's command-line tools for clusters, called as their scripts are."""

import json
import re
from collections.abc import Callable

from tests.compat.broker_under_test import eventually
from tests.compat.client import BEGINNING, Message
from tests.compat.clients.java_tools import JavaTools, json_file, plan
from tests.compat.three_brokers import PATIENCE_S, ThreeBrokers

ClusterToolCheck = Callable[[JavaTools, ThreeBrokers], None]
CLUSTER_TOOL_CHECKS: dict[str, ClusterToolCheck] = {}


def cluster_tool_check(function: ClusterToolCheck) -> ClusterToolCheck:
    """Enters a function under the script it is named after: kafka_topics checks kafka-topics."""
    CLUSTER_TOOL_CHECKS[function.__name__.replace("_", "-")] = function
    return function


@cluster_tool_check
def kafka_topics(java: JavaTools, brokers: ThreeBrokers) -> None:
    name = brokers.fresh("assigned")
    java.run("kafka-topics", "--create", "--topic", name, "--replica-assignment", "1:2,2:3,3:1")
    brokers.wait_until_in_sync(name)
    told = java.run("kafka-topics", "--describe", "--topic", name).stdout
    assert "PartitionCount: 3\tReplicationFactor: 2" in told
    found = java.describe_topic(name)
    assert {p: view.replicas for p, view in found.items()} == {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    grown = ["--alter", "--topic", name, "--partitions", "4", "--replica-assignment"]
    java.run("kafka-topics", *grown, "1:2,2:3,3:1,2:1")
    eventually(lambda: java.describe_topic(name)[3].replicas == (2, 1), PATIENCE_S)


@cluster_tool_check
def kafka_reassign_partitions(java: JavaTools, brokers: ThreeBrokers) -> None:
    """A move is planned, begun with a throttle, listed, cancelled, and done without one."""
    topic = brokers.topic(1, replicas=2, max_message_bytes="2000000")
    brokers.hand.produce(topic, [Message(bytes([n]) * 1_000_000) for n in range(12)])
    former = list(brokers.hand.describe_topic(topic)[0].replicas)
    (new,) = {1, 2, 3} - set(former)

    def reassign(*arguments: str) -> str:
        return java.run("kafka-reassign-partitions", *arguments).stdout

    with json_file({"version": 1, "topics": [{"topic": topic}]}) as topics:
        move = ["--topics-to-move-json-file", topics, "--broker-list", "1,2,3", "--generate"]
        now, proposed = map(json.loads, re.findall(r"^\{.*\}$", reassign(*move), re.MULTILINE))
    assert [row["replicas"] for row in now["partitions"]] == [former]
    assert len(proposed["partitions"][0]["replicas"]) == 2
    with plan({(topic, 0): [former[1], new]}) as file:
        moving = ["--reassignment-json-file", file]
        told = reassign(*moving, "--execute", "--additional", "--throttle", "1000")
        assert f"Successfully started partition reassignment for {topic}-0" in told
        assert f"{topic}-0: replicas: " in reassign("--list")
        described = java.run("kafka-topics", "--describe", "--topic", topic).stdout
        assert f"Adding Replicas: {new}\tRemoving Replicas: {former[0]}" in described
        assert f"{topic}-0 is still in progress" in reassign(*moving, "--verify")
        told = reassign(*moving, "--cancel")
        assert f"Successfully cancelled partition reassignment for: {topic}-0" in told
        eventually(lambda: set(java.describe_topic(topic)[0].replicas) == set(former), PATIENCE_S)
        reassign(*moving, "--execute", "--additional")
        eventually(lambda: f"{topic}-0 is completed" in reassign(*moving, "--verify"), PATIENCE_S)
        assert "None of the specified partition reassign" in reassign(*moving, "--cancel")
    assert java.describe_topic(topic)[0].replicas == (former[1], new)
    assert len(brokers.hand.consume(topic, BEGINNING, 12)) == 12


@cluster_tool_check
def kafka_leader_election(java: JavaTools, brokers: ThreeBrokers) -> None:
    topic = brokers.topic()
    preferred = brokers.prefer_another_leader(topic)
    named = {"topic": topic, "partition": 0}
    with json_file({"partitions": [named]}) as file:
        elect = ["--election-type", "preferred", "--path-to-json-file", file]
        told = java.run("kafka-leader-election", *elect).stdout
        assert (
            f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in told
        )
        eventually(lambda: java.describe_topic(topic)[0].leader == preferred, PATIENCE_S)
        told = java.run("kafka-leader-election", *elect).stdout
        assert f"Valid replica already elected for partitions {topic}-0" in told


@cluster_tool_check
def kafka_log_dirs(java: JavaTools, brokers: ThreeBrokers) -> None:
    topic = brokers.topic()
    brokers.fill(topic, 100)

    def sizes(*arguments: str) -> dict[int, list[int]]:
        told = java.run("kafka-log-dirs", "--describe", "--topic-list", topic, *arguments).stdout
        (answer,) = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
        return {
            row["broker"]: [p["size"] for log in row["logDirs"] for p in log["partitions"]]
            for row in answer["brokers"]
        }

    def all_alike() -> bool:
        found = sizes()
        return sorted(found) == [1, 2, 3] and found[1] == found[2] == found[3] != [0]

    eventually(all_alike, PATIENCE_S)
    assert sorted(sizes("--broker-list", "1,3")) == [1, 3]


@cluster_tool_check
def kafka_broker_api_versions(java: JavaTools, brokers: ThreeBrokers) -> None:
    told = java.run("kafka-broker-api-versions").stdout
    assert sorted(map(int, re.findall(r"\(id: (\d) ", told))) == [1, 2, 3]
    each = re.split(r"^\S+ \(id: .*$", told, flags=re.MULTILINE)[1:]
    assert len(set(each)) == 1, "all brokers serve the same"


@cluster_tool_check
def kafka_cluster(java: JavaTools, brokers: ThreeBrokers) -> None:
    told = java.run("kafka-cluster", "list-endpoints").stdout
    for broker_id in brokers.nodes.broker_ids:
        host, _, port = brokers.nodes.address(broker_id).rpartition(":")
        assert re.search(rf"^{broker_id}\s+{host}\s+{port}\b", told, re.MULTILINE), told
    ids = {
        java.at(brokers.nodes.address(n)).run("kafka-cluster", "cluster-id").stdout
        for n in brokers.nodes.broker_ids
    }
    assert len(ids) == 1


@cluster_tool_check
def kafka_configs(java: JavaTools, brokers: ThreeBrokers) -> None:
    """Each broker has its own configs, whichever is asked."""
    alter = ["kafka-configs", "--alter", "--entity-type", "brokers", "--entity-name"]
    for broker_id, threads in ((1, 2), (2, 3)):
        java.run(*alter, str(broker_id), "--add-config", f"num.io.threads={7 + threads}")

    def shown() -> dict[str, str]:
        told = java.run("kafka-configs", "--describe", "--entity-type", "brokers").stdout
        rows = r"^Dynamic configs for broker (\d) are:\n(?:  (?:num.io.threads=(\d+))?.*\n)*"
        return dict(re.findall(rows, told, re.MULTILINE))

    eventually(lambda: shown() == {"1": "9", "2": "10", "3": ""}, PATIENCE_S)
    for broker_id in (1, 2):
        java.run(*alter, str(broker_id), "--delete-config", "num.io.threads")


@cluster_tool_check
def kafka_consumer_groups(java: JavaTools, brokers: ThreeBrokers) -> None:
    topic = brokers.topic()
    names = [brokers.fresh("group") for _ in range(3)]
    for group in names:
        brokers.commit(group, topic)
    told = java.run("kafka-consumer-groups", "--describe", "--all-groups", "--state").stdout
    for group in names:
        assert re.search(rf"^{group}\s+127\.0\.0\.1:\d+\s+\([123]\)", told, re.MULTILINE), told
    assert set(names) <= set(java.run("kafka-consumer-groups", "--list").stdout.split())
