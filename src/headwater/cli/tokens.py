"""`headwater tokens`: list, create, renew, expire; delegation tokens, with which others log in."""

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from headwater.cli.client_config import file_settings
from headwater.cli.options import with_admin
from headwater.cli.output import show
from headwater.client.admin import Admin, DelegationToken
from headwater.client.admin.offset_resets import parse_duration
from headwater.config.client import AdminSettings
from headwater.errors import E, KafkaError
from headwater.pki.authority import write_private
from headwater.security.scram_credentials import SCRAM_SHA_512

_dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")


def _milliseconds(ctx: click.Context, option: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(parse_duration(text).total_seconds() * 1000)
    except ValueError as wrong:
        raise click.UsageError(f"{option.opts[0]}: {wrong}") from None


def _new_file(ctx: click.Context, option: click.Parameter, name: str | None) -> str | None:
    if name is not None and Path(name).exists():
        raise click.UsageError(f"{name} already exists: name a new file")
    return name


def _duration(name: str, parameter: str, text: str) -> Callable[..., Any]:
    return click.option(name, parameter, metavar="PnDTnHnMnS", callback=_milliseconds, help=text)


@click.group("tokens")
def command() -> None:
    """List, create, renew and expire delegation tokens: temporary passwords for a user's jobs.

    A token logs in as its owner, with SCRAM. Brokers need delegation.token.secret.key for that.
    """


@command.command("list")
@click.option(
    "--owner",
    "owners",
    multiple=True,
    metavar="USER",
    help="Only tokens that this user owns, asked for or may renew; may be repeated.",
)
@with_admin
async def list_tokens(admin: Admin, owners: tuple[str, ...], as_json: bool) -> None:
    """Show the tokens that you may see, without their passwords."""
    found = await admin.describe_delegation_token(owners or None)
    rows = [_row(one) for one in sorted(found, key=lambda one: one.expires_ms)]
    show(
        rows,
        as_json=as_json,
        nothing="there are no delegation tokens that you may see; make one with: headwater tokens create",
    )


@command.command("create")
@click.option("--owner", metavar="USER", help="The user that the token logs in as. Default: you.")
@click.option(
    "--renewer",
    "renewers",
    multiple=True,
    metavar="USER",
    help="A user, besides the owner, who may renew and expire the token; may be repeated.",
)
@_duration("--lifetime", "lifetime_ms", "How long the token lasts at most: P7D, PT12H.")
@click.option(
    "--file",
    metavar="FILE",
    callback=_new_file,
    help="Write the login to FILE as a config file of clients, readable only by you, and do not "
    "print it.",
)
@_dry_run
@with_admin
async def create(
    admin: Admin,
    owner: str | None,
    renewers: tuple[str, ...],
    lifetime_ms: int | None,
    file: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Create a token. Its password is shown only once."""
    if dry_run:
        click.echo(f"a token of {owner or 'you'}: would be created")
        return
    with _reserved(file):
        token = await admin.create_delegation_token(
            owner=owner, renewers=renewers, max_lifetime_ms=lifetime_ms
        )
        if file is not None:
            await _write_login(admin, token, Path(file))
    given = {"password": token.password} if file is None else {"file": file}
    show([_row(token) | given], as_json=as_json)


@contextmanager
def _reserved(name: str | None) -> Iterator[None]:
    """Create the file before the token: a password that cannot be written would be lost."""
    if name is None:
        yield
        return
    file = Path(name)
    try:
        file.touch(mode=0o600, exist_ok=False)
    except OSError as problem:
        raise click.ClickException(
            f"{file} cannot be written: {problem.strerror}; no token was made"
        ) from None
    try:
        yield
    except BaseException:
        file.unlink(missing_ok=True)
        raise


async def _write_login(admin: Admin, token: DelegationToken, file: Path) -> None:
    """Write the login to the file; expire the token if that fails."""
    try:
        write_private(file, _login(token))
    except OSError as problem:
        await admin.expire_delegation_token(token.hmac)
        raise click.ClickException(
            f"{file} cannot be written: {problem.strerror}; the token {token.token_id} was removed"
        ) from None


@command.command("renew")
@click.argument("token_id", metavar="TOKEN")
@_duration("--for", "period_ms", "How long from now: P1D. Default: the brokers' setting.")
@_dry_run
@with_admin
async def renew(
    admin: Admin, token_id: str, period_ms: int | None, dry_run: bool, as_json: bool
) -> None:
    """Extend a token by another period, at most to the end of its maximum lifetime."""
    token = await _token(admin, token_id)
    expires_ms = token.expires_ms
    if not dry_run:
        expires_ms = await admin.renew_delegation_token(token.hmac, period_ms)
    _report(token_id, "renewed", expires_ms, dry_run, as_json)


@command.command("expire")
@click.argument("token_id", metavar="TOKEN")
@_duration("--in", "period_ms", "After this time: PT1H. Default: at once.")
@_dry_run
@with_admin
async def expire(
    admin: Admin, token_id: str, period_ms: int | None, dry_run: bool, as_json: bool
) -> None:
    """End a token. Connections that logged in with it continue until their sessions end."""
    token = await _token(admin, token_id)
    expires_ms = token.expires_ms
    if not dry_run:
        expires_ms = await admin.expire_delegation_token(token.hmac, period_ms)
    done = "removed" if period_ms is None else "expiry changed"
    _report(token_id, done, expires_ms, dry_run, as_json)


async def _token(admin: Admin, token_id: str) -> DelegationToken:
    for one in await admin.describe_delegation_token():
        if one.token_id == token_id:
            return one
    raise KafkaError(
        E.DELEGATION_TOKEN_NOT_FOUND,
        f"there is no delegation token {token_id!r} that you may see; see headwater tokens list",
    )


def _row(token: DelegationToken) -> dict[str, object]:
    return {
        "token": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": time_text(token.issued_ms),
        "expires": time_text(token.expires_ms),
        "ends": time_text(token.max_ms),
    }


def time_text(ms: int) -> str:
    """Return a time as it is shown."""
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _login(token: DelegationToken) -> str:
    """Return a config file: the connection of this command's own, and the login of the token."""
    lines = {
        name: value
        for name, value in file_settings(AdminSettings).items()
        if name in ("bootstrap.servers", "security.protocol")
        or (name.startswith("ssl.") and ".key" not in name)
    }
    lines["sasl.mechanism"] = SCRAM_SHA_512.name
    lines["sasl.jaas.config"] = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{token.token_id}" password="{token.password}" tokenauth="true";'
    )
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _report(token_id: str, done: str, expires_ms: int, dry_run: bool, as_json: bool) -> None:
    what = f"would be {done}" if dry_run else done
    if as_json:
        show([{"token": token_id, "result": what, "expires": time_text(expires_ms)}], as_json=True)
    else:
        click.echo(f"{token_id}: {what}, expires {time_text(expires_ms)}")
