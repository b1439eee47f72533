"""The commands against a broker that `headwater up` started, as a person would use them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headwater.cli.app import command
from headwater.client.admin import BlockingAdmin
from headwater.client.producer.blocking import Producer
from headwater.model import TopicPartition

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
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors.decode()


def run(broker: str, *words: str) -> Result:
    environment = {**os.environ, "HEADWATER_BOOTSTRAP": broker}
    return CliRunner(env=environment).invoke(command, words)


def shown(broker: str, *words: str) -> object:
    result = run(broker, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def produce(broker: str, topic: str, *values: bytes) -> None:
    with Producer(bootstrap_servers=broker) as producer:
        for value in values:
            producer.send(topic, value)


def commit(broker: str, group: str, topic: str, offset: int) -> None:
    with BlockingAdmin(bootstrap_servers=broker) as admin:
        admin.set_group_offsets(group, {TopicPartition(topic, 0): offset})


def test_a_topic_lives_from_create_to_delete(broker: str) -> None:
    created = run(broker, "topics", "create", "orders", "-p", "2", "-c", "retention.ms=60000")
    assert created.stdout == "orders: created\n"
    assert "TOPIC_ALREADY_EXISTS" in run(broker, "topics", "create", "orders").stderr
    assert run(broker, "topics", "create", "orders", "--if-not-exists").exit_code == 0
    listed = shown(broker, "topics", "list")
    assert {"topic": "orders", "partitions": 2, "replicas": 1, "records": 0, "bytes": 0} in listed  # type: ignore[operator]
    assert "orders\n" in run(broker, "topics", "list", "--names").stdout

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
    refused = json.loads(result.stderr)
    assert refused["code"] == "TOPIC_ALREADY_EXISTS"
    assert "topic 'first' already exists" in refused["error"]
    assert "--if-not-exists" in refused["error"]
    assert "third/" in refused["error"]


def test_configs_show_where_they_come_from(broker: str) -> None:
    run(broker, "topics", "create", "logs")
    run(broker, "configs", "set", "--cluster-default", "message.max.bytes=2000000")
    run(broker, "configs", "set", "--broker", "1", "message.max.bytes=3000000")
    [config] = shown(broker, "configs", "describe", "--topic", "logs", "max.message.bytes")  # type: ignore[misc]
    assert (config["value"], config["source"]) == ("3000000", "broker")
    assert [row["source"] for row in config["synonyms"]] == ["broker", "cluster", "default"]
    assert config["doc"]
    for place, name in ((("--broker", "1"), "broker 1"), (("--cluster-default",), "all brokers")):
        refused = run(broker, "configs", "set", *place, "num.io.thread=1")
        assert refused.output.startswith(f"Error: {name}: "), refused.output
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
        (("--topic", "nowhere", "retention.ms=1"), "topic 'nowhere' does not exist"),
        (("--broker", "1", "node.id=7"), "cannot be changed while the broker runs"),
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
    listed = shown(broker, "groups", "list")
    assert {"group": "readers", "state": "Empty", "type": "classic", "protocol": ""} in listed  # type: ignore[operator]
    [group] = shown(broker, "groups", "describe", "readers")  # type: ignore[misc]
    [row] = group["partitions"]
    assert (row["topic"], row["committed"], row["end"], row["lag"]) == ("clicks", 1, 3, 2)
    assert run(broker, "groups", "delete", "readers").stdout == "readers: deleted\n"
    assert "group 'readers' does not exist" in run(broker, "groups", "describe", "readers").stderr


def test_groups_are_deleted_one_by_one_and_described_all_at_once(broker: str) -> None:
    run(broker, "topics", "create", "visits")
    commit(broker, "g1", "visits", 0)
    commit(broker, "g2", "visits", 0)
    names = [row["group"] for row in shown(broker, "groups", "describe", "--all")]  # type: ignore[attr-defined]
    assert {"g1", "g2"} <= set(names)
    result = run(broker, "groups", "delete", "g1", "nope", "g2")
    assert result.stdout == "g1: deleted\ng2: deleted\n"
    assert (result.exit_code, "nope" in result.stderr) == (1, True)


def test_a_topic_is_trimmed_and_shows_its_offsets(broker: str) -> None:
    run(broker, "topics", "create", "trimmed", "--profile", "throughput")
    produce(broker, "trimmed", b"a", b"b", b"c")
    refused = run(broker, "topics", "trim", "trimmed", "--before", "4")
    assert "beyond the end of 1 of 1 partitions (that of trimmed-0 at 3); nothing" in refused.stderr
    assert refused.exit_code == 1
    [row] = shown(broker, "topics", "trim", "trimmed", "--before", "2")  # type: ignore[misc]
    assert (row["start"], row["end"]) == (2, 3)
    [row] = shown(broker, "topics", "delete-records", "trimmed", "--before", "end")  # type: ignore[misc]
    assert row["start"] == 3
    [topic] = shown(broker, "topics", "describe", "trimmed")  # type: ignore[misc]
    assert topic["configs"] == {"compression.type": "producer"}
    assert (topic["partitions"][0]["start"], topic["partitions"][0]["end"]) == (3, 3)
    refused = run(broker, "topics", "trim", "trimmed", "--before", "1", "--partition", "4")
    assert "has no partition 4; it has 0 to 0" in refused.stderr
    refused = run(broker, "consume", "trimmed", "--partition", "0", "--partition", "4")
    assert "no partition 4 in trimmed" in refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("produce", "nope"),
        ("consume", "nope"),
        ("consume", "nope", "--group", "g"),
        ("perf", "produce", "nope"),
        ("topics", "describe", "nope"),
        ("topics", "alter", "nope", "-p", "2"),
        ("groups", "reset-offsets", "g", "--topic", "nope", "--to-earliest"),
        ("collect", "http", "nope"),
        ("configs", "set", "--topic", "nope", "retention.ms=1"),
        ("configs", "describe", "--topic", "nope"),
        ("archive", "replay", ".", "--from", "0", "--to", "1", "--into", "nope"),
    ],
)
def test_a_missing_topic_is_reported_with_the_command_that_creates_it(
    broker: str, words: tuple[str, ...]
) -> None:
    result = run(broker, *words)
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: topic 'nope' does not exist; create with: headwater topics create nope\n"
    )


def test_hints_for_what_does_not_exist(broker: str) -> None:
    run(broker, "topics", "create", "hinted")
    wrong = run(broker, "topics", "create", "t2", "-c", "retention.mss=1")
    assert wrong.stderr.count("did you mean retention.ms?") == 1
    wrong = run(broker, "configs", "unset", "--topic", "hinted", "retention.mss")
    assert "did you mean retention.ms?" in wrong.stderr
    wrong = run(broker, "groups", "reset-offsets", "g", "--topic", "hinted:0,9", "--to-earliest")
    assert "topic 'hinted' has no partition 9; it has 0 to 0" in wrong.stderr


def test_what_consume_writes_produce_takes_and_a_bad_line_says_where_to_go_on(broker: str) -> None:
    run(broker, "topics", "create", "copied")
    run(broker, "topics", "create", "copy")
    produce(broker, "copied", b"a", b"\xff")
    written = run(broker, "consume", "copied", "--format", "json").stdout
    bad = written + "{no json\n"
    environment = {**os.environ, "HEADWATER_BOOTSTRAP": broker}
    failed = CliRunner(env=environment).invoke(
        command, ["produce", "copy", "--format", "json"], input=bad
    )
    assert failed.exit_code == 1
    assert "copy: sent 2 records; to continue later: --skip 2" in failed.stderr
    assert "line 3" in failed.stderr
    again = CliRunner(env=environment).invoke(
        command, ["produce", "copy", "--format", "json", "--skip", "1"], input=written
    )
    assert "sent 1 record" in again.stderr
    rest = bad + "\n" + json.dumps({"value": "b"})
    words = ["produce", "copy", "--format", "json", "--skip"]
    assert "line 3" in CliRunner(env=environment).invoke(command, [*words, "2"], input=rest).stderr
    beyond = CliRunner(env=environment).invoke(command, [*words, "3"], input=rest)
    assert (beyond.exit_code, beyond.stderr) == (0, "copy: sent 1 record\n")
    template = r"%o %S\n"
    assert run(broker, "consume", "copy", "--format", template).stdout == "0 1\n1 1\n2 1\n3 1\n"


def test_a_record_that_is_refused_says_where_to_go_on_without_leaving_any_out(
    broker: str, tmp_path: Path
) -> None:
    run(broker, "topics", "create", "narrow", "-c", "max.message.bytes=5000")
    lines = tmp_path / "lines"
    lines.write_text("first\n" + "x" * 20_000 + "\n" + "y" * 2_000_000 + "\nlast\n")
    refused = run(broker, "produce", "narrow", str(lines), "-o", "batch.size=0")
    assert refused.exit_code == 1
    sent, error = refused.stderr.splitlines()
    assert sent == "narrow: sent 1 record; to continue later: --skip 1"
    assert error.startswith("Error: record 2: ")
    refused = run(broker, "produce", "narrow", str(lines), "--skip", "2")
    sent, error = refused.stderr.splitlines()
    assert sent == "narrow: sent 0 records; to continue later: --skip 2"
    assert error.startswith("Error: record 3: a record of 2000082 bytes")
    assert run(broker, "produce", "narrow", str(lines), "--skip", "3").exit_code == 0
    assert run(broker, "consume", "narrow").stdout == "first\nlast\n"


def test_names_as_json_are_a_list(broker: str) -> None:
    run(broker, "topics", "create", "listed")
    assert "listed" in shown(broker, "topics", "list", "--names")  # type: ignore[operator]


@pytest.mark.parametrize(("option", "after"), [("--to-offset", 0), ("--shift-by", 3)], ids=str)
def test_a_reset_by_the_number_0_is_a_reset(broker: str, option: str, after: int) -> None:
    run(broker, "topics", "create", "zero")
    produce(broker, "zero", *[b"x"] * 5)
    commit(broker, "zeros", "zero", 3)
    [row] = shown(broker, "groups", "reset-offsets", "zeros", "--topic", "zero", option, "0")  # type: ignore[misc]
    assert (row["before"], row["after"]) == (3, after)


def test_an_error_names_what_it_is_about_once(broker: str) -> None:
    assert run(broker, "groups", "describe", "g").stderr == "Error: group 'g' does not exist\n"
    missing = run(broker, "groups", "delete", "g").stderr
    assert missing == "Error: g: there is no such group (GROUP_ID_NOT_FOUND)\n"
    missing = run(broker, "groups", "reset-offsets", "nosuch", "--all-topics", "--to-earliest")
    assert (missing.exit_code, missing.stderr.count("group 'nosuch' has no committed")) == (1, 1)


def test_shells_complete_names_of_topics_and_groups(broker: str) -> None:
    run(broker, "topics", "create", "completed")
    words = {"COMP_WORDS": "headwater consume compl", "COMP_CWORD": "2"}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "headwater")],
        env={
            **os.environ, **words, "HEADWATER_BOOTSTRAP": broker,
            "_HEADWATER_COMPLETE": "bash_complete",
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "plain,completed\n"


def test_the_cluster_is_described(broker: str, data: Path) -> None:
    cluster = shown(broker, "cluster")
    [row] = cluster["brokers"]  # type: ignore[index]
    assert (row["broker"], row["controller"], row["log_dirs"]) == (1, True, [str(data)])


HEADWATER = [sys.executable, "-m", "headwater"]


def started(broker: str, *words: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*HEADWATER, *words],
        env={**os.environ, "HEADWATER_BOOTSTRAP": broker},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("group", [(), ("--group", "stopped")])
def test_a_signal_ends_consume_quietly(
    broker: str, number: signal.Signals, code: int, group: tuple[str, ...]
) -> None:
    run(broker, "topics", "create", "followed", "--if-not-exists")
    produce(broker, "followed", b"first")
    run(broker, "groups", "delete", "stopped")
    process = started(broker, "consume", "followed", "--follow", *group)
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (code, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_lets_produce_send_what_it_has_read(
    broker: str, number: signal.Signals, code: int
) -> None:
    run(broker, "topics", "create", f"typed-{code}")
    process = started(broker, "produce", f"typed-{code}", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("one\n" * 3000)
    process.stdin.flush()
    while not run(broker, "consume", f"typed-{code}").stdout:
        pass
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    sent = int(errors.split("sent ")[1].split()[0])
    assert (process.returncode, f"--skip {sent}" in errors) == (code, True)
    assert run(broker, "consume", f"typed-{code}").stdout == "one\n" * sent


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_other_commands_quietly(
    broker: str, number: signal.Signals, code: int
) -> None:
    topic = f"measured-{code}"
    run(broker, "topics", "create", topic)
    process = started(broker, "perf", "produce", topic, "--rate", "100", "-n", "1000000")
    while not run(broker, "consume", topic, "--count", "1").stdout:
        pass
    process.send_signal(number)
    assert (process.wait(60), process.communicate()) == (code, ("", ""))


def test_a_reader_that_has_enough_is_a_good_end_and_only_what_was_written_is_committed(
    broker: str,
) -> None:
    run(broker, "topics", "create", "piped")
    produce(broker, "piped", *([b"x" * 1000] * 2000))
    words = " ".join([*HEADWATER, "consume", "piped", "--group", "head"])
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{words} | head -n 1"],
        env={**os.environ, "HEADWATER_BOOTSTRAP": broker},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    [group] = shown(broker, "groups", "describe", "head", "--json")  # type: ignore[misc]
    assert all(row["committed"] < 2000 for row in group["partitions"])


def test_what_was_produced_can_be_dumped(broker: str, data: Path) -> None:
    run(broker, "topics", "create", "dumped")
    produce(broker, "dumped", b"one", b"two")
    result = run(broker, "log", "dump", str(data / "dumped-0" / f"{0:020}.log"))
    assert 'value "two"' in result.stdout
    assert result.exit_code == 0


def test_a_data_folder_in_use_is_refused_in_one_line(broker: str, data: Path) -> None:
    second = subprocess.run(
        [*UP, "--data-dir", str(data)], capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode == 1
    assert second.stderr.startswith("Error: ")
    assert second.stderr.count("\n") == 1


# -- the config file


def with_file(path: Path, *words: str) -> Result:
    return CliRunner(env={"HEADWATER_CONFIG": str(path)}).invoke(command, words)


def test_a_config_file_names_the_brokers_and_settings_of_every_client(
    broker: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker}\nacks=1\nisolation.level=read_committed\n")
    assert with_file(file, "topics", "create", "by-file").stdout == "by-file: created\n"
    sent = CliRunner().invoke(
        command, ["--config", str(file), "produce", "by-file"], input="one\ntwo\n"
    )
    assert sent.exit_code == 0, sent.output
    assert with_file(file, "consume", "by-file").stdout == "one\ntwo\n"
    measured = with_file(file, "perf", "consume", "by-file", "--json")
    assert json.loads(measured.stdout)["records"] == 2


def test_what_is_typed_and_the_environment_beat_the_config_file(
    broker: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\nmax.poll.records=no number\n")
    environment = {"HEADWATER_CONFIG": str(file), "HEADWATER_BOOTSTRAP": broker}
    runner = CliRunner(env=environment)
    assert runner.invoke(command, ["topics", "list"]).exit_code == 0
    typed = ["topics", "list", "--bootstrap-server", broker]
    assert with_file(file, *typed).exit_code == 0
    run(broker, "topics", "create", "typed")
    overruled = runner.invoke(command, ["consume", "typed", "-o", "max.poll.records=5"])
    assert overruled.exit_code == 0, overruled.output
    assert "max.poll.records" in runner.invoke(command, ["consume", "typed"]).stderr


def test_a_config_file_with_an_unknown_key_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# mine\nbootstrap.server=127.0.0.1:9092\n")
    refused = with_file(file, "topics", "list")
    assert refused.exit_code == 1
    assert f"{file}:2: unknown setting bootstrap.server" in refused.stderr
    assert "did you mean bootstrap.servers?" in refused.stderr


def test_a_client_config_file_is_not_taken_for_a_broker_s(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\n")
    refused = CliRunner().invoke(command, ["--config", str(file), "up"])
    assert refused.exit_code == 2
    assert "headwater up --config FILE" in refused.stderr


# -- odd wishes


def test_brokers_given_with_o_are_refused_instead_of_ignored(broker: str) -> None:
    for words in (["consume", "logs"], ["produce", "logs"], ["perf", "consume", "logs"]):
        refused = run(broker, *words, "-o", "bootstrap.servers=other:9092")
        assert (refused.exit_code, "--bootstrap-server" in refused.stderr) == (2, True)


def test_a_measurement_of_more_records_than_there_are_fails_after_its_report(broker: str) -> None:
    run(broker, "topics", "create", "few")
    produce(broker, "few", b"a", b"b")
    result = run(broker, "perf", "consume", "few", "-n", "5", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["records"] == 2
    assert json.loads(result.stderr) == {"error": "few has 2 records, fewer than --records 5"}


def test_an_archive_of_nothing_sealed_says_why_it_is_empty(
    broker: str, data: Path, tmp_path: Path
) -> None:
    run(broker, "topics", "create", "unsealed")
    produce(broker, "unsealed", b"a")
    result = run(broker, "archive", str(data), "unsealed", "--to", str(tmp_path / "archive"))
    assert result.exit_code == 0, result.output
    assert "there is no sealed segment yet" in result.stderr
    assert "--include-active" in result.stderr


def test_bytes_that_are_not_utf_8_are_sent_as_they_were_typed(broker: str) -> None:
    run(broker, "topics", "create", "typed-bytes")
    odd = os.fsdecode(b"\xff")
    environment = {"HEADWATER_BOOTSTRAP": broker}
    sent = CliRunner(env=environment).invoke(
        command, ["produce", "typed-bytes", "--key", odd, "-H", f"h={odd}"], input="v\n"
    )
    assert sent.exit_code == 0, sent.output
    read = json.loads(run(broker, "consume", "typed-bytes", "--format", "json").stdout)
    assert (read["key_base64"], read["headers"]) == (
        "/w==",
        [{"name": "h", "value_base64": "/w=="}],
    )
    named = CliRunner(env=environment).invoke(
        command, ["produce", "typed-bytes", "-H", f"{odd}=1"], input="v\n"
    )
    assert (named.exit_code, "the name is not valid UTF-8" in named.stderr) == (2, True)


# -- brokers, moves and elections


def broker_id(broker: str) -> int:
    (row,) = shown(broker, "brokers", "list")
    return int(row["broker"])


def test_brokers_are_listed_and_described(broker: str) -> None:
    me = broker_id(broker)
    run(broker, "topics", "create", "held", "--assign", f"{me},{me}")
    (row,) = shown(broker, "brokers", "list")
    assert row["controller"]
    assert row["leads"] == row["replicas"] == row["in_sync"] >= 2
    described: Any = shown(broker, "brokers", "describe", str(row["broker"]))
    held = [one for one in described["replicas"] if one["topic"] == "held"]
    assert [(one["partition"], one["role"]) for one in held] == [(0, "leader"), (1, "leader")]
    away = run(broker, "brokers", "describe", "77")
    assert away.exit_code == 1
    assert "broker 77 is not live" in away.stderr


def test_an_assignment_decides_the_counts(broker: str) -> None:
    both = run(broker, "topics", "create", "t", "--assign", "0", "-p", "2")
    assert (both.exit_code, "decides the numbers" in both.stderr) == (2, True)
    wrong = run(broker, "topics", "create", "t", "--assign", "0:x")
    assert (wrong.exit_code, "'x' is not the id" in wrong.stderr) == (2, True)
    unknown = run(
        broker, "topics", "create", "unknown-broker", "--assign", f"{broker_id(broker)}:9"
    )
    assert (unknown.exit_code, "not live: [9]" in unknown.stderr) == (1, True)


def test_a_plan_is_made_executed_verified_and_cancelled(broker: str, tmp_path: Path) -> None:
    me = broker_id(broker)
    run(broker, "topics", "create", "moved", "--assign", f"{me},{me}")
    planned = run(broker, "reassign", "plan", "moved")
    assert json.loads(planned.stdout) == {"version": 1, "partitions": []}
    dead = run(broker, "reassign", "plan", "moved", "--brokers", f"{me},8")
    assert (dead.exit_code, "broker 8 is not live" in dead.stderr) == (2, True)

    file, back = tmp_path / "plan.json", tmp_path / "back.json"
    rows = [{"topic": "moved", "partition": index, "replicas": [me]} for index in (0, 1)]
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    done: Any = shown(broker, "reassign", "execute", str(file), "--rollback", str(back))
    assert [row["to"] for row in done] == [[me], [me]]
    assert json.loads(back.read_text())["partitions"] == rows
    verified: Any = shown(broker, "reassign", "verify", str(file))
    assert [row["state"] for row in verified] == ["complete", "complete"]
    assert shown(broker, "reassign", "list") == []
    assert shown(broker, "reassign", "cancel", "--all") == []

    rows[1]["replicas"] = [me, 9]
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    refused = run(broker, "reassign", "execute", str(file))
    assert refused.exit_code == 1
    assert "moved-1 names brokers that are not live: [9]" in refused.stderr
    assert run(broker, "reassign", "verify", str(file)).exit_code == 1
    file.write_text(json.dumps({"partitions": [{**rows[0], "topic": "gone"}]}))
    gone = run(broker, "reassign", "verify", str(file))
    assert (gone.exit_code, "no such partition" in gone.stdout) == (1, True)
    file.write_text("{")
    assert "not JSON" in run(broker, "reassign", "execute", str(file)).stderr


def test_leaders_are_elected_by_topic_partition_or_all(broker: str) -> None:
    me = broker_id(broker)
    run(broker, "topics", "create", "elected", "--assign", f"{me},{me}")
    rows: Any = shown(broker, "elect", "elected")
    assert [row["result"] for row in rows] == ["nothing to do", "nothing to do"]
    assert shown(broker, "elect", "--all") == []
    assert "has a leader" in run(broker, "elect", "--all", "--unclean").stderr
    refused = run(broker, "elect", "elected:7")
    assert (refused.exit_code, "elected-7" in refused.stderr) == (1, True)
    assert run(broker, "elect").exit_code == 2
