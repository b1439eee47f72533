"""Asks Kafka's own message classes, in a JVM, for the bytes of our messages."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tools.jars import JarsUnavailable
from tools.java import SHORT_LIVED, java

from headwater.model import uuid_text
from headwater.wire.fields import BYTES, RECORDS, UUID, Array, Nested
from headwater.wire.schema import Struct
from tests.unit.wire.samples import kafkas_fields

_ORACLE = Path(__file__).with_name("Oracle.java")
_ODD_NAMES = {"enable_2pc": "enable2Pc", "is_kraft_controller": "isKRaftController"}


def written_by_java(jars: str, messages: list[tuple[Struct, int]]) -> list[bytes | None]:
    """The bytes that the Kafka of set `jars` gives each message; None where it has no such thing."""
    if shutil.which("javac") is None:
        raise JarsUnavailable("no javac on the PATH: install a JDK 17 or later")
    asked = "".join(f"{_line(message, version)}\n" for message, version in messages)
    done = subprocess.run(
        java(*SHORT_LIVED, str(_ORACLE), jars=jars),
        input=asked.encode(),
        capture_output=True,
        check=False,
        timeout=100,
    )
    answers = done.stdout.decode().splitlines()
    if done.returncode or len(answers) != len(messages):
        raise AssertionError(f"the oracle broke: {done.stderr.decode()[-2000:]}")
    return [_bytes(answer, message) for answer, (message, _) in zip(answers, messages, strict=True)]


def _bytes(answer: str, message: Struct) -> bytes | None:
    if answer == "absent":
        return None
    if answer.startswith("error"):
        raise AssertionError(f"{message!r}: {answer}")
    return bytes.fromhex(answer)


def _line(message: Struct, version: int) -> str:
    return f"{message.__schema__.name} {version} {json.dumps(_node(message, version))}"


def _node(value: Struct, version: int) -> dict[str, Any]:
    """The message in the form of Kafka's JsonConverters: the fields of this version, all of them."""
    held = kafkas_fields(type(value), version)
    return {_camel(f.name): _plain(f.type, getattr(value, f.name), version) for f in held}


def _plain(kind: Any, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, Nested):
        return _node(value, version)
    if isinstance(kind, Array):
        return [_plain(kind.of, item, version) for item in value]
    if kind is UUID:
        return uuid_text(value)
    if kind in (BYTES, RECORDS):
        return base64.b64encode(value).decode()
    return value


def _camel(name: str) -> str:
    return _ODD_NAMES.get(name) or re.sub(r"_(\w)", lambda m: m[1].upper(), name)
