"""Partitions move between real brokers, and a broker that stops hands over what it leads."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from headwater import Admin, ConfigResource, Consumer, NewTopic, Producer, TopicPartition
from headwater.cli.app import command
from headwater.errors import E
from headwater.testing import Cluster
from tests.integration.waiting import until
from tests.unit.broker.live import Live

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


UNLIMITED = str(2**63 - 1)
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def test_a_replica_moves_to_another_disk_and_back_with_kafkas_json(tmp_path):
    """The rate of 0 stops the first copy until it is cancelled."""
    paths = [str(tmp_path / name) for name in ("one", "two")]
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    here = TopicPartition("moved", 0)
    with (
        Live("", {"log.dirs": ",".join(paths), RATE: "0"}) as live,
        Admin(bootstrap_servers=live.bootstrap) as admin,
    ):

        def run(*words: str, code: int = 0) -> str:
            arguments = [*words, "--bootstrap-server", live.bootstrap]
            result = CliRunner().invoke(command, arguments)
            assert result.exit_code == code, result.output
            return result.output

        def is_done(file) -> bool:
            words = ["reassign", "verify", str(file), "--bootstrap-server", live.bootstrap]
            return CliRunner().invoke(command, words).exit_code == 0

        live.on_loop(lambda: live.context.throttles.log_dirs.record(2**62, 1))
        admin.create_topics([NewTopic("moved")])
        with Producer(bootstrap_servers=live.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send("moved", b"%d" % number, partition=0)
        (source,) = (one.path for one in admin.describe_log_dirs() if here in one.sizes)
        (target,) = set(paths) - {source}

        def write_plan(path: str) -> None:
            row = {"topic": "moved", "partition": 0, "replicas": [1], "log_dirs": [path]}
            plan.write_text(json.dumps({"version": 1, "partitions": [row]}))

        write_plan("/nowhere")
        refused = run("reassign", "execute", str(plan), code=1)
        assert "broker 1 has no log dir /nowhere" in refused
        write_plan(target)
        assert target in run("reassign", "execute", str(plan), "--rollback", str(back))
        assert "in progress: broker 1 copies to" in run("reassign", "verify", str(plan), code=1)
        described = json.loads(run("brokers", "describe", "1", "--json"))
        (row,) = (one for one in described["replicas"] if one["topic"] == "moved")
        assert (row["log_dir"], row["moving_to"]) == (source, target)
        listed = json.loads(run("brokers", "log-dirs", "--json"))
        assert {one["log_dir"]: one["moving_in"] for one in listed} == {source: 0, target: 1}
        run("reassign", "cancel", "--all")
        until(lambda: "not in" in run("reassign", "verify", str(plan), code=1), "the end")
        admin.alter_configs({ConfigResource.broker(1): {RATE: UNLIMITED}})
        run("reassign", "execute", str(plan))
        until(lambda: is_done(plan), "the replica on the other disk")
        run("reassign", "execute", str(back))
        until(lambda: is_done(back), "the replica back on its disk")
        assert not is_done(plan)
        with Consumer(bootstrap_servers=live.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([here])
            read: list[int] = []

            def all_read() -> bool:
                read.extend(int(record.value) for record in consumer.poll(0.2))
                return len(read) >= RECORDS

            until(all_read, "all records")
    assert read == list(range(RECORDS))


def sizes(admin: Admin, broker_id: int) -> dict[TopicPartition, int]:
    return {
        at: size for one in admin.describe_log_dirs([broker_id]) for at, size in one.sizes.items()
    }
