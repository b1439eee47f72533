"""What `headwater security check` finds in the settings of a broker, and in its ZooKeeper."""

from collections.abc import Iterator
from pathlib import Path

from headwater.broker.listener_tls import distrust_text
from headwater.broker.local_store import tls_to_zookeeper
from headwater.broker.registration import JoinError
from headwater.broker.weak_settings import readable_secrets, weak_settings
from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from headwater.config.listeners import Listener
from headwater.config.tls import TlsSettings
from headwater.security.certificates import certificates_of, parse_certificate
from headwater.transport.tls import key_store_text, own_chain_problem, server_context

_ZOOKEEPER_TIMEOUT_S = 18.0
_SHOWN_NODES = 20
_REMEDY = (
    "set zookeeper.set.acl=true and zookeeper.digest.username on all brokers, and run setAcl on what "
    "is there (docs/operations/zookeeper.md)"
)


def of_broker(file: Path | None, zookeeper: str | None) -> Iterator[str]:
    """Yield the problems of a settings file, and of the ZooKeeper that it or the caller names."""
    try:
        settings = BrokerSettings.load(
            str(file) if file else None, {"zookeeper.connect": zookeeper} if zookeeper else None
        )
        if file is not None:
            for listener in settings.listening:
                tls = settings.tls_of(listener)
                if tls is not None:
                    server_context(tls)
                    yield from _distrust(settings, listener, tls)
    except ConfigError as problem:
        yield problem.message  # a broker would not start
        return
    if file is not None:
        yield from weak_settings(settings)
        yield from readable_secrets(settings, file)
    if settings.zookeeper_connect:
        yield from _of_zookeeper(settings)


def _distrust(settings: BrokerSettings, listener: Listener, tls: TlsSettings) -> Iterator[str]:
    """Yield why brokers with these settings would refuse each other, if they would."""
    if listener.name not in settings.listeners_of_brokers:
        return
    why = own_chain_problem(tls)
    if why is not None:
        subject = parse_certificate(certificates_of(key_store_text(tls))[0]).subject
        yield f"listener {listener}: {distrust_text(subject, why)}"


def _of_zookeeper(settings: BrokerSettings) -> Iterator[str]:
    from headwater.controller.store.open_nodes import open_nodes, read_acls

    try:
        tls = tls_to_zookeeper(settings)
    except JoinError as problem:
        yield str(problem)
        return
    login = settings.zookeeper_login
    try:
        nodes = read_acls(settings.zookeeper_address, login, tls, _ZOOKEEPER_TIMEOUT_S)
    except ConfigError as problem:
        yield problem.message
        return
    found = open_nodes(nodes, login)
    for one in found[:_SHOWN_NODES]:
        yield f"{one}: {_REMEDY}"
    if len(found) > _SHOWN_NODES:
        yield f"and {len(found) - _SHOWN_NODES} more nodes like these: {_REMEDY}"
