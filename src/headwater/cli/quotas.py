"""`headwater quotas`: list, set and remove the limits of users, client ids and addresses."""

import math
from collections.abc import Callable
from typing import Any

import click

from headwater.cli.options import user_name, with_admin
from headwater.cli.output import show
from headwater.client.admin import Admin
from headwater.errors import E, KafkaError
from headwater.security.quotas import CLIENT_ID, DEFAULT, IP, USER, QuotaEntity

_PARTS = ((USER, "user"), (CLIENT_ID, "client_id"), (IP, "ip"))
_dry_run = click.option(
    "--dry-run", is_flag=True, help="Check, show what would be done, and do nothing."
)


def _of_entity(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name an entity."""
    for kind, name in reversed(_PARTS):
        work = click.option(
            f"--default-{kind}",
            f"default_{name}",
            is_flag=True,
            help=f"Each {kind} without a quota of its own.",
        )(work)
        work = click.option(
            f"--{kind}",
            name,
            metavar="NAME",
            callback=user_name if kind == USER else None,
            help=f"This {kind}.",
        )(work)
    return work


def _entity(options: dict[str, Any]) -> QuotaEntity | None:
    """Return the entity that the options name; None without any."""
    parts: dict[str, str | None] = {}
    for kind, name in _PARTS:
        if options[name] is not None and options[f"default_{name}"]:
            raise click.UsageError(f"give either --{kind} or --default-{kind}")
        if options[name] is not None or options[f"default_{name}"]:
            parts[kind] = options[name]
    return QuotaEntity.of(parts) if parts else None


def _required(options: dict[str, Any]) -> QuotaEntity:
    entity = _entity(options)
    if entity is None:
        raise click.UsageError("name whom the quota is for: --user, --client-id, both, or --ip")
    return entity


@click.group("quotas")
def command() -> None:
    """List, set and remove quotas of users, client ids and addresses."""


@command.command("list")
@_of_entity
@with_admin
async def list_quotas(admin: Admin, /, as_json: bool, **options: Any) -> None:
    """Show quotas; with options, those of the entities that have these parts."""
    found = await admin.describe_client_quotas(_entity(options))
    rows = [
        {
            **{name: _shown(dict(entity.parts).get(kind)) for kind, name in _PARTS},
            "quota": key,
            "value": int(value) if value.is_integer() else value,
        }
        for entity, quotas in sorted(found.items(), key=lambda one: one[0].parts)
        for key, value in sorted(quotas.items())
    ]
    where = "quotas match" if _entity(options) else "quotas are set"
    nothing = f"no {where}; set one with: headwater quotas set --user NAME KEY=VALUE"
    show(rows, as_json=as_json, nothing=nothing)


@command.command("set")
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...")
@_of_entity
@_dry_run
@with_admin
async def set_quotas(
    admin: Admin, /, changes: tuple[str, ...], dry_run: bool, as_json: bool, **options: Any
) -> None:
    """Set quotas.

    producer_byte_rate and consumer_byte_rate are bytes per second, request_percentage is the share of
    a broker's time, controller_mutation_rate are partitions created or deleted per second. Addresses
    have connection_creation_rate, per second.
    """
    entity = _required(options)
    quotas: dict[str, float | None] = dict(map(_change, changes))
    await admin.alter_client_quotas({entity: quotas}, validate_only=dry_run)
    _report(entity, quotas, "set", dry_run, as_json)


@command.command("remove")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@_of_entity
@_dry_run
@with_admin
async def remove(
    admin: Admin, /, keys: tuple[str, ...], dry_run: bool, as_json: bool, **options: Any
) -> None:
    """Remove quotas of an entity, by default all of them."""
    entity = _required(options)
    present = (await admin.describe_client_quotas(entity, strict=True)).get(entity, {})
    missing = sorted(set(keys) - present.keys())
    if missing or not present:
        what = ", ".join(missing) or "quota"
        raise KafkaError(E.RESOURCE_NOT_FOUND, f"{entity} has no {what}; see headwater quotas list")
    quotas = dict.fromkeys(keys or sorted(present))
    await admin.alter_client_quotas({entity: quotas}, validate_only=dry_run)
    _report(entity, quotas, "removed", dry_run, as_json)


def _change(text: str) -> tuple[str, float]:
    key, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        raise click.UsageError(f"{text}: write KEY=NUMBER") from None
    if not math.isfinite(number):
        raise click.UsageError(
            f"{text}: a quota is a number above 0; for no limit, remove it with: headwater quotas "
            f"remove {key.strip()}"
        )
    return key.strip(), number


def _shown(name: str | None) -> str | None:
    return "(default)" if name == DEFAULT else name


def _report(
    entity: QuotaEntity,
    quotas: dict[str, float | None],
    done: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    what = f"would be {done}" if dry_run else done
    if as_json:
        parts = {name: _shown(dict(entity.parts).get(kind)) for kind, name in _PARTS}
        show([{**parts, "quota": key, "result": what} for key in quotas], as_json=True)
    else:
        click.echo(f"{entity}: {what} {', '.join(quotas)}")
