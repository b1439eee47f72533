"""Partitions move between real brokers, and a broker that stops hands over what it leads."""

import json
import subprocess
import sys

import pytest

from headwater import Admin, ConfigResource, Consumer, NewTopic, Producer, TopicPartition
from headwater.errors import E
from headwater.testing import Cluster
from tests.integration.waiting import until

RECORDS = 200


@pytest.fixture
def cluster():
    with Cluster(3, {"min.insync.replicas": "1"}) as made:
        yield made


def test_records_survive_a_move_a_planned_stop_and_elections(cluster):
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("moved", replicas={0: [1, 2], 1: [2, 1]})])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send("moved", b"%d" % number, partition=number % 2)

        def view(partition: int):
            return admin.describe_topics(["moved"])["moved"].partitions[partition]

        here = TopicPartition("moved", 0)
        admin.reassign_partitions({here: [3, 2]})
        until(lambda: not admin.list_reassignments(), "the end of the move")
        until(lambda: (view(0).leader, view(0).replicas) == (3, (3, 2)), "the new replicas")
        assert set(view(0).isr) == {3, 2}
        until(lambda: here not in sizes(admin, 1), "the deletion of the old replica")

        cluster.stop(3)
        until(lambda: view(0).leader == 2, "a leader that does not stop")
        cluster.start_broker(3)
        until(lambda: set(view(0).isr) == {3, 2}, "the return of the replica")
        assert admin.elect_leaders([here]) == {here: E.NONE}
        until(lambda: view(0).leader == 3, "the preferred leader")
        until(lambda: set(view(1).isr) == {2, 1}, "all replicas of the other partition")

        cluster.kill(3)
        until(lambda: view(0).leader == 2, "a leader after a kill")
        cluster.start_broker(3)
        until(lambda: set(view(0).isr) == {3, 2}, "the return after a kill")

    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("moved", 0), TopicPartition("moved", 1)])
        read: list[int] = []

        def all_read() -> bool:
            read.extend(int(record.value) for record in consumer.poll(0.2))
            return len(read) >= RECORDS

        until(all_read, "all records")
    assert sorted(read) == list(range(RECORDS))


def test_a_throttled_move_stops_until_its_limit_is_raised_and_verify_removes_it(tmp_path):
    """Each broker takes one small batch per window: at this rate the move would take an hour."""
    plan = tmp_path / "plan.json"
    rows = [{"topic": "heavy", "partition": 0, "replicas": [2]}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    here = TopicPartition("heavy", 0)
    with (
        Cluster(2, {"replica.fetch.max.bytes": 1000}) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):

        def reassign(*words: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "headwater", "reassign", words[0], str(plan)]
            command += words[1:]
            command += ["--bootstrap-server", cluster.bootstrap]
            return subprocess.run(command, capture_output=True, text=True, check=False)

        def set_keys() -> set[str]:
            resources = [ConfigResource.topic("heavy"), *map(ConfigResource.broker, (1, 2))]
            found = admin.describe_configs(resources)
            return {
                key
                for rows in found.values()
                for key, row in rows.items()
                if "throttled" in key and not row.is_default
            }

        admin.create_topics([NewTopic("heavy", replicas={0: [1]})])
        with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
            for number in range(RECORDS):
                producer.send("heavy", b"%d" % number * 500, partition=0).result(60)
        whole = sizes(admin, 1)[here]
        begun = reassign("execute", "--throttle", "1")
        assert begun.returncode == 0, begun.stderr
        assert len(set_keys()) == 4
        until(lambda: sizes(admin, 2).get(here), "the first bytes")
        assert reassign("verify").returncode == 1
        assert here in admin.list_reassignments()
        assert sizes(admin, 2)[here] < whole
        assert len(set_keys()) == 4
        raised = reassign("execute", "--throttle", "1000000000")
        assert raised.returncode == 0, raised.stderr
        until(lambda: not admin.list_reassignments(), "the end of the move")
        assert sizes(admin, 2)[here] == whole
        done = reassign("verify")
        assert done.returncode == 0, done.stdout + done.stderr
        until(lambda: not set_keys(), "settings without a throttle")


def sizes(admin: Admin, broker_id: int) -> dict[TopicPartition, int]:
    return {
        at: size for one in admin.describe_log_dirs([broker_id]) for at, size in one.sizes.items()
    }
