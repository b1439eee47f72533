"""Finds a broker before a command begins, within seconds, or reports what to do in one line."""

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from headwater.cli.client_config import file_settings
from headwater.client.admin import Admin, ConfigResource
from headwater.client.connecting import open_connection
from headwater.config.addresses import address_problem
from headwater.config.client import AdminSettings
from headwater.config.client_sasl import ClientSaslKeys
from headwater.config.client_tls import ALIASES, ClientTlsKeys
from headwater.config.keys import ConfigError
from headwater.errors import E, KafkaError
from headwater.seams.network import Network, TcpNetwork
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse

CONNECT_S = 5.0
"""The timeout for all addresses together."""
_START = "; start a broker with `headwater up` or name one with --bootstrap-server"


def require_reachable(
    bootstrap: str,
    timeout_s: float,
    topics: Sequence[str],
    *,
    to_write: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Check that a broker responds and the topics exist, before a client waits for them.

    A topic `to_write` to may be missing if the brokers create topics automatically. `settings` are
    those of the client; its TLS and its login are used here too.
    """
    own = _for_admin(settings or {})

    async def look() -> None:
        await find_broker(bootstrap, timeout_s, settings=own)
        async with admin_for(bootstrap, timeout_s, own) as admin:
            await require_topics(admin, topics, to_write=to_write)

    asyncio.run(look())


def require_broker(bootstrap: str, settings: Mapping[str, Any] | None = None) -> None:
    """Raise KafkaError within seconds if no broker responds; for clients that would wait longer."""
    asyncio.run(find_broker(bootstrap, CONNECT_S, settings=_for_admin(settings or {})))


async def _creates_topics(admin: Admin) -> bool:
    """Whether brokers create missing topics, as far as this user may know it."""
    broker = ConfigResource.broker((await admin.describe_cluster()).brokers[0].id)
    try:
        configs = (await admin.describe_configs([broker]))[broker]
    except KafkaError as refused:
        if refused.code is E.CLUSTER_AUTHORIZATION_FAILED:
            return False
        raise
    return "auto.create.topics.enable" in configs and (
        configs["auto.create.topics.enable"].value == "true"
    )


def admin_for(bootstrap: str, timeout_s: float, settings: Mapping[str, Any] | None = None) -> Admin:
    """Return an admin with a timeout of `timeout_s` for its calls."""
    return Admin(**_admin_settings(bootstrap, timeout_s, settings or {}))


def _admin_settings(
    bootstrap: str, timeout_s: float, settings: Mapping[str, Any]
) -> dict[str, Any]:
    limit_ms = max(1, int(timeout_s * 1000))
    return {
        "client.id": "headwater-cli",
        **file_settings(AdminSettings),
        **settings,
        "bootstrap.servers": bootstrap,
        "default.api.timeout.ms": limit_ms,
        "request.timeout.ms": limit_ms,
        "socket.connection.setup.timeout.ms": limit_ms,
    }


def _for_admin(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of another client that say how to connect."""
    names = {name.replace("_", "."): value for name, value in settings.items()}
    found = {ALIASES.get(name, name): value for name, value in names.items()}
    wanted = ("security.protocol", *ClientTlsKeys.KEYS, *ClientSaslKeys.KEYS)
    return {name: found[name] for name in wanted if name in found}


async def require_topics(admin: Admin, names: Sequence[str], *, to_write: bool = False) -> None:
    """Raise KafkaError for missing topics, with the command that creates them.

    Topics that this user may not describe look like missing ones; the error names the right.
    """
    there = await admin.list_topics(internal=True)
    missing = [name for name in names if name not in there]
    if not missing:
        return
    await _require_rights(admin, missing)
    if to_write and await _creates_topics(admin):
        return
    quoted = ", ".join(f"'{name}'" for name in missing)
    said = f"topic {quoted} does" if len(missing) == 1 else f"topics {quoted} do"
    raise KafkaError(
        E.UNKNOWN_TOPIC_OR_PARTITION,
        f"{said} not exist; create with: headwater topics create {' '.join(missing)}",
    )


async def _require_rights(admin: Admin, names: Sequence[str]) -> None:
    """Raise the error of topics that this user may not describe."""
    try:
        await admin.describe_topics(names)
    except KafkaError as problem:
        if problem.code is E.TOPIC_AUTHORIZATION_FAILED:
            raise


async def cancel_if_unreachable(
    bootstrap: str, timeout_s: float, work: Coroutine[Any, Any, None]
) -> None:
    """Await `work`; cancel it if no broker responds."""
    doing = asyncio.ensure_future(work)
    looking = asyncio.ensure_future(find_broker(bootstrap, timeout_s))
    try:
        await asyncio.wait({doing, looking}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            await looking
        await doing
    finally:
        for task in (doing, looking):
            task.cancel()
        await asyncio.gather(doing, looking, return_exceptions=True)


async def find_broker(
    bootstrap: str,
    timeout_s: float,
    network: Network | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Return when one of the addresses speaks Kafka; KafkaError if none does in time."""
    addresses = parse_bootstrap(bootstrap)
    limit_s = min(timeout_s, CONNECT_S / len(addresses))
    admin = AdminSettings.of(_admin_settings(bootstrap, limit_s, settings or {}))
    reason, advice = "", _START
    for host, port in addresses:
        try:
            await _serves(admin, network or TcpNetwork(), host, port)
        except ConfigError:
            raise
        except OSError as problem:
            reason = _reason(problem)
        except KafkaError as problem:
            reason = problem.message
            advice = _START if problem.code is E.REQUEST_TIMED_OUT else ""
        else:
            return
    raise KafkaError(E.BROKER_NOT_AVAILABLE, f"cannot connect to {bootstrap} ({reason}){advice}")


async def _serves(admin: AdminSettings, network: Network, host: str, port: int) -> None:
    """Connect and ask something: a listener with logins refuses others at the first request."""
    connection = await open_connection(admin, network, host, port)
    try:
        if admin.login is None:
            await connection.call(MetadataRequest(topics=[]), MetadataResponse)
    finally:
        connection.close()


def _reason(problem: OSError) -> str:
    """Return the system's error text, which asyncio replaces by an address."""
    code = problem.errno or 0  # below 0 for a name that cannot be looked up
    return os.strerror(code) if code > 0 else str(problem.strerror or problem)


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """Parse HOST:PORT, several separated by commas, IPv6 in brackets."""
    found = []
    for part in map(str.strip, text.split(",")):
        if problem := address_problem(part):
            raise ConfigError(f"bootstrap.servers cannot be {text!r}: {problem}")
        host, _, port = part.rpartition(":")
        found.append((host.strip("[]"), int(port)))
    return found
