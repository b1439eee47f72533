"""The command line itself: words, usage, errors. Live clusters are in tests/clients."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from headwater import __version__
from headwater.cli.app import COMMANDS, command
from headwater.cli.configs import parse_change, resource_from
from headwater.cli.groups import Position
from headwater.cli.options import separator_bytes
from headwater.cli.reach_broker import parse_bootstrap
from headwater.cli.up import settings_from
from headwater.client.admin import AlterConfigOp, ConfigChange, ConfigResource
from headwater.client.producer.blocking import Producer
from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from headwater.errors import KafkaError
from headwater.testing import Broker

NOBODY = "127.0.0.1:1"


def run(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def test_the_version_is_printed() -> None:
    assert run("--version").output == f"headwater {__version__}\n"


@pytest.mark.parametrize("noun", COMMANDS)
def test_each_noun_has_help(noun: str) -> None:
    result = run(noun, "--help")
    assert result.exit_code == 0
    assert f"Usage: command {noun}" in result.output or f" {noun} " in result.output


@pytest.mark.parametrize(
    "words",
    [
        ("frob",),
        ("topics", "create"),
        ("topics", "alter", "t"),
        ("configs", "describe"),
        ("groups", "list", "--state", "stabel"),
        ("configs", "describe", "--topic", "t", "--broker", "1"),
        ("configs", "set", "--topic", "t", "retention.ms"),
        ("topics", "create", "t", "--config", "retention.ms"),
        ("up", "--port", "99999"),
    ],
)
def test_wrong_usage_is_exit_code_2(words: tuple[str, ...]) -> None:
    options = ("--bootstrap-server", NOBODY) if words[0] in {"topics", "configs"} else ()
    result = run(*words, *options)
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("users", "add", ""), "the name of a user is empty"),
        (("quotas", "set", "--user", "a", "producer_byte_rate=inf"), "quotas remove producer_"),
        (("quotas", "set", "--user", "a", "producer_byte_rate=nan"), "is a number above 0"),
    ],
)
def test_arguments_that_nothing_can_be_done_with_are_refused(
    words: tuple[str, ...], said: str
) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    "words",
    [
        ("users", "add", "User:alice"),
        ("quotas", "set", "--user", "User:alice", "producer_byte_rate=1"),
    ],
)
def test_a_principal_is_not_the_name_of_a_user(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "User:alice is a principal: write alice" in result.output


def test_no_broker_is_one_line_that_says_what_to_do() -> None:
    result = run("topics", "list", "--bootstrap-server", NOBODY)
    assert result.exit_code == 1
    assert result.output == (
        f"Error: cannot connect to {NOBODY} (Connection refused); start a broker with "
        "`headwater up` or name one with --bootstrap-server\n"
    )


def test_a_bad_config_is_one_line_with_key_and_origin(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partition=3\n")
    result = run("up", "--config", str(file))
    assert result.exit_code == 1
    assert result.output == (
        f"Error: {file}:1: unknown config num.partition; did you mean num.partitions?\n"
    )


def test_options_of_up_become_settings() -> None:
    settings = settings_from(0, "/data", None, ("num.partitions=4", "broker.rack=a=b"))
    assert str(settings.listening[0]) == "PLAINTEXT://127.0.0.1:0"
    assert settings.log_dirs == ("/data",)
    assert (settings.num_partitions, settings.broker_rack) == (4, "a=b")
    assert str(settings_from(1, None, None, ("listeners=PLAINTEXT://h:2",)).listening[0]) == (
        "PLAINTEXT://h:2"
    )
    with pytest.raises(ConfigError, match="-o oops: write KEY=VALUE"):
        settings_from(None, None, None, ("oops",))


@pytest.mark.parametrize(
    ("lines", "listens", "advertises"),
    [
        ("", "PLAINTEXT://127.0.0.1:9095", "PLAINTEXT://127.0.0.1:9095"),
        ("listeners=SASL_SSL://:9093", "SASL_SSL://:9095", "SASL_SSL://:9095"),
        (
            "listeners=SASL_SSL://[::1]:9093\nadvertised.listeners=SASL_SSL://b:9093",
            "SASL_SSL://[::1]:9095",
            "SASL_SSL://b:9095",
        ),
        (
            "listeners=SASL_SSL://:9093\nadvertised.listeners=SASL_SSL://b:443",
            "SASL_SSL://:9095",
            "SASL_SSL://b:443",
        ),
    ],
)
def test_port_moves_the_listener_of_the_file_and_keeps_its_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, listens: str, advertises: str
) -> None:
    monkeypatch.setattr(BrokerSettings, "tls_of", lambda *_: None)  # there is no key store
    file = tmp_path / "server.properties"
    file.write_text(lines)
    settings = settings_from(9095, None, str(file), ())
    assert (str(settings.listening[0]), str(settings.advertised[0])) == (listens, advertises)
    assert (
        str(
            settings_from(
                1,
                None,
                str(file),
                ("listeners=PLAINTEXT://h:2", "advertised.listeners=PLAINTEXT://h:2"),
            ).listening[0]
        )
        == "PLAINTEXT://h:2"
    )


def test_port_is_refused_with_several_listeners(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:1,SASL_PLAINTEXT://127.0.0.1:2\n")
    refused = run("up", "--config", str(file), "--port", "9095")
    assert refused.exit_code == 2
    assert "--port 9095 is for one listener, and the settings have 2" in refused.output


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("h:1", [("h", 1)]),
        ("h:1, [::1]:2", [("h", 1), ("::1", 2)]),
    ],
)
def test_a_bootstrap_server_may_be_several(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", ["h", ":1", "h:x", "", "h:1,"])
def test_an_address_needs_host_and_port(text: str) -> None:
    with pytest.raises(KafkaError, match="not HOST:PORT"):
        parse_bootstrap(text)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("a.b=c", ConfigChange("a.b", "c", AlterConfigOp.SET)),
        ("a.b=", ConfigChange("a.b", "", AlterConfigOp.SET)),
        ("a.b=c=d", ConfigChange("a.b", "c=d", AlterConfigOp.SET)),
        ("a.b+=c", ConfigChange("a.b", "c", AlterConfigOp.APPEND)),
        ("a.b-=c,d", ConfigChange("a.b", "c,d", AlterConfigOp.SUBTRACT)),
    ],
)
def test_a_change_sets_adds_or_takes(text: str, change: ConfigChange) -> None:
    assert parse_change(text) == change


@pytest.mark.parametrize("text", ["a.b", "=c", "+=c"])
def test_a_change_needs_key_and_value(text: str) -> None:
    with pytest.raises(click.UsageError, match="write KEY=VALUE"):
        parse_change(text)


def test_configs_belong_to_exactly_one_resource() -> None:
    assert resource_from("t", None, False) == ConfigResource.topic("t")
    assert resource_from(None, 0, False) == ConfigResource.broker(0)
    assert resource_from(None, None, True) == ConfigResource.broker()
    with pytest.raises(click.UsageError):
        resource_from(None, None, False)


@pytest.mark.parametrize(
    ("position", "lag"),
    [
        (Position(3, 10), 7),
        (Position(10, 3), 0),
        (Position(None, 3), None),
        (Position(3, None), None),
    ],
)
def test_lag_is_what_is_left_to_read(position: Position, lag: int | None) -> None:
    assert position.lag == lag


def test_starting_a_broker_imports_no_tables_for_people() -> None:
    code = (
        "import sys, headwater.cli.app as app; app.command.get_command(None, 'up');"
        "print('\\n'.join(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert "headwater.cli.up" in loaded
    assert not {"rich", "asyncio", "difflib", "headwater.wire.apis"} & loaded


def test_python_dash_m_is_the_same_command() -> None:
    words = [sys.executable, "-m", "headwater", "--version"]
    out = subprocess.run(words, capture_output=True, text=True, check=True)
    assert out.stdout == f"headwater {__version__}\n"


INTERRUPTED = """
import os, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), number)

module, number = sys.argv[1], int(sys.argv[2])
sys.argv = ["headwater", "topics", "--help"]
from headwater.cli import main

sys.meta_path.insert(0, Interrupting())
main()
"""


@pytest.mark.parametrize("module", ["headwater.linux", "click", "headwater.cli.topics"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_imports_ends_the_command_quietly(
    module: str, number: signal.Signals, code: int
) -> None:
    words = [sys.executable, "-c", INTERRUPTED, module, str(int(number))]
    out = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (out.returncode, out.stdout, out.stderr) == (code, "", "")


@pytest.mark.parametrize(
    ("missing", "words", "extra"),
    [
        ("starlette", "collect http --topic t", "collect"),
        ("uvicorn", "collect http --topic t", "collect"),
        ("pyspark", "archive audit {folder}", "spark,lake"),
        ("pyspark", "archive replay {folder} --from 0 --to 1 --into t", "spark,lake"),
    ],
)
def test_a_missing_extra_is_one_clear_line(
    missing: str, words: str, extra: str, tmp_path: Path
) -> None:
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from headwater.cli import main\n"
        f"sys.argv = {['headwater', *words.format(folder=tmp_path).split()]!r}\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"Error: {missing} is not installed: pip install 'headwater[{extra}]'\n"


@pytest.mark.parametrize(
    ("written", "meant"),
    [(":", b":"), ("\\t", b"\t"), ("\t", b"\t"), ("\\0", b"\0"), ("é", "é".encode())],
)
def test_separators_may_be_written_with_a_backslash(written: str, meant: bytes) -> None:
    assert separator_bytes(written) == meant


@pytest.fixture(scope="module")
def one_topic() -> Iterator[str]:
    with Broker() as broker:
        broker.create_topic("t")
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("t", b"x" * 100_000).result(30)
        yield broker.bootstrap


FULL = "Error: cannot write to standard output: No space left on device"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("consume t >&-", "Error: standard output is closed; redirect it"),
        ("consume t >/dev/full", FULL),
        ("topics list >&-", "Error: standard output is closed; redirect it"),
        ("topics list --json >&-", '{"error": "standard output is closed; redirect it'),
        ("topics list >/dev/full", FULL),
        ("--help >/dev/full", FULL),
        ("completion bash >/dev/full", FULL),
        ("produce t <&-", "Error: standard input is closed; name files, or redirect it"),
        ("users add ada <&-", "Error: there is no terminal to type a password in"),
    ],
)
def test_a_standard_stream_that_is_closed_or_full_is_one_line(
    one_topic: str, words: str, said: str
):
    line = (
        f"unset HEADWATER_PASSWORD PYTHONUNBUFFERED; exec '{sys.executable}' -m headwater {words}"
    )
    environment = {**os.environ, "HEADWATER_BOOTSTRAP": one_topic}
    done = subprocess.run(
        ["sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False, env=environment
    )
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
    assert done.returncode == (2 if "users" in words else 1)


def test_full_standard_output_without_a_buffer_is_one_line():
    line = f"PYTHONUNBUFFERED=1 exec '{sys.executable}' -m headwater --help >/dev/full"
    done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"{FULL}\n")


def test_a_closed_stream_does_not_become_a_file_of_the_command(tmp_path: Path):
    script = (
        "import os; from headwater.cli import main; import headwater.cli.app as app;"
        "app.main = lambda: os._exit("
        "sum(os.readlink(f'/proc/self/fd/{n}') != os.devnull for n in range(3)));"
        "main()"
    )
    line = f"exec '{sys.executable}' -c \"{script}\" <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", line], check=False, cwd=tmp_path).returncode == 0
