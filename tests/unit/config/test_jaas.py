"""JAAS as Kafka's documentation, scripts and users write it; no message shows a value."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.config.jaas import JaasError, parse_jaas, parse_jaas_file

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_one_line_as_in_client_properties():
    (entry,) = parse_jaas(f'{SCRAM} required username="alice" password="alice-secret";')
    assert entry.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert entry.options == {"username": "alice", "password": "alice-secret"}
    assert "secret" not in repr(entry)


def test_a_file_as_in_kafka_s_documentation():
    sections = parse_jaas_file(
        f"""
        // the brokers
        KafkaServer {{
            {PLAIN} required
            username="admin"
            password='admin-secret'
            user_admin="admin-secret"   /* for the
                                           clients */
            user_al="a//b/*c*/;{{}}=";
        }};
        KafkaClient {{ {SCRAM} REQUIRED username=bob password=b-_$1.2; }};
        Client {{ }};
        """
    )
    assert list(sections) == ["KafkaServer", "KafkaClient", "Client"]
    (server,) = sections["KafkaServer"]
    assert server.mechanisms == ("PLAIN",)
    assert server.options["user_al"] == "a//b/*c*/;{}="
    assert sections["KafkaClient"][0].options == {"username": "bob", "password": "b-_$1.2"}
    assert sections["Client"] == []


def test_escapes_are_java_s():
    (entry,) = parse_jaas(rf'{SCRAM} required a="\"\\\t\x\101\60" b="";')
    assert entry.options == {"a": '"\\\txA0', "b": ""}


def test_several_entries():
    entries = parse_jaas(f"{SCRAM} required a=1; {PLAIN} optional b=2;")
    assert [entry.mechanisms[0] for entry in entries] == ["SCRAM-SHA-256", "PLAIN"]


@pytest.mark.parametrize("module", ["ScramLoginModule", "com.evil.PlainLoginModule", "x"])
def test_another_class_is_refused_by_name(module):
    (entry,) = parse_jaas(f"{module} required;")
    with pytest.raises(JaasError, match=f"{module} is not supported"):
        _ = entry.mechanisms


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        (f"{SCRAM};", "one of required"),
        (f"{SCRAM} needed;", "one of required"),
        (f'{SCRAM} required password="hunter2"', "lacks an option or ';' at its end"),
        (f"{SCRAM} required password=hunter2 password=b;", "twice"),
        (f'{SCRAM} required\n password="hunter2', "line 2: .* quotes"),
        (f"{SCRAM} required\n\n password=hunter2@;", "line 3: .* quotes"),
        (f"{SCRAM} required password;", "lacks '=' in line 1"),
        (f"{SCRAM} required password=;", "lacks a value"),
    ],
)
def test_what_cannot_be_read_is_refused_without_showing_it(text, says):
    with pytest.raises(JaasError, match=says) as refused:
        parse_jaas(text)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("text", ["A { };A { };", "A {", "A { }", "{ };", "A;"])
def test_a_broken_file_is_refused(text):
    with pytest.raises(JaasError):
        parse_jaas_file(text)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=12), max_size=4))
def test_any_value_survives_quotes(options):
    written = " ".join(f"{quoted(name)}={quoted(value)}" for name, value in options.items())
    (entry,) = parse_jaas(f"{SCRAM} required {written};")
    assert entry.options == options


@given(st.text(max_size=80) | st.text(alphabet="ab;={}\"'/*\\ \n", max_size=80))
def test_noise_is_read_or_refused(text):
    for parse in (parse_jaas, parse_jaas_file):
        with contextlib.suppress(JaasError):
            parse(text)
