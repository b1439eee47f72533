"""`headwater users`: list, add, set-password, remove; users that log in with SCRAM."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from headwater.cli.options import user_name, with_admin
from headwater.cli.output import show
from headwater.cli.tokens import time_text
from headwater.client.admin import (
    Admin,
    DelegationToken,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from headwater.config.jaas import JaasError, parse_jaas
from headwater.config.properties import read_properties
from headwater.errors import E, KafkaError
from headwater.security.scram_credentials import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM,
    SCRAM_SHA_512,
)

PASSWORD_VARIABLE = "HEADWATER_PASSWORD"
MOST_NAMED = 10
"""Of the delegation tokens of a user who is removed."""
_NO_TOKENS = (
    E.DELEGATION_TOKEN_AUTH_DISABLED,
    E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    E.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    E.UNSUPPORTED_VERSION,
)

_mechanisms = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(list(SCRAM), case_sensitive=False),
    help="A SCRAM mechanism; may be repeated.",
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
_iterations = click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    help="How expensive it is to try a password.",
)


def _with_password(work: Callable[..., Any]) -> Callable[..., Any]:
    """Pass `password` to a command; a prompt comes before the event loop, which would hold Ctrl-C."""

    @click.option(
        "--password-file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help=f"Read the password from the first line of FILE, or from the login of the user's "
        f"settings in FILE.properties. Default: the environment variable {PASSWORD_VARIABLE}, or a "
        "prompt.",
    )
    @wraps(work)
    def run(*, name: str, password_file: str | None, **chosen: object) -> object:
        return work(name=name, password=_password(name, password_file), **chosen)

    return run


@click.group("users")
def command() -> None:
    """List, add and remove users that log in with SCRAM; set their passwords."""


@command.command("list")
@click.argument("names", nargs=-1, metavar="[USER]...")
@with_admin
async def list_users(admin: Admin, names: tuple[str, ...], as_json: bool) -> None:
    """Show users with their mechanisms and iterations."""
    found = await admin.describe_user_scram_credentials(names or None)
    rows = [
        {"user": user, "mechanism": mechanism, "iterations": iterations}
        for user, credentials in sorted(found.items())
        for mechanism, iterations in sorted(credentials.items())
    ]
    show(
        rows, as_json=as_json, nothing="there are no users; add one with: headwater users add NAME"
    )


@command.command("add")
@click.argument("name", callback=user_name)
@_mechanisms
@_iterations
@_with_password
@_dry_run
@with_admin
async def add(
    admin: Admin,
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Add a user; by default with SCRAM-SHA-512."""
    chosen = mechanisms or (SCRAM_SHA_512.name,)
    present = await _mechanisms_of(admin, name)
    taken = sorted(present & set(chosen))
    if taken:
        raise KafkaError(
            E.DUPLICATE_RESOURCE,
            f"user {name!r} already has a password for {', '.join(taken)}; change it with: "
            f"headwater users set-password {name}",
        )
    if not dry_run:
        await _set(admin, name, password, chosen, iterations)
    _report(name, chosen, "added", dry_run, as_json)


@command.command("set-password")
@click.argument("name", callback=user_name)
@_mechanisms
@_iterations
@_with_password
@_dry_run
@with_admin
async def set_password(
    admin: Admin,
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set the password of a user, by default for all mechanisms that the user has."""
    chosen = mechanisms or sorted(await _required(admin, name))
    if not dry_run:
        await _set(admin, name, password, chosen, iterations)
    _report(name, chosen, "password set", dry_run, as_json)


@command.command("remove")
@click.argument("name", callback=user_name)
@_mechanisms
@_dry_run
@with_admin
async def remove(
    admin: Admin, name: str, mechanisms: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Remove a user, by default with all mechanisms. Open connections and delegation tokens stay."""
    present = await _required(admin, name)
    chosen = mechanisms or sorted(present)
    missing = sorted(set(chosen) - present)
    if missing:
        said = f"user {name!r} has no password for {', '.join(missing)}"
        raise KafkaError(E.RESOURCE_NOT_FOUND, said)
    if not dry_run:
        for mechanism in chosen:
            deletion = UserScramCredentialDeletion(name, mechanism)
            await admin.alter_user_scram_credentials([deletion])
    _report(name, chosen, "removed", dry_run, as_json)
    if set(chosen) == present:
        await _name_tokens(admin, name)


async def _name_tokens(admin: Admin, name: str) -> None:
    """Name the delegation tokens with which others can still log in as the user, if they are seen."""
    try:
        left = await admin.describe_delegation_token([name])
    except KafkaError as refusal:
        if refusal.code not in _NO_TOKENS:
            raise
        return
    if left:
        others = f" and {len(left) - MOST_NAMED} others" if len(left) > MOST_NAMED else ""
        ids = ", ".join(one.token_id for one in left[:MOST_NAMED])
        click.echo(
            f"delegation tokens still log in as {name}: {ids}{others}; {_what_ends(name, left)}",
            err=True,
        )


def _what_ends(name: str, left: Sequence[DelegationToken]) -> str:
    """Return what ends tokens without an owner: their renewers, or else nobody before their time."""
    lone = [one for one in left if not one.renewers]
    said = "their renewers end them with: headwater tokens expire TOKEN"
    if not lone:
        return said
    until = time_text(max(one.expires_ms for one in lone))
    nobody = (
        f"nobody can end those without a renewer before they expire, the last at {until}: deny {name} "
        "everything meanwhile (headwater acls deny), or set another delegation.token.secret.key on "
        "all brokers"
    )
    return nobody if len(lone) == len(left) else f"{said}; {nobody}"


async def _mechanisms_of(admin: Admin, name: str) -> set[str]:
    try:
        return set((await admin.describe_user_scram_credentials([name]))[name])
    except KafkaError as unknown:
        if unknown.code is not E.RESOURCE_NOT_FOUND:
            raise
        return set()


async def _required(admin: Admin, name: str) -> set[str]:
    present = await _mechanisms_of(admin, name)
    if not present:
        raise KafkaError(
            E.RESOURCE_NOT_FOUND,
            f"there is no user {name!r}; see headwater users list, or add it with: "
            f"headwater users add {name}",
        )
    return present


async def _set(
    admin: Admin, name: str, password: str, mechanisms: Sequence[str], iterations: int
) -> None:
    if iterations < DEFAULT_ITERATIONS:
        click.echo(
            f"warning: with {iterations} iterations, anyone who reads the stored credential can try passwords "
            f"faster: use --iterations {DEFAULT_ITERATIONS} or more",
            err=True,
        )
    for mechanism in mechanisms:  # a request takes one mechanism of a user
        upsertion = UserScramCredentialUpsertion(name, password, mechanism, iterations)
        await admin.alter_user_scram_credentials([upsertion])


def _password(name: str, file: str | None) -> str:
    if file is not None and file.endswith(".properties"):
        password = _password_in_settings(name, file)
    elif file is not None:
        password = Path(file).read_text().partition("\n")[0].rstrip("\r")
    else:
        password = os.environ.get(PASSWORD_VARIABLE) or _typed_password(name)
    if not password:
        raise click.UsageError(f"the password in {file or PASSWORD_VARIABLE} is empty")
    return password


def _password_in_settings(name: str, file: str) -> str:
    """Return the password of a client's login, as `headwater security init` makes it."""
    login = read_properties(file).get("sasl.jaas.config")
    try:
        entries = parse_jaas(login.value) if login is not None else []
    except JaasError as wrong:
        raise click.UsageError(
            f"{file}: sasl.jaas.config cannot be read: {wrong.message}"
        ) from None
    users = {one.options.get("username"): one.options.get("password", "") for one in entries}
    if name not in users:
        raise click.UsageError(f"{file} has no password of {name} in sasl.jaas.config")
    return users[name]


def _typed_password(name: str) -> str:
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(
            f"there is no terminal to type a password in: give it with --password-file or {PASSWORD_VARIABLE}"
        )
    typed: str = click.prompt(
        f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
    )
    return typed


def _report(name: str, mechanisms: Sequence[str], done: str, dry_run: bool, as_json: bool) -> None:
    what = f"would be {done}" if dry_run else done
    if as_json:
        rows = [{"user": name, "mechanism": one, "result": what} for one in mechanisms]
        show(rows, as_json=True)
    else:
        click.echo(f"{name}: {what} ({', '.join(mechanisms)})")
