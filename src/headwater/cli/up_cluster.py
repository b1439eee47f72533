"""`headwater up --brokers N`: a cluster on this machine, one process per broker.

This process serves nothing. It starts a store (unless a ZooKeeper is given) and the brokers, prints
their events, restarts processes that end, and stops everything in order: brokers one after another,
so that each hands over its partitions, and the store last.
"""

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from headwater.cli.cluster_events import ClusterView, changes
from headwater.cli.up import WITHOUT_FILE
from headwater.client.admin import BlockingAdmin
from headwater.config.broker import BrokerSettings
from headwater.config.client import AdminSettings
from headwater.config.listener_overrides import names_of
from headwater.config.listeners import Listener
from headwater.config.properties import read_properties
from headwater.errors import KafkaError
from headwater.processes.child import Child, NotStarted, broker_process, store_process
from headwater.processes.local_nodes import (
    BROKER_LISTENER,
    is_unused,
    node_settings,
    replicated,
    unused_port,
)
from headwater.seams.clock import SystemClock

QUICK_FAILOVER = {"zookeeper.session.timeout.ms": "6000"}
"""Instead of Kafka's 18 s: on one machine, a session ends only if the broker is dead."""
BROKERS_ONLY = {f"listener.name.{BROKER_LISTENER.lower()}.sasl.enabled.mechanisms": "SCRAM-SHA-512"}
"""No client uses this listener. SCRAM needs no settings, those of the file are for the other listener."""
_STORES = (
    ("ssl.keystore.location", "ssl.keystore.key"),
    ("ssl.truststore.location", "ssl.truststore.certificates"),
)
DEFAULT_PORT = 9092
DEFAULT_FOLDER = "headwater-data"
BROKERS_FOLDER = "brokers"
BROKER_PORTS_ABOVE = 10_000
METRICS_PORTS_ABOVE = 312
"""9404 for a broker at 9092."""
_WATCH_S = 0.5
_CLOSE_S = 1.0
_STORE_S = 10.0
"""How long the own store has to answer."""
_RESTART_MS = 3000
_QUICK_END_MS = 10_000
_MAX_QUICK_ENDS = 3


class ClusterOptions(NamedTuple):
    """What the options of `headwater up` mean for a cluster."""

    brokers: int
    zookeeper: str | None
    port: int | None
    data_dir: str | None
    settings: Mapping[str, str]
    log_level: str
    as_json: bool
    file: str | None = None
    """Settings of all brokers; its listener says the protocol and the addresses."""
    unsafe_plaintext: bool = False


def run(options: ClusterOptions) -> None:
    """Serve until SIGINT or SIGTERM, which interrupt a command as KeyboardInterrupt."""
    cluster = _LocalCluster(options)
    try:
        cluster.start()
        cluster.watch()
    except KeyboardInterrupt:
        _say("stopping; press Ctrl-C again to kill the brokers")
    except NotStarted as problem:
        raise click.ClickException(str(problem)) from None
    finally:
        cluster.stop()


class _LocalCluster:
    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self._folder = Path(options.data_dir or DEFAULT_FOLDER)
        _refuse_single_broker(self._folder)
        self._base = BrokerSettings.load(options.file, options.settings)
        _refuse_several_listeners(self._base)
        _refuse_unshared_stores(self._base)
        self._listener, self._advertised = self._base.listening[0], self._base.advertised[0]
        given = self._listener.port if options.file is not None else DEFAULT_PORT
        first = given if options.port is None else options.port
        ids = range(1, options.brokers + 1)
        self._ports = {at: first + at - 1 if first else unused_port() for at in ids}
        self._store: _Supervised | None = None
        self._brokers: dict[int, _Supervised] = {}
        # While brokers start or stop, partitions without a leader are expected.
        self._serving = threading.Event()
        self._view = ClusterView()
        self._admin: BlockingAdmin | None = None

    @property
    def _addresses(self) -> list[str]:
        return [f"{self._host}:{port}" for port in self._ports.values()]

    @property
    def _host(self) -> str:
        """The host to which clients connect."""
        return self._advertised.host or "127.0.0.1"

    # -- starting

    def start(self) -> None:
        given = self._options.zookeeper or self._base.zookeeper_connect
        zookeeper = given or self._start_store()
        for broker_id, port in self._ports.items():
            settings = self._settings(broker_id, port, zookeeper)
            child = broker_process(settings, *self._child_options())
            child.on_log_line = partial(self._print_warning, broker_id)
            self._brokers[broker_id] = _Supervised(f"broker {broker_id}", child, SystemClock())
        for broker in self._brokers.values():
            broker.launch()
        for broker in self._brokers.values():
            broker.child.wait_ready()
        self._say_ready()

    def _child_options(self) -> list[str]:
        options = ["--log-level", self._options.log_level]
        if self._options.file is not None:
            options += ["--config", self._options.file]
        if self._options.unsafe_plaintext:
            options.append("--unsafe-plaintext")
        return options

    def _start_store(self) -> str:
        # A fixed port: brokers must find a restarted store.
        child = store_process(self._folder / "store", self._store_port())
        self._store = _Supervised("the metadata store", child, SystemClock())
        self._store.launch()
        address = child.wait_ready()
        self._close_store(address)
        _say(
            f"metadata store at {address}: one process with one disk, for development; "
            "in production, run a ZooKeeper ensemble (--zookeeper)"
        )
        return address

    def _close_store(self, address: str) -> None:
        """With ACLs, keep the root of the store from local processes without the brokers' login."""
        login = self._base.zookeeper_login
        if not self._base.zookeeper_set_acl or login is None:
            return
        from headwater.controller.store.own_root import close_root

        why = close_root(address, login, _STORE_S)
        if why is not None:
            _say(f"every process of this machine may change / of the metadata store: {why}")

    def _store_port(self) -> int:
        taken = {
            one
            for port in self._ports.values()
            for one in (port, _above(port, BROKER_PORTS_ABOVE), _above(port, METRICS_PORTS_ABOVE))
        }
        while (port := unused_port()) in taken:
            pass
        return port

    def _settings(self, broker_id: int, port: int, zookeeper: str) -> dict[str, str]:
        node = node_settings(
            broker_id,
            zookeeper=zookeeper,
            folder=str(self._folder / BROKERS_FOLDER / str(broker_id)),
            client_port=port,
            broker_port=self._port_above(port, BROKER_PORTS_ABOVE),
            metrics_port=self._metrics_port(port),
            protocol=self._listener.protocol,
            host=self._listener.host,
            advertised_host=self._host,
            client_listener=self._listener.name,
        )
        if self._listener.protocol.startswith("SASL_"):
            node |= BROKERS_ONLY
        defaults = {**WITHOUT_FILE, **QUICK_FAILOVER, **replicated(self._options.brokers)}
        chosen = {key: value for key, value in defaults.items() if not self._base.is_set(key)}
        return {**chosen, **node, **self._options.settings}

    def _metrics_port(self, client_port: int) -> int:
        """Return another port if this one is taken, like a single broker with its default."""
        port = self._port_above(client_port, METRICS_PORTS_ABOVE)
        return port if is_unused(port) else unused_port()

    def _port_above(self, client_port: int, distance: int) -> int:
        return unused_port() if self._options.port == 0 else _above(client_port, distance)

    def _say_ready(self) -> None:
        addresses = ",".join(self._addresses)
        metrics = {at: broker.child.metrics_url for at, broker in self._brokers.items()}
        if self._options.as_json:
            brokers = dict(zip(self._brokers, self._addresses, strict=True))
            click.echo(json.dumps({"address": addresses, "brokers": brokers, "metrics": metrics}))
        else:
            urls = ", ".join(url for url in metrics.values() if url is not None)
            shown = f", metrics at {urls}" if urls else ""
            click.echo(f"headwater is ready at {addresses} (data in {self._folder}{shown})")
        for idle in _idle_folders(self._folder, self._brokers):
            _say(
                f"{idle} holds a broker that is not started: partitions that only it has in sync "
                f"have no leader until --brokers is at least {idle.name}"
            )

    # -- serving

    def watch(self) -> None:
        """Print changes; restart processes that end."""
        self._serving.set()
        never = threading.Event()
        while not never.wait(_WATCH_S):
            for one in self._supervised:
                one.keep_running()
            self._print_changes()

    @property
    def _supervised(self) -> list["_Supervised"]:
        return [*([self._store] if self._store is not None else []), *self._brokers.values()]

    def _print_changes(self) -> None:
        try:
            if self._admin is None:
                self._admin = BlockingAdmin(
                    **_admin_login(self._options.file, self._listener),
                    bootstrap_servers=",".join(self._addresses),
                    client_id="headwater-up",
                    request_timeout_ms=2000,
                    default_api_timeout_ms=2000,
                )
            view = ClusterView.of(self._admin)
        except KafkaError:
            return  # no broker answers now; one that ended was reported
        for line in changes(self._view, view):
            _say(line)
        self._view = view

    def _print_warning(self, broker_id: int, line: str) -> None:
        """Show the warnings of a broker; its whole log is in a file."""
        shown = [" WARNING ", " ERROR ", " CRITICAL "]
        if not self._serving.is_set():
            shown[0] = " WARNING server: the start "
        if any(text in line for text in shown):
            _say(f"broker {broker_id}: {line}")

    # -- stopping

    def stop(self) -> None:
        """Stop the brokers one after another, so that each hands over, and then the store."""
        self._serving.clear()
        if self._admin is not None:
            with contextlib.suppress(KafkaError):
                self._admin.close(_CLOSE_S)
        try:
            for broker in self._brokers.values():
                broker.stop()
        finally:
            for broker in self._brokers.values():
                broker.child.kill()
            if self._store is not None:
                self._store.child.stop()


class _Supervised:
    """A process that is restarted when it ends, a limited number of times if it ends at once."""

    def __init__(self, name: str, child: Child, clock: SystemClock) -> None:
        self.child = child
        self._name = name
        self._now_ms = clock.monotonic_ms
        self._launched_ms = 0
        self._ended_ms: int | None = None
        self._quick_ends = 0

    def launch(self) -> None:
        self.child.launch()
        self._launched_ms, self._ended_ms = self._now_ms(), None

    def keep_running(self) -> None:
        if self.child.runs or self._quick_ends >= _MAX_QUICK_ENDS:
            return
        now_ms = self._now_ms()
        if self._ended_ms is None:
            self._ended_ms = now_ms
            self._report_end(now_ms)
        elif now_ms - self._ended_ms >= _RESTART_MS:
            _say(f"{self._name} starts again")
            self.launch()

    def _report_end(self, now_ms: int) -> None:
        quick = now_ms - self._launched_ms < _QUICK_END_MS
        self._quick_ends = self._quick_ends + 1 if quick else 0
        what = f"{self._name} ended ({self.child.how_it_ended()})"
        if self._quick_ends >= _MAX_QUICK_ENDS:
            what += f" {_MAX_QUICK_ENDS} times in a row; it stays down"
        _say(f"{what}: its log is {self.child.log_file}")

    def stop(self) -> None:
        if not self.child.runs:
            return
        try:
            self.child.stop()
        except subprocess.TimeoutExpired as late:
            _say(f"{self._name} did not stop within {late.timeout:g} s and was killed")
        else:
            _say(f"{self._name} stopped")


def _say(line: str) -> None:
    """Print to standard error; a reader that is gone (`| tee`, at Ctrl-C) must not stop the rest."""
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def _above(client_port: int, distance: int) -> int:
    """Return another port of a broker; the same at each start, so that it is found again."""
    above = client_port + distance
    return above if above < 2**16 else client_port - distance


def _admin_login(file: str | None, listener: Listener) -> dict[str, Any]:
    """Return how to log in as admin: `headwater security init` keeps that beside the file."""
    if listener.protocol == "PLAINTEXT" or file is None:
        return {}
    found = read_properties(str(Path(file).with_name("users") / "admin.properties"))
    return {
        name.replace(".", "_"): row.value
        for name, row in found.items()
        if name in AdminSettings.KEYS and name != "bootstrap.servers"
    }


def _refuse_several_listeners(settings: BrokerSettings) -> None:
    if len(settings.listening) > 1:
        raise click.UsageError(
            "with --brokers, listeners has one entry, from which the addresses of all brokers "
            f"follow: {settings.listening[0]} alone, for example"
        )


def _refuse_unshared_stores(settings: BrokerSettings) -> None:
    """Refuse stores that only clients would get: the brokers have a second listener, for each other."""
    (listener,) = settings.listening
    if listener.name == BROKER_LISTENER:
        raise click.UsageError(
            f"with --brokers, {BROKER_LISTENER} is the listener between the brokers: give the one in "
            "listeners another name"
        )
    for keys in _STORES if listener.uses_tls else ():
        if any(map(settings.is_set, keys)):
            continue
        for key in keys:
            own = names_of(key, listener.name)[0]
            if settings.is_set(own):
                raise click.UsageError(
                    f"with --brokers, {own} is for clients alone, and the brokers connect to each "
                    f"other with TLS, too: set {key} instead, which is for both"
                )


def _refuse_single_broker(folder: Path) -> None:
    if (folder / "meta.properties").exists():
        raise click.ClickException(
            f"{folder} holds the data of a single broker: choose another with --data-dir"
        )


def _idle_folders(folder: Path, started: Iterable[int]) -> list[Path]:
    """Return the data folders of brokers with higher numbers than those that run."""
    found = (path for path in (folder / BROKERS_FOLDER).glob("*") if path.name.isdecimal())
    return sorted(path for path in found if int(path.name) not in set(started))
