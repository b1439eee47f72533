"""`headwater acls`: list, allow, deny, remove, and the grants that a producer or a consumer needs."""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import click

from headwater.cli.options import with_admin
from headwater.cli.output import show, show_json
from headwater.client.admin import AclBinding, Admin
from headwater.security.acls import (
    CLUSTER_NAME,
    OPERATIONS_ON,
    WILDCARD,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from headwater.security.refusals import spoken

_TYPES = {spoken(kind): kind for kind in OPERATIONS_ON}
_OPERATIONS = {spoken(one): one for one in AclOperation if one is not AclOperation.ANY}

principal_argument = click.argument("principal", metavar="USER")


def _address(context: click.Context, option: click.Parameter, text: str) -> str:
    """Return the address; brokers compare it with that of a client, so a name would never match."""
    if text == WILDCARD:
        return text
    try:
        return str(ip_address(text))
    except ValueError:
        raise click.UsageError(f"--host {text}: write an IP address") from None


host_option = click.option(
    "--host",
    default=WILDCARD,
    metavar="ADDRESS",
    callback=_address,
    help="Only from this address.",
)
prefixed_option = click.option(
    "--prefixed", is_flag=True, help="NAME is a prefix: all names that begin with it."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would change.")


@click.group("acls")
def command() -> None:
    """List and change ACLs: who may do what.

    USER is a user's name, a principal such as User:alice, or * for everyone.
    """


def _resource_arguments(required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(work: Callable[..., Any]) -> Callable[..., Any]:
        for argument in (
            click.argument("name", required=False),
            click.argument(
                "kind", type=click.Choice(list(_TYPES)), metavar="TYPE", required=required
            ),
            click.argument("operations", metavar="OPERATION[,OPERATION]", required=required),
            principal_argument,
        ):
            work = argument(work)
        return work

    return add


@command.command("list")
@click.option("--user", metavar="USER", help="Only ACLs of this user.")
@click.option("--type", "kind", type=click.Choice(list(_TYPES)), help="Only this type of resource.")
@click.option("--name", help="Only ACLs that apply to this resource: literal, prefixed and *.")
@with_admin
async def list_(
    admin: Admin, user: str | None, kind: str | None, name: str | None, as_json: bool
) -> None:
    """Show ACLs."""
    wanted = AclFilter(
        _TYPES[kind] if kind else AclResourceType.ANY,
        name,
        AclPatternType.MATCH if name is not None else AclPatternType.ANY,
        _principal(user) if user else None,
    )
    found = await admin.describe_acls(wanted)
    show(_rows(found), as_json=as_json, nothing="no ACL matches; see headwater acls allow --help")


@command.command()
@_resource_arguments(required=True)
@prefixed_option
@host_option
@dry_run_option
@with_admin
async def allow(admin: Admin, /, dry_run: bool, as_json: bool, **rule: Any) -> None:
    """Allow USER the OPERATION on a resource: allow writer write topic orders.

    The cluster has no NAME: allow ops alter cluster.
    """
    await _create(admin, _bindings(AclPermission.ALLOW, **rule), dry_run, as_json)


@command.command()
@_resource_arguments(required=True)
@prefixed_option
@host_option
@dry_run_option
@with_admin
async def deny(admin: Admin, /, dry_run: bool, as_json: bool, **rule: Any) -> None:
    """Deny USER the OPERATION on a resource, even if another ACL allows it."""
    await _create(admin, _bindings(AclPermission.DENY, **rule), dry_run, as_json)


@command.command("allow-producer")
@principal_argument
@click.argument("topic")
@click.option("--transactional-id", metavar="ID", help="The producer's transactional id.")
@prefixed_option
@host_option
@dry_run_option
@with_admin
async def allow_producer(
    admin: Admin,
    principal: str,
    topic: str,
    transactional_id: str | None,
    prefixed: bool,
    host: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Allow USER to produce to TOPIC."""
    more: dict[str, Any] = {"principal": principal, "prefixed": prefixed, "host": host}
    wanted = _bindings(
        AclPermission.ALLOW, operations="write,describe,create", kind="topic", name=topic, **more
    )
    if transactional_id is not None:
        wanted += _bindings(
            AclPermission.ALLOW,
            operations="write,describe",
            kind="transactional-id",
            name=transactional_id,
            **more,
        )
    await _create(admin, wanted, dry_run, as_json)


@command.command("allow-consumer")
@principal_argument
@click.argument("topic")
@click.argument("group")
@prefixed_option
@host_option
@dry_run_option
@with_admin
async def allow_consumer(
    admin: Admin,
    principal: str,
    topic: str,
    group: str,
    prefixed: bool,
    host: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Allow USER to consume TOPIC as a member of GROUP."""
    more: dict[str, Any] = {"principal": principal, "prefixed": prefixed, "host": host}
    wanted = _bindings(
        AclPermission.ALLOW, operations="read,describe", kind="topic", name=topic, **more
    )
    wanted += _bindings(AclPermission.ALLOW, operations="read", kind="group", name=group, **more)
    await _create(admin, wanted, dry_run, as_json)


@command.command()
@_resource_arguments(required=False)
@prefixed_option
@dry_run_option
@with_admin
async def remove(
    admin: Admin,
    principal: str,
    operations: str | None,
    kind: str | None,
    name: str | None,
    prefixed: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove ACLs of USER, allowed and denied: all of them, or those that the arguments name."""
    pattern_type = AclPatternType.PREFIXED if prefixed else AclPatternType.LITERAL
    if kind == "cluster":
        name = name or CLUSTER_NAME
    filters = [
        AclFilter(
            _TYPES[kind] if kind else AclResourceType.ANY,
            name,
            AclPatternType.ANY if name is None and not prefixed else pattern_type,
            _principal(principal),
            operation=operation,
        )
        for operation in (_operations(operations) if operations else [AclOperation.ANY])
    ]
    if dry_run:
        found = [one for each in filters for one in await admin.describe_acls(each)]
    else:
        found = await admin.delete_acls(filters)
    verb = "would be removed" if dry_run else "removed"
    _report(found, verb, f"no ACL of {_principal(principal)} matches: nothing is removed", as_json)


async def _create(admin: Admin, wanted: list[AclBinding], dry_run: bool, as_json: bool) -> None:
    there = set(await admin.describe_acls(AclFilter(principal=wanted[0].principal)))
    new = [one for one in wanted if one not in there]
    if new and not dry_run:
        await admin.create_acls(new)
    _report(new, "would be created" if dry_run else "created", "it already exists", as_json)


def _report(found: list[AclBinding], verb: str, nothing: str, as_json: bool) -> None:
    if as_json:
        show_json({verb.replace(" ", "_"): _rows(found)})
    elif not found:
        click.echo(nothing)
    for one in () if as_json else found:
        kind = spoken(one.resource_type)
        where = kind if kind == "cluster" else f"{kind} {one.name}"
        prefix = "prefix of " if one.pattern_type is AclPatternType.PREFIXED else ""
        host = "" if one.host == WILDCARD else f" from {one.host}"
        permission = one.permission.name.lower()
        click.echo(
            f"{verb}: {permission} {one.principal} {spoken(one.operation)} {prefix}{where}{host}"
        )


def _rows(found: list[AclBinding]) -> list[dict[str, object]]:
    return [
        {
            "principal": one.principal,
            "permission": one.permission.name.lower(),
            "operation": spoken(one.operation),
            "type": spoken(one.resource_type),
            "name": one.name,
            "pattern": one.pattern_type.name.lower(),
            "host": one.host,
        }
        for one in sorted(found)
    ]


def _bindings(
    permission: AclPermission,
    principal: str,
    operations: str,
    kind: str,
    name: str | None,
    prefixed: bool,
    host: str,
) -> list[AclBinding]:
    resource_type = _TYPES[kind]
    if resource_type is AclResourceType.CLUSTER:
        if name not in (None, CLUSTER_NAME) or prefixed:
            raise click.UsageError("the cluster has no name and no prefix: leave NAME out")
        name = CLUSTER_NAME
    if not name:
        raise click.UsageError(f"name the {kind}, or write '*' for all")
    if len(name) > 1 and name.endswith(WILDCARD) and not prefixed:
        raise click.UsageError(f"{name} is not a pattern: write {name[:-1]} --prefixed")
    found = _operations(operations)
    for operation in found:
        if operation not in (AclOperation.ALL, *OPERATIONS_ON[resource_type]):
            known = ", ".join(map(spoken, OPERATIONS_ON[resource_type]))
            raise click.UsageError(f"{spoken(operation)} does not apply to a {kind}: {known}, all")
    pattern_type = AclPatternType.PREFIXED if prefixed else AclPatternType.LITERAL
    return [
        AclBinding(
            _principal(principal), operation, resource_type, name, pattern_type, permission, host
        )
        for operation in found
    ]


def _operations(text: str) -> list[AclOperation]:
    words = [word.strip().lower() for word in text.split(",")]
    for word in words:
        if word not in _OPERATIONS:
            raise click.UsageError(f"{word!r} is not an operation: {', '.join(_OPERATIONS)}")
    return [_OPERATIONS[word] for word in words]


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"
