"""The users of a new cluster in a file, as credentials that cannot be used to log in. Pure.

A line has a user and a mechanism: `SCRAM-SHA-512.alice=salt=...,stored_key=...,server_key=...,
iterations=8192`, in the format of Java's properties.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.security.scram_credentials import (
    SCRAM,
    ScramCredential,
    iterations_problem,
    user_name_problem,
)


class FileCredential(NamedTuple):
    """A credential of the file."""

    user: str
    mechanism: str
    credential: ScramCredential


def credentials_of(lines: Mapping[str, str]) -> list[FileCredential]:
    """Return the credentials of a file's properties; ValueError without secrets for a bad one."""
    return [_credential(name, text) for name, text in lines.items()]


def lines_of(credentials: Iterable[FileCredential]) -> dict[str, str]:
    """Return the properties for credentials; `credentials_of` reads them."""
    return {f"{one.mechanism}.{one.user}": one.credential.encode() for one in credentials}


def _credential(name: str, text: str) -> FileCredential:
    mechanism, _, user = name.partition(".")
    if mechanism not in SCRAM:
        raise ValueError(f"{name!r} is not like {next(iter(SCRAM))}.alice")
    try:
        credential = ScramCredential.decode(text)
    except ValueError as unreadable:
        raise ValueError(f"{name}: {unreadable}") from None
    problem = user_name_problem(user) or iterations_problem(credential.iterations)
    if problem is not None:
        raise ValueError(f"{name}: {problem}")
    return FileCredential(user, mechanism, credential)
