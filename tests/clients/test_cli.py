"""The verbs on the clients, as people type them: produce, consume, perf, groups reset-offsets."""

import json

import pytest
from click.testing import CliRunner

import headwater
from headwater.cli.app import command


@pytest.fixture
def topic(broker):
    return broker.topic(partitions=2)


@pytest.fixture
def type_in(broker):
    def run(*words, stdin=None, ok=True):
        arguments = [*words, "--bootstrap-server", broker.bootstrap]
        done = CliRunner().invoke(command, arguments, input=stdin)
        assert (done.exit_code == 0) == ok, done.output
        return done.output

    return run


def printed(type_in, topic, *options):
    lines = type_in("consume", topic, "--format", "json", *options).splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda row: str(row["value"]))


def test_lines_become_records_and_are_printed_again(type_in, topic) -> None:
    said = type_in("produce", topic, "--partition", "1", stdin="one\ntwo\n\n")
    assert "sent 3 records" in said
    assert type_in("consume", topic) == "one\ntwo\n\n"
    assert type_in("consume", topic, "--count", "1") == "one\n"
    assert type_in("consume", topic, "--partition", "0") == ""


def test_keys_headers_and_nulls_are_told_apart(type_in, topic) -> None:
    type_in(
        *("produce", topic, "--key-separator", ":", "-H", "h=1", "--null", "NULL"),
        stdin="a:1:2\nb:NULL\n",
    )
    nothing, something = sorted(printed(type_in, topic), key=lambda row: row["value"] is not None)
    assert (something["key"], something["value"]) == ("a", "1:2")
    assert something["headers"] == [{"name": "h", "value": "1"}]
    assert (nothing["key"], nothing["value"]) == ("b", None)
    assert "a|1:2\n" in type_in("consume", topic, "--format", "key-value", "--separator", "|")
    refused = type_in("produce", topic, "--key-separator", "|", stdin="a:1\n", ok=False)
    assert "no '|'" in refused


def test_json_lines_may_say_everything_of_a_record(type_in, topic) -> None:
    record = {"value": {"a": [1]}, "key": "k", "headers": {"h": "x"}, "partition": 1}
    line = json.dumps({**record, "timestamp": 1234})
    type_in("produce", topic, "--format", "json", stdin=line + "\n")
    (row,) = printed(type_in, topic)
    assert json.loads(row["value"]) == {"a": [1]}
    assert (row["key"], row["partition"], row["timestamp"]) == ("k", 1, 1234)
    for wrong, said in [("{", "line 1"), ("[]", "value"), ('{"value":1,"vlaue":2}', "vlaue")]:
        assert said in type_in("produce", topic, "--format", "json", stdin=wrong, ok=False)


def test_a_file_may_be_one_record(type_in, topic, tmp_path) -> None:
    (tmp_path / "picture").write_bytes(b"\xff\x00\n\x01")
    type_in("produce", topic, str(tmp_path / "picture"), "--format", "file")
    (row,) = [json.loads(one) for one in type_in("consume", topic, "--format", "json").splitlines()]
    assert row["value_base64"] == "/wAKAQ=="
    assert "@0 " in type_in("consume", topic, "--format", "full")


def test_consume_starts_and_stops_where_it_is_told(broker, type_in, topic) -> None:
    with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0, timestamp=1_000_000 + 1000 * number)

    def digits(*options):
        return type_in("consume", topic, *options).replace("\n", "")

    assert digits("--from", "7") == "789"
    assert digits("--from", "-2") == "89"
    assert digits("--from", "3", "--until", "6") == "345"
    assert digits("--from", "1970-01-01T00:16:48") == "89"
    assert digits("--until", "1970-01-01T00:16:42") == "01"
    assert digits("--from", "latest") == ""
    assert digits("--from", "PT1H") == ""
    assert "write earliest" in type_in("consume", topic, "--from", "soon", ok=False)


def test_a_group_remembers_what_was_printed(type_in, topic) -> None:
    type_in("produce", topic, stdin="1\n2\n")
    assert sorted(type_in("consume", topic, "--group", "g-" + topic).split()) == ["1", "2"]
    type_in("produce", topic, stdin="3\n")
    assert type_in("consume", topic, "--group", "g-" + topic) == "3\n"
    reset = ("groups", "reset-offsets", "g-" + topic, "--topic", topic)
    dry = json.loads(type_in(*reset, "--to-earliest", "--dry-run", "--json"))
    assert sum(row["before"] for row in dry) == 3
    assert [row["after"] for row in dry] == [0, 0]
    assert "this would change" in type_in(*reset, "--to-earliest", "--dry-run")
    assert type_in("consume", topic, "--group", "g-" + topic, "--count", "1", ok=True) == ""
    table = type_in(*reset, "--to-earliest")
    assert table.splitlines()[1].split() == ["TOPIC", "PARTITION", "BEFORE", "AFTER"]
    assert len(type_in("consume", topic, "--group", "g-" + topic).split()) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--topic or --all-topics"),
        (("--topic", "t"), "give one of --to-earliest"),
        (("--topic", "t", "--to-latest", "--to-current"), "give one of"),
        (("--topic", "t:x", "--to-latest"), "TOPIC:0,1"),
        (("--topic", "t", "--by-duration", "1h"), "such as PT1H30M"),
        (("--topic", "no-such-topic", "--to-latest"), "headwater topics create no-such-topic"),
    ],
)
def test_a_reset_says_what_it_lacks(type_in, options, said) -> None:
    assert said in type_in("groups", "reset-offsets", "g", *options, ok=False)


def test_perf_tells_rates_and_percentiles(type_in, topic) -> None:
    told = json.loads(type_in("perf", "produce", topic, "-n", "2000", "-s", "50", "--json"))
    assert told["records"] == 2000
    assert 0 < told["p50_ms"] <= told["p999_ms"] <= told["max_ms"]
    told = json.loads(type_in("perf", "consume", topic, "--json"))
    assert (told["records"], told["records_per_s"] > 0) == (2000, True)
    assert json.loads(type_in("perf", "consume", topic, "--arrow", "--json"))["records"] == 2000
    assert "P50_MS" in type_in("perf", "e2e", topic, "-n", "100", "--rate", "500")


def test_users_come_change_and_go(type_in, tmp_path, monkeypatch) -> None:
    secret = tmp_path / "password"
    secret.write_text("from the file\n")
    assert "no terminal to type a password in" in type_in("users", "add", "ann", ok=False)
    monkeypatch.setenv("HEADWATER_PASSWORD", "from the environment")
    assert "would be added" in type_in("users", "add", "ann", "--dry-run")
    assert "there is no user 'ann'" in type_in("users", "remove", "ann", ok=False)
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512")
    type_in("users", "add", "ann", *both, "--password-file", str(secret), "--iterations", "4096")
    assert "already has a password" in type_in("users", "add", "ann", ok=False)
    type_in("users", "set-password", "ann")
    rows = json.loads(type_in("users", "list", "ann", "--json"))
    assert [(row["mechanism"], row["iterations"]) for row in rows] == [
        ("SCRAM-SHA-256", 8192),
        ("SCRAM-SHA-512", 8192),
    ]
    type_in("users", "remove", "ann", "--mechanism", "SCRAM-SHA-256")
    refused = type_in("users", "remove", "ann", "--mechanism", "SCRAM-SHA-256", ok=False)
    assert "has no password for SCRAM-SHA-256" in refused
    assert "removed (SCRAM-SHA-512)" in type_in("users", "remove", "ann")
    assert "ann" in type_in("users", "list", "ann", ok=False)


def test_quotas_come_change_and_go(type_in) -> None:
    assert "would be set" in type_in(
        "quotas", "set", "--user", "q", "producer_byte_rate=5", "--dry-run"
    )
    assert "has no quota" in type_in("quotas", "remove", "--user", "q", ok=False)
    type_in("quotas", "set", "--user", "q", "producer_byte_rate=5e6", "request_percentage=12.5")
    type_in("quotas", "set", "--user", "q", "--default-client-id", "consumer_byte_rate=7")
    type_in("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=9")
    rows = json.loads(type_in("quotas", "list", "--json"))
    assert [
        (row["user"], row["client_id"], row["ip"], row["quota"], row["value"]) for row in rows
    ] == [
        (None, None, "10.0.0.1", "connection_creation_rate", 9.0),
        ("q", None, None, "producer_byte_rate", 5e6),
        ("q", None, None, "request_percentage", 12.5),
        ("q", "(default)", None, "consumer_byte_rate", 7.0),
    ]
    for wrong, said in (
        (("--user", "q", "producer_byte_rate=-1"), "must be greater than 0"),
        (("--user", "q", "bytes=1"), "bytes"),
        (("--user", "q", "producer_byte_rate=fast"), "write KEY=NUMBER"),
        (("producer_byte_rate=1",), "name whom the quota is for"),
        (("--user", "q", "--default-user", "producer_byte_rate=1"), "either --user or"),
        (("--user", "q", "--ip", "::1", "connection_creation_rate=1"), "cannot be combined"),
    ):
        assert said in type_in("quotas", "set", *wrong, ok=False)
    refused = type_in("quotas", "remove", "--user", "q", "consumer_byte_rate", ok=False)
    assert "user 'q' has no consumer_byte_rate" in refused
    assert "removed request_percentage" in type_in(
        "quotas", "remove", "--user", "q", "request_percentage"
    )
    type_in("quotas", "remove", "--user", "q", "--default-client-id")
    type_in("quotas", "remove", "--user", "q")
    type_in("quotas", "remove", "--ip", "10.0.0.1")
    assert "no quotas are set" in type_in("quotas", "list")
