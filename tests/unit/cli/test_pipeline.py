"""`headwater pipeline` up to the point where Spark would start."""

import json
import logging
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from click import ClickException
from click.testing import CliRunner
from pyspark.errors import PySparkException

from headwater.cli.app import command
from headwater.cli.archive import _spark
from headwater.cli.pipeline_runs import exit_if_stopped, report_failures, spark_errors_as_one_line
from headwater.errors import E, KafkaError
from headwater.pipelines.declaring.project import load_project
from headwater.pipelines.running import preflight
from headwater.pipelines.running.checkpoints import Checkpoints
from headwater.pipelines.running.dataset_reader import table_target
from headwater.pipelines.running.preflight import save_fingerprints
from headwater.pipelines.running.signals import (
    ONE_REQUEST_MS,
    StopEvent,
    keep_sigint_handler,
    stop_on_signals,
)
from tests.unit.pipelines.lake import append


def call(*words):
    return CliRunner().invoke(command, ["pipeline", *map(str, words)])


@pytest.fixture
def shop(tmp_path):
    def write(text):
        file = tmp_path / "shop.py"
        file.write_text("from headwater import pipelines as hw\n\n\n" + text)
        return file

    return write


def test_a_new_project_passes_its_check(tmp_path):
    made = call("init", tmp_path / "demo")
    assert made.exit_code == 0
    assert "pipeline.yml" in made.output
    again = call("init", tmp_path / "demo")
    assert again.exit_code == 2
    assert "already exists" in again.output
    checked = call("check", tmp_path / "demo", "--offline", "--json")
    assert checked.exit_code == 0
    assert [flow["flow"] for flow in json.loads(checked.output)] == ["events", "actions_per_minute"]


def test_each_mistake_is_one_line_with_its_place(shop):
    file = shop(
        "@hw.table\ndef silver():\n    return hw.read_stream('bronz')\n\n\n"
        "@hw.table\ndef bronze():\n    return hw.topic('events')\n"
    )
    told = call("check", file, "--offline")
    assert told.exit_code == 2
    (line,) = told.output.splitlines()
    assert line.startswith(f"{file}:")
    assert "silver reads bronz, which nothing declares; did you mean bronze?" in line


def test_a_file_that_cannot_be_loaded_is_one_line(shop):
    told = call("run", shop("def broken(:\n"))
    assert told.exit_code == 2
    assert len(told.output.splitlines()) == 1
    assert "this is not valid Python" in told.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ingest", "orders", "--schema", "infer"], "Missing option '--to'"),
        (["ingest", "orders", "--to", "dleta:x", "--schema", "infer"], "did you mean delta:?"),
        (["ingest", "orders", "--to", "topic:x", "--schema", "infer"], "write delta:PATH"),
        (["run", "--spark", "x"], "x: write KEY=VALUE"),
    ],
)
def test_words_that_make_no_sense_are_refused_with_exit_code_2(words, said, monkeypatch, shop):
    monkeypatch.chdir(shop("").parent)
    told = call(*words)
    assert told.exit_code == 2
    assert said in told.output


@pytest.mark.parametrize("word", ["check", "run"])
def test_a_broker_that_does_not_answer_is_one_line_before_spark_starts(word, shop):
    file = shop("@hw.table\ndef bronze():\n    return hw.topic('events')\n")
    told = call(word, file, "--bootstrap-server", "127.0.0.1:1")
    assert told.exit_code == 1
    assert told.stderr.startswith("Error: cannot connect to 127.0.0.1:1 (Connection refused)")
    assert told.stderr.count("\n") == 1


REPLAY = ("archive", "replay", ".", "--from", "0", "--to", "1", "--into", "orders")


@pytest.mark.parametrize(
    "words",
    [
        ("pipeline", "run", "shop.py"),
        ("pipeline", "check", "shop.py"),
        ("pipeline", "ingest", "orders", "--to", "parquet:out", "--schema", "infer"),
        ("archive", "copy", "--to", "copies", "--bootstrap-server"),
        REPLAY,
    ],
)
def test_tls_of_the_config_file_and_of_o_is_used_to_connect(words, shop, tmp_path, monkeypatch):
    shop("@hw.table\ndef bronze():\n    return hw.topic('events')\n")
    monkeypatch.chdir(tmp_path)
    seen = []

    async def unreachable(settings, network, host, port):
        seen.append((settings.security_protocol, settings.ssl_truststore_location, port))
        raise OSError(0, "no broker here")

    monkeypatch.setattr("headwater.cli.reach_broker.open_connection", unreachable)
    file = tmp_path / "alice.properties"
    file.write_text("bootstrap.servers=127.0.0.1:7\nsecurity.protocol=SSL\n")
    bootstrap = ("127.0.0.1:7",) if words[-1] == "--bootstrap-server" else ()
    override = ("-o", "ssl.truststore.location=ca.pem")
    told = CliRunner().invoke(command, ["--config", str(file), *words, *bootstrap, *override])
    assert "cannot connect to 127.0.0.1:7" in told.stderr
    assert seen == [("SSL", "ca.pem", 7)]


def test_a_secret_belongs_into_the_config_file():
    told = CliRunner().invoke(command, [*REPLAY, "-o", "sasl.password=hunter2"])
    assert told.exit_code == 2
    assert "-o sasl.password is a secret" in told.stderr
    assert "hunter2" not in told.stderr


def test_help_imports_no_spark():
    script = (
        "import sys; from headwater.cli.app import command\n"
        "try: command(['pipeline', 'run', '--help'])\n"
        "except SystemExit: pass\n"
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


def test_signals_set_the_event_and_the_old_handlers_come_back(capfd):
    import os

    stop, before = StopEvent(), signal.getsignal(signal.SIGTERM)
    with stop_on_signals(stop, [signal.SIGTERM]):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60)
    assert signal.getsignal(signal.SIGTERM) is before
    assert stop.cause == signal.SIGTERM
    assert capfd.readouterr().err == "stopping; a second signal ends it at once\n"


def test_a_second_signal_ends_at_once_and_a_double_one_is_one():
    class Hands:
        def __init__(self):
            self.ms = 0

        def monotonic_ms(self):
            return self.ms

        def wall_ms(self):
            return self.ms

    stop, clock = StopEvent(), Hands()
    with stop_on_signals(stop, [signal.SIGINT], clock):
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        signal.raise_signal(signal.SIGINT)
        clock.ms = ONE_REQUEST_MS
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_pyspark_sets_no_handler_while_a_session_starts():
    from pyspark.core import context

    before = signal.getsignal(signal.SIGINT)
    with keep_sigint_handler():
        context.signal.signal(context.signal.SIGINT, lambda number, frame: None)
        assert signal.getsignal(signal.SIGINT) is before
    assert context.signal is signal


def test_ctrl_c_while_spark_works_logs_no_traceback(caplog):
    interrupt = KeyboardInterrupt()
    with spark_errors_as_one_line(Path("spark.log")):
        logging.error(
            "KeyboardInterrupt while sending command.", exc_info=interrupt
        )  # as Py4J does
    assert not caplog.records


def test_a_java_process_that_ended_is_one_line_unless_a_signal_came(tmp_path):
    stop = StopEvent()
    with (
        pytest.raises(ClickException, match=r"its Java process has ended.*run the command again"),
        report_failures(tmp_path, True, stop),
    ):
        raise ConnectionRefusedError(111, "Connection refused")
    stop.set()
    for once, code in ((True, 130), (False, 0)):
        with pytest.raises(SystemExit) as ended, report_failures(tmp_path, once, stop):
            raise ConnectionRefusedError(111, "Connection refused")
        assert ended.value.code == code
    stop.cause = signal.SIGTERM
    with pytest.raises(SystemExit) as ended:
        exit_if_stopped(True, stop)
    assert ended.value.code == 143


def test_archive_commands_send_the_log_of_spark_to_a_file_that_stays_after_a_failure(
    tmp_path, monkeypatch
):
    given = []

    def fake_session(name, *, master, settings):
        given.append(settings["spark.driver.extraJavaOptions"].partition("file://")[2])
        assert Path(given[-1]).exists()

    monkeypatch.setattr("headwater.pipelines.session.spark_session", fake_session)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with _spark("name", "local"):
        pass
    with pytest.raises(KafkaError), _spark("name", "local"):
        raise KafkaError(E.INVALID_REQUEST, "not about Spark")
    assert not list(tmp_path.iterdir())
    kept = pytest.raises(ClickException, match=r"boom  \(more in .*/_logs/spark.log\)")
    with kept, _spark("name", "local"):
        raise PySparkException("boom")
    assert Path(given[-1]).exists()


class Topics:
    """A cluster whose topic was deleted and recreated."""

    def __init__(self, **settings):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def list_topics(self):
        return ["events"]

    def describe_topics(self, names):
        return {"events": SimpleNamespace(topic_id=b"b" * 16)}


def test_check_reports_a_topic_that_was_recreated_since_the_last_run(shop, monkeypatch):
    file = shop("@hw.table\ndef bronze():\n    return hw.topic('events')\n")
    monkeypatch.setattr(preflight, "BlockingAdmin", Topics)
    monkeypatch.setattr("headwater.cli.pipeline.require_broker", lambda *_: None)
    project = load_project(file)
    checkpoints = Checkpoints.of(project.storage)
    assert call("check", file).exit_code == 0
    save_fingerprints(project, {"events": (b"a" * 16).hex()})
    place = checkpoints.location("bronze")
    place.mkdir(parents=True)
    (place / "metadata").write_text('{"id": "q"}')
    append(str(table_target(project, "bronze")), pa.table({"value": [b"v"]}), 0)
    told = call("check", file)
    assert told.exit_code == 2
    assert "topic events was deleted and recreated" in told.stderr
    assert told.stderr.endswith("or start over with --refresh bronze\n")
    assert call("check", file, "--offline").exit_code == 0
