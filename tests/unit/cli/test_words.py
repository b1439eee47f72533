"""What commands say and take, without a broker: mistakes, Kafka's scripts, templates, JSON records."""

import json

import pytest
from click.testing import CliRunner, Result

from headwater.cli.app import command
from headwater.cli.kafka_scripts import answer
from headwater.cli.produce import InputRecord, _json_record
from headwater.cli.record_format import RecordFormatError, compile_template
from headwater.cli.up import settings_from
from headwater.client.consumer.record import ConsumerRecord

NOBODY = "127.0.0.1:1"
NO_BROKER = f"Error: cannot connect to {NOBODY} (Connection refused); start a broker with"


def run(*words: str) -> Result:
    return CliRunner().invoke(command, words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("topic", "list"), "No such command 'topic'; did you mean topics?"),
        (("topics", "creat", "t"), "No such command 'creat'; did you mean create?"),
        (
            ("groups", "reset-offsets", "g", "--all-topics", "--to-datetime", "x"),
            "2026-01-31T12:00",
        ),
        (("consume", "t", "--group", "g", "--from", "latest"), "leave out --from"),
        (("consume", "t", "--format", "%x"), "there is no %x"),
        (("consume", "t", "--format", "jsn"), "write value, key-value, json, full or a template"),
        (("topics", "trim", "t", "--before", "start"), "write an offset, or end"),
        (("collect", "http"), "name one TOPIC"),
        (("collect", "tail", "events"), "FILEs to follow"),
        (("groups", "describe"), "name groups, or give --all"),
        (("consume", "t", "--isolation-level", "x"), "write --isolation read-committed"),
        (("perf", "produce", "t", "-o", "transactional.id=x"), "give --transactional"),
        (("produce", "t", "-o", "transactional.id=x"), "produce sends no transactions: remove it"),
        (("produce", "t", "--key-separator", ""), "--key-separator is empty: write a text"),
        (("transactions", "abort", "t", "--start-offset", "1"), "t: write TOPIC:PARTITION"),
        (("transactions", "find-hanging", "t:x"), "t:x: write TOPIC:PARTITION"),
        (
            (
                "pipeline",
                "ingest",
                "t",
                "--to",
                "delta:t",
                "--schema",
                "infer",
                "--master",
                "locl[2]",
            ),
            "--master locl[2]: write local[2], spark://host:7077",
        ),
        (("archive", "audit", "/nowhere"), "/nowhere: there is no such folder or file"),
        (("--frob",), "No such option"),
        (
            ("topics", "create", "--topic", "t"),
            "the name is an argument: headwater topics create TOPIC",
        ),
        (("groups", "describe", "--group", "g"), "headwater groups describe GROUP"),
        (("--bootstrap-server", "h:1", "topics", "list"), "write it after the command"),
        (("topics", "list", "-b", "h:1"), "write --bootstrap-server HOST:PORT"),
        (("topics", "--list"), "write headwater topics list"),
        (("topics",), "name a command: create, list"),
        (("completion",), "Choose from: bash, zsh, fish"),
    ],
)
def test_wrong_words_are_one_line_with_the_remedy(words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "list"),
        ("produce", "t"),
        ("consume", "t"),
        ("consume", "t", "--group", "g"),
        ("groups", "reset-offsets", "g", "--all-topics", "--to-earliest"),
        ("groups", "describe", "--all"),
        ("configs", "describe", "--broker", "1"),
        ("cluster",),
        ("perf", "produce", "t"),
        ("perf", "e2e", "t"),
        ("pipeline", "ingest", "t", "--to", "delta:t", "--schema", "infer"),
        ("archive", "replay", ".", "--from", "0", "--to", "1", "--into", "t"),
    ],
)
def test_without_a_broker_every_command_says_so_at_once(words: tuple[str, ...]) -> None:
    result = run(*words, "--bootstrap-server", NOBODY)
    assert result.exit_code == 1
    assert result.stderr.startswith(NO_BROKER)
    assert result.stderr.count("\n") == 1


def test_the_bare_command_prints_its_help() -> None:
    result = run()
    assert result.exit_code == 2
    assert "Start a broker, or a cluster of several." in result.stderr


@pytest.mark.parametrize("words", [("topics", "list"), ("consume", "t")])
@pytest.mark.parametrize("address", ["localhost", "localhost:99999"])
def test_a_bad_address_is_told_in_the_same_words_by_every_command(
    words: tuple[str, ...], address: str
) -> None:
    result = run(*words, "--bootstrap-server", address)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: bootstrap.servers cannot be {address!r}: ")


def test_with_json_an_error_is_json_as_well() -> None:
    result = run("topics", "list", "--json", "--bootstrap-server", NOBODY)
    assert result.stdout == ""
    assert json.loads(result.stderr)["code"] == "BROKER_NOT_AVAILABLE"


@pytest.mark.parametrize(
    ("script", "words", "line"),
    [
        ("kafka-topics", "--zookeeper z:2181 --list", "name a broker with --bootstrap-server"),
        ("kafka-topics", "--zookeeper z:2181 --list", "type: headwater topics list"),
        (
            "kafka-topics",
            "--create --topic t --partitions 3 --config a=b --bootstrap-server h:1",
            "type: headwater topics create t --partitions 3 --config a=b --bootstrap-server h:1",
        ),
        ("kafka-topics", "--describe", "headwater topics describe"),
        ("kafka-configs", "--entity-type brokers --entity-default --alter --add-config a=b,c=d",
         "headwater configs set --cluster-default a=b c=d"),
        ("kafka-configs", "--topic t --alter --delete-config a", "headwater configs unset --topic t a"),
        ("kafka-consumer-groups", "--describe --group g", "headwater groups describe g"),
        (
            "kafka-consumer-groups",
            "--group g --reset-offsets --to-earliest --all-topics --execute",
            "headwater groups reset-offsets g --all-topics --to-earliest",
        ),
        ("kafka-consumer-groups", "--group g --reset-offsets --shift-by -3 --topic t", "--dry-run"),
        ("kafka-console-producer", "--broker-list h:1 --topic t", "headwater produce t"),
        ("kafka-console-producer", "--broker-list h:1 --topic t", "it is --bootstrap-server"),
        ("kafka-console-consumer", "--topic t --from-beginning", "headwater consume t --follow"),
        ("kafka-console-consumer", "--topic t", "headwater consume t --from latest --follow"),
        ("kafka-console-consumer", "--topic t --partition 1 --offset 5 --max-messages 3",
         "type: headwater consume t --from 5 --partition 1 --count 3 --follow"),
        ("kafka-console-consumer", "--topic t --from-beginning --property print.key=true --property key.separator=,",
         "headwater consume t --format key-value --separator , --follow"),
        ("kafka-console-consumer", "--topic t --group g --timeout-ms 9 --property print.offset=true",
         r"headwater consume t --group g -o auto.offset.reset=latest --format '%o\t%s\n'"),
        ("kafka-console-consumer", "--topic t --isolation-level read_committed --consumer.config c.properties",
         "headwater --config c.properties consume t --from latest --isolation read-committed"),
        ("kafka-console-consumer", "--include a.* --property print.schema=true",
         "without a counterpart: --include a.*, --property print.schema=true; type:"),
        ("kafka-console-producer", "--topic t --property parse.key=true --compression-codec zstd",
         r"headwater produce t --key-separator $'\t' -o compression.type=zstd"),
        ("kafka-topics", "--create --topic t --replica-assignment 0:1", "counterpart: --replica-assignment 0:1;"),
        ("kafka-configs", "--entity-type topics --entity-name t --add-config a=[b,c],d=e",
         "headwater configs set --topic t a=b,c d=e"),
        ("kafka-configs", "--entity-type groups --entity-name u --add-config a=b", "configs of groups are not served"),
        ("kafka-configs", "--entity-type clients --entity-default --alter --add-config producer_byte_rate=5",
         "headwater quotas set --default-client-id producer_byte_rate=5"),
        ("kafka-configs", "--entity-type users --entity-name u --entity-type clients --entity-name c --alter "
         "--delete-config request_percentage", "headwater quotas remove --user u --client-id c request_percentage"),
        ("kafka-configs", "--entity-type ips --describe", "headwater quotas list"),
        ("kafka-configs", "--entity-type users --entity-name u --alter --add-config SCRAM-SHA-256=[iterations=8192,password=p]",
         "headwater users add u --mechanism SCRAM-SHA-256"),
        ("kafka-configs", "--entity-type users --entity-name u --alter --delete-config SCRAM-SHA-512",
         "headwater users remove u --mechanism SCRAM-SHA-512"),
        ("kafka-configs", "--entity-type users --describe", "headwater users list"),
        ("kafka-consumer-groups", "--group g --delete-offsets --topic t", "delete_group_offsets()"),
        ("kafka-producer-perf-test", "--topic t --throughput 9 --producer-props bootstrap.servers=h:1 acks=1",
         "headwater perf produce t --rate 9 --bootstrap-server h:1 -o acks=1"),
        ("kafka-producer-perf-test", "--topic t --transactional-id x --transaction-duration-ms 9",
         "headwater perf produce t --transactional -o transactional.id=x --transaction-duration-ms 9"),
        ("kafka-transactions", "--bootstrap-server h:1 list --duration-filter 9",
         "type: headwater transactions list --longer-than 9 --bootstrap-server h:1"),
        ("kafka-transactions", "--bootstrap-server h:1 describe --transactional-id x",
         "type: headwater transactions describe x --bootstrap-server h:1"),
        ("kafka-transactions", "--bootstrap-server h:1 describe-producers --topic t --partition 2 --broker-id 3",
         "type: headwater producers t:2 --broker 3 --bootstrap-server h:1"),
        ("kafka-transactions", "--bootstrap-server h:1 find-hanging --broker-id 3 --max-transaction-timeout 20",
         "type: headwater transactions find-hanging --broker 3 --max-transaction-timeout 20 --bootstrap"),
        ("kafka-transactions", "--bootstrap-server h:1 abort --topic t --partition 2 --start-offset 7",
         "type: headwater transactions abort t:2 --start-offset 7 --bootstrap-server h:1"),
        ("kafka-server-start", "-daemon f --override a=b", "headwater up --config f -o a=b"),
        ("zookeeper-server-start", "zoo.properties", "headwater store"),
        ("kafka-server-stop", "", "send it SIGTERM"),
        ("kafka-storage", "format -t id -c server.properties", "type headwater up"),
        ("kafka-delete-records", "--offset-json-file f", "headwater topics trim"),
        ("kafka-delegation-tokens", "--create --max-life-time-period 5000 --renewer-principal User:a --owner-principal User:b",
         "headwater tokens create --owner User:b --renewer User:a --lifetime PT5S"),
        ("kafka-delegation-tokens", "--create --max-life-time-period -1", "type: headwater tokens create"),
        ("kafka-delegation-tokens", "--describe --owner-principal User:b", "type: headwater tokens list --owner User:b"),
        ("kafka-delegation-tokens", "--renew --renew-time-period 90000 --hmac secret",
         "type: headwater tokens renew TOKEN --for PT90S"),
        ("kafka-delegation-tokens", "--expire --expiry-time-period -1 --hmac secret", "type: headwater tokens expire TOKEN"),
        ("kafka-acls", "--add --allow-principal User:a --operation CreateTokens --user-principal User:b",
         "headwater acls allow a create-tokens user User:b"),
        ("kafka-acls", "--authorizer-properties x --list", "--authorizer-properties was removed"),
        ("kafka-preferred-replica-election", "--zookeeper z:1", "was removed from Kafka"),
        ("kafka-frobnicate", "", "is not a known script"),
    ],
)  # fmt: skip
def test_kafkas_scripts_are_answered_with_the_line_to_type(
    script: str, words: str, line: str
) -> None:
    assert line in answer(script, words.split())
    result = run(f"{script}.sh", *words.split())
    assert result.exit_code == 2
    assert line in result.stderr


@pytest.mark.parametrize(
    "words",
    ["topics create t", "configs set --topic t a=b", "topics trim t", "tokens renew t --for PT90S"],
)
def test_the_lines_that_are_answered_are_commands(words: str) -> None:
    assert "No such command" not in run(*words.split(), "--help").output


RECORD = ConsumerRecord("t", 2, 7, 5, 0, b"k", b"v", (("h", b"1"),))


def test_a_template_prints_what_its_letters_say() -> None:
    write = compile_template(r"%t[%p]@%o %k=%s %T %h %K/%S 100%%\n")
    assert write(RECORD) == b"t[2]@7 k=v 5 h=1 1/1 100%\n"
    assert compile_template("%k%s%S")(RECORD._replace(key=None, value=None)) == b"-1"
    with pytest.raises(RecordFormatError, match="there is no %q"):
        compile_template("%q")


def test_produce_takes_the_json_that_consume_writes() -> None:
    written = {
        "topic": "t",
        "partition": 1,
        "offset": 9,
        "timestamp": 5,
        "key": None,
        "value_base64": "/w==",
        "headers": [{"name": "a", "value": "x"}, {"name": "b", "value_base64": "/g=="}],
    }
    line = InputRecord(b"\xff", None, (("a", b"x"), ("b", b"\xfe")), 1, 5)
    assert _json_record(written) == line
    assert _json_record({"value": {"n": 1}, "headers": {"a": "x"}}) == InputRecord(
        b'{"n":1}', None, (("a", b"x"),)
    )


@pytest.mark.parametrize("field", ["partition", "timestamp"])
@pytest.mark.parametrize("value", ["0", -5, 1.5, True, 1 << 63])
def test_a_number_of_a_json_record_must_be_one(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f'"{field}" is .*: write a whole number'):
        _json_record({"value": "x", field: value})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"headers": 5}, '"headers" is 5: write'),
        ({"headers": [{"x": 1}]}, '"headers" is .*: write'),
        ({"headers": [["a"]]}, '"headers" is .*: write'),
        ({"key_base64": 12}, '"key_base64" is not base64: 12'),
        ({"key": "\ud800"}, "half of a surrogate pair"),
    ],
)
def test_what_is_wrong_with_a_json_record_is_said(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        _json_record({"value": "x", **given})


def test_a_profile_of_up_sets_what_brokers_need_and_options_win() -> None:
    durable = settings_from(None, None, None, (), "durable")
    assert (durable.default_replication_factor, durable.min_insync_replicas) == (3, 2)
    chosen = settings_from(None, None, None, ("default.replication.factor=1",), "durable")
    assert chosen.default_replication_factor == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_commands(shell: str) -> None:
    script = run("completion", shell).stdout
    assert "_HEADWATER_COMPLETE" in script


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("consume orders --json", "write --format json"),
        ("consume orders --from-beginning", "reading starts at the beginning"),
        ("topics list --command-config f", "write headwater --config FILE topics list"),
        ("configs describe --user a", "quotas in headwater quotas list --user"),
        ("consume --topic orders", "headwater consume TOPIC"),
        ("consume orders --max-messages 5", "write --count N"),
        ("produce --topic orders", "headwater produce TOPIC"),
        ("topics --list", "write headwater topics list"),
        ("groups --reset-offsets", "write headwater groups reset-offsets"),
    ],
)
def test_options_of_kafka_s_scripts_lead_to_ours(words, hint):
    refused = CliRunner().invoke(command, words.split())
    assert refused.exit_code == 2
    assert "No such option" in refused.stderr
    assert hint in refused.stderr
