"""The settings and the ports of brokers that form one cluster on this machine."""

import socket
from collections.abc import Mapping

from headwater.seams.randomness import SystemRandomness

CLIENT_LISTENER = "CLIENTS"
BROKER_LISTENER = "INTERNAL"
# Below the range from which Linux takes the ports of outgoing connections: a port found free here
# stays free until a broker binds it.
_FIRST_PORT, _LAST_PORT = 15_000, 30_000


def unused_port() -> int:
    """A port of 127.0.0.1 that nothing listens on."""
    randomness = SystemRandomness()
    for _ in range(200):
        port = _FIRST_PORT + randomness.below(_LAST_PORT - _FIRST_PORT)
        if is_unused(port):
            return port
    raise RuntimeError(f"no free port on 127.0.0.1 from {_FIRST_PORT} to {_LAST_PORT}")


def is_unused(port: int) -> bool:
    """Whether nothing listens on this port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def node_settings(
    broker_id: int,
    *,
    zookeeper: str,
    folder: str,
    client_port: int,
    broker_port: int,
    metrics_port: int,
    relay_port: int | None = None,
    protocol: str = "PLAINTEXT",
    host: str = "127.0.0.1",
    advertised_host: str = "127.0.0.1",
    client_listener: str = CLIENT_LISTENER,
) -> dict[str, str]:
    """One broker of a local cluster; other brokers reach it at `relay_port` if that is given."""
    advertised_port = broker_port if relay_port is None else relay_port
    listeners = {client_listener: client_port, BROKER_LISTENER: broker_port}
    advertised = {client_listener: client_port, BROKER_LISTENER: advertised_port}
    return {
        "broker.id": str(broker_id),
        "zookeeper.connect": zookeeper,
        "log.dirs": folder,
        "listeners": _addresses(listeners, host),
        "advertised.listeners": _addresses(advertised, advertised_host),
        "listener.security.protocol.map": (
            f"{client_listener}:{protocol},{BROKER_LISTENER}:{protocol}"
        ),
        "inter.broker.listener.name": BROKER_LISTENER,
        "metrics.listener": f"127.0.0.1:{metrics_port}",
    }


def _addresses(ports: Mapping[str, int], host: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    return ",".join(f"{name}://{shown}:{port}" for name, port in ports.items())


def replicated(brokers: int) -> dict[str, str]:
    """Defaults for topics of a cluster of `brokers`: three replicas where there are three."""
    replicas = min(3, brokers)
    return {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "min.insync.replicas": "2" if replicas == 3 else "1",
    }
