"""JAAS: logins as Kafka writes them, in `sasl.jaas.config` and in files. Pure.

An entry is `Module flag key="value" ...;`. A file has sections: `KafkaClient { entries };`. Messages
name a line, never a value: values are passwords.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headwater.config.keys import ConfigError

FLAGS = ("required", "requisite", "sufficient", "optional")
_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
_PACKAGES = {
    "PlainLoginModule": "org.apache.kafka.common.security.plain.",
    "ScramLoginModule": "org.apache.kafka.common.security.scram.",
    "OAuthBearerLoginModule": "org.apache.kafka.common.security.oauthbearer.",
}
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<word>[A-Za-z0-9_$.-]+)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<sign>[={};])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ConfigError):
    """A login configuration that cannot be used; the message names no value."""


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module with its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Return the SASL mechanisms that the module serves; JaasError for an unknown module."""
        package, dot, name = self.module.rpartition(".")
        if name in _MODULES and _PACKAGES[name] == package + dot:
            return _MODULES[name]
        known = ", ".join(f"{_PACKAGES[one]}{one}" for one in _MODULES)
        raise JaasError(f"the login module {self.module} is not supported; use one of {known}")


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def parse_jaas(text: str) -> list[JaasEntry]:
    """Parse the value of `sasl.jaas.config`: one or more entries; JaasError otherwise."""
    tokens = _Tokens(text)
    entries = []
    while not tokens.at_end:
        entries.append(_entry(tokens))
    if not entries:
        raise JaasError("the login configuration is empty")
    return entries


def read_jaas_file(path: str) -> dict[str, list[JaasEntry]]:
    """Read a JAAS file; ConfigError if that is not possible."""
    try:
        return parse_jaas_file(Path(path).read_text())
    except JaasError as wrong:
        raise JaasError(f"{path}: {wrong.message}") from None
    except (OSError, UnicodeDecodeError) as unreadable:
        raise JaasError(f"{path} cannot be read: {unreadable}") from None


def parse_jaas_file(text: str) -> dict[str, list[JaasEntry]]:
    """Parse a JAAS file: its entries by section; JaasError otherwise."""
    tokens = _Tokens(text)
    sections: dict[str, list[JaasEntry]] = {}
    while not tokens.at_end:
        name = tokens.take("word", "text", what="the name of a section").text
        if name in sections:
            raise JaasError(f"the section {name} appears twice")
        tokens.take_sign("{")
        sections[name] = []
        while not tokens.next_is("}"):
            sections[name].append(_entry(tokens))
        tokens.take_sign("}")
        tokens.take_sign(";")
    return sections


def _entry(tokens: "_Tokens") -> JaasEntry:
    module = tokens.take("word", what="the class of a login module").text
    flag = tokens.take("word", what=f"one of {', '.join(FLAGS)}")
    if flag.text.lower() not in FLAGS:
        raise JaasError(f"line {flag.line}: expected one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    while not tokens.next_is(";"):
        name = tokens.take("word", "text", what="an option or ';'")
        tokens.take_sign("=")
        if name.text in options:
            raise JaasError(f"line {name.line}: an option appears twice")
        options[name.text] = tokens.take("word", "text", what="a value").text
    tokens.take_sign(";")
    return JaasEntry(module, options)


class _Tokens:
    def __init__(self, text: str) -> None:
        self._left = iter(_scan(text))
        self._next: _Token | None = next(self._left, None)

    @property
    def at_end(self) -> bool:
        return self._next is None

    def next_is(self, sign: str) -> bool:
        return self._next is not None and self._next[:2] == ("sign", sign)

    def take_sign(self, sign: str) -> None:
        if not self.next_is(sign):
            raise self._expected(repr(sign))
        self._next = next(self._left, None)

    def take(self, *kinds: str, what: str) -> _Token:
        token = self._next
        if token is None or token.kind not in kinds:
            raise self._expected(what)
        self._next = next(self._left, None)
        return token

    def _expected(self, what: str) -> JaasError:
        where = "at its end" if self._next is None else f"in line {self._next.line}"
        return JaasError(f"the login configuration lacks {what} {where}")


def _scan(text: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise JaasError(
                f"line {line}: the login configuration has a character that needs quotes, or "
                "quotes that do not end"
            )
        kind = found.lastgroup or ""
        value = found[0]
        if kind != "space":
            yield _Token(kind, _unquoted(value) if kind == "text" else value, line)
        line += value.count("\n")
        position = found.end()


def _unquoted(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPED.get(escaped, escaped)
