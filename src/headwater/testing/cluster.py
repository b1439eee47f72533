"""Several brokers and their metadata store under a test's control.

    from headwater.testing import Cluster

    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.kill(cluster.leader("orders", 0))

Each broker is a process; so is the store, which needs no JVM. Every connection between them goes
through a relay in the test's process, so that links can be cut.
"""

import asyncio
import logging
import os
import resource
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from headwater.client.admin import BlockingAdmin, NewTopic
from headwater.client.connecting import login_of, open_connection
from headwater.config.addresses import address_problem
from headwater.config.client import AdminSettings
from headwater.errors import E, KafkaError
from headwater.processes.child import Child, broker_process, store_process
from headwater.processes.local_nodes import node_settings, replicated, unused_port
from headwater.seams.clock import SystemClock
from headwater.seams.network import TcpNetwork
from headwater.seams.randomness import SystemRandomness
from headwater.testing.broker import DEFAULTS, setting_text
from headwater.testing.relays import STORE, Node, Relays
from headwater.testing.tls_stores import Security, TlsStores
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from headwater.client.login import Login

log = logging.getLogger("headwater.testing")

SESSION_TIMEOUT_MS = 2000
CONNECTION_TIMEOUT_MS = 10_000
"""A busy machine may take longer than a session to connect."""
WAIT_TIMEOUT_S = 60
_POLL_S = 0.05
_SILENT_S = 5.0
_ASK_S = 2.0
_REMOVAL_TIMEOUT_S = 5.0
_View: TypeAlias = dict[tuple[str, int], MetadataResponse.MetadataResponsePartition]
T = TypeVar("T")


class Cluster:
    """A context manager around brokers 1 to N and their store, with data in a temporary folder."""

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, str | float | bool] | None = None,
        *,
        racks: Sequence[str] = (),
        zookeeper: str | None = None,
        data_dir: str | Path | None = None,
        tls: bool = False,
    ) -> None:
        """With `tls`, all connections are encrypted, and both sides have certificates.

        Clients then take `client_settings()`. A cluster in a temporary folder has a node of its own
        below the path of `zookeeper`, until it is closed; with `data_dir` it uses the path itself,
        so that both can be started again.
        """
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        for server in zookeeper.partition("/")[0].split(",") if zookeeper is not None else ():
            if problem := address_problem(server):
                raise ValueError(f"zookeeper cannot be {zookeeper!r}: {problem}")
        chosen = {name: setting_text(value) for name, value in (settings or {}).items()}
        self.settings = {
            **DEFAULTS,
            **replicated(brokers),
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "zookeeper.connection.timeout.ms": str(CONNECTION_TIMEOUT_MS),
            **chosen,
        }
        self._process = os.getpid()
        self._own_dir = data_dir is None
        self.data_dir = Path(
            tempfile.mkdtemp(prefix="headwater-") if data_dir is None else data_dir
        )
        self._stores: Security | None = TlsStores(self.data_dir / "tls") if tls else None
        self._own_nodes = zookeeper is not None and self._own_dir
        self._joined = False
        self._zookeeper = zookeeper
        if zookeeper is not None and self._own_nodes:
            self._zookeeper = f"{zookeeper.rstrip('/')}/{self.data_dir.name}"
        self._store: Child | None = None
        self._relays: Relays | None = None
        rack_of = cycle(racks or [""])
        self._nodes = {broker_id: _Node(next(rack_of)) for broker_id in range(1, brokers + 1)}
        self._admin: BlockingAdmin | None = None
        self._pause = threading.Event()  # never set: its wait is a sleep

    # -- where it is

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return ",".join(f"127.0.0.1:{node.client_port}" for node in self._nodes.values())

    def client_settings(self, user: str = "client") -> dict[str, Any]:
        """Return the settings of a client: the addresses, and with `tls` the stores of this user."""
        secure = {} if self._stores is None else self._stores.client_settings(user)
        return {"bootstrap_servers": self.bootstrap, **secure}

    def _pids(self) -> dict[int, int]:
        nodes = self._nodes.items()
        return {at: node.child.pid for at, node in nodes if node.child is not None and node.runs}

    @property
    def zookeeper(self) -> str:
        """The servers of the metadata store and the path of this cluster, past the relays."""
        if self._zookeeper is None:
            raise RuntimeError("the cluster is not started: use `with Cluster(3)`, or start()")
        return self._zookeeper

    @property
    def broker_ids(self) -> list[int]:
        return list(self._nodes)

    def address(self, broker_id: int) -> str:
        """The address of one broker."""
        self._check_id(broker_id)
        return f"127.0.0.1:{self._nodes[broker_id].client_port}"

    def metrics_url(self, broker_id: int) -> str:
        """The address of a broker's metrics, the same after a restart."""
        self._check_id(broker_id)
        return f"http://127.0.0.1:{self._nodes[broker_id].metrics_port}/metrics"

    def pid(self, broker_id: int) -> int:
        """Return the process id of a broker."""
        return self._running(broker_id).pid

    def runs(self, broker_id: int) -> bool:
        """Return whether the broker's process lives, even if paused."""
        return self._child(broker_id).runs

    def leader(self, topic: str, partition: int = 0) -> int:
        """Wait for a leader of the partition, and return it."""

        def led() -> int | None:
            leader = self._newest(topic, partition)
            return leader if leader >= 0 and self._nodes[leader].runs else None

        return self._wait(led, f"a leader of {topic}-{partition}")

    def controller(self) -> int:
        """Wait for a controller, and return it."""

        def elected() -> int | None:
            found = self._administer().describe_cluster().controller_id
            return found if found in self._nodes and self._nodes[found].runs else None

        return self._wait(elected, "a controller")

    # -- its life

    def start(self) -> "Cluster":
        """Start the store and all brokers, and wait until clients can connect."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self) -> None:
        if self._zookeeper is None:
            self._zookeeper = self._start_store()
        relays = self._relays = Relays(self._pids)
        for broker_id, node in self._nodes.items():
            node.child = self._make(relays, broker_id, node, self._zookeeper)
            node.child.launch()
        for broker_id in self._nodes:
            self._child(broker_id).wait_ready()
            self._joined = True
        self._wait(self._all_known, "all brokers to know each other")

    def _start_store(self) -> str:
        port = unused_port()
        self._store = store_process(self.data_dir / "store", port)
        self._store.launch()
        return self._store.wait_ready()

    def _make(self, relays: Relays, broker_id: int, node: "_Node", zookeeper: str) -> Child:
        servers, slash, chroot = zookeeper.partition("/")
        near = (_relay_to_server(relays, broker_id, server) for server in servers.split(","))
        settings = node_settings(
            broker_id,
            zookeeper=f"{','.join(near)}{slash}{chroot}",
            folder=str(self.data_dir / f"broker-{broker_id}"),
            client_port=node.client_port,
            broker_port=node.broker_port,
            metrics_port=node.metrics_port,
            relay_port=relays.relay_to_broker(broker_id, node.broker_port),
            protocol="PLAINTEXT" if self._stores is None else self._stores.protocol,
        )
        options: Sequence[str] = ()
        if self._stores is not None:
            settings |= self._stores.broker_settings()
            options = self._stores.broker_options()
        racks = {"broker.rack": node.rack} if node.rack else {}
        return broker_process({**self.settings, **settings, **racks}, *options)

    def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly: it hands over its leaderships first."""
        self._child(broker_id).stop()

    def kill(self, *broker_ids: int) -> None:
        """End brokers with SIGKILL, all of them at once."""
        if not broker_ids:
            raise ValueError("name the brokers to kill: kill(1), or kill(*cluster.broker_ids)")
        children = [self._child(broker_id) for broker_id in broker_ids]
        with ThreadPoolExecutor(len(children)) as threads:
            list(threads.map(Child.kill, children))

    def pause(self, broker_id: int) -> None:
        """Freeze a broker (SIGSTOP): it keeps its connections and answers nothing."""
        self._running(broker_id).send(signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        """Let a paused broker continue."""
        self._running(broker_id).send(signal.SIGCONT)

    def start_broker(self, *broker_ids: int) -> None:
        """Start brokers that were stopped or killed, on the same ports with the same data."""
        for broker_id in broker_ids:
            self._child(broker_id).launch()
        for broker_id in broker_ids:
            self._child(broker_id).wait_ready()

    def restart(self, broker_id: int) -> None:
        """Stop a broker cleanly and start it again."""
        self.stop(broker_id)
        self.start_broker(broker_id)

    def close(self) -> None:
        """Stop everything, and remove the temporary folder and this cluster's nodes in `zookeeper`.

        Does nothing in a forked child.
        """
        if self._process != os.getpid():
            return
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        if self._relays is not None:
            self._relays.heal()
        children = [node.child for node in self._nodes.values() if node.child is not None]
        if children:
            # A broker that stops hands over first; if all stop, no broker is left to take over.
            with ThreadPoolExecutor(len(children)) as threads:
                list(threads.map(Child.kill if self._own_dir else Child.stop, children))
        if self._own_nodes and self._joined:
            self._remove_nodes()
            self._joined = False
        if self._relays is not None:
            self._relays.close()
            self._relays = None
        if self._store is not None:
            self._store.stop()
            self._store = self._zookeeper = None
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def _remove_nodes(self) -> None:
        """Leave nothing in the user's ZooKeeper; kazoo is imported only where it is needed."""
        from headwater.broker.local_store import tls_to_zookeeper
        from headwater.config.broker import BrokerSettings
        from headwater.controller.store.removal import remove_nodes

        settings = BrokerSettings.load(None, {**self.settings, "zookeeper.connect": self.zookeeper})
        login, tls = settings.zookeeper_login, tls_to_zookeeper(settings)
        problem = remove_nodes(*settings.zookeeper_address, login, tls, _REMOVAL_TIMEOUT_S)
        if problem is not None:
            log.warning(
                "the nodes of a test's cluster may remain at %s: %s", self.zookeeper, problem
            )

    # -- faults

    def partition(self, one: Node, other: Node, *, one_way: bool = False) -> None:
        """Cut the link between two brokers, or between a broker and "zookeeper".

        `one_way` drops only what `one` sends to `other`.
        """
        relays = self._running_relays()
        for node in (one, other):
            if node != STORE:
                self._check_id(node)
        relays.cut(one, other)
        if not one_way:
            relays.cut(other, one)

    def isolate(self, broker_id: int) -> None:
        """Cut a broker off from all other brokers and from the store; clients still reach it."""
        self.partition(broker_id, STORE)
        for other in self._nodes:
            if other != broker_id:
                self.partition(broker_id, other)

    def heal(self) -> None:
        """Repair every link."""
        self._running_relays().heal()

    def fail_disk(self, broker_id: int) -> None:
        """Let every write of a broker fail from now on, until it is started again."""
        resource.prlimit(self.pid(broker_id), resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    # -- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: int | None = None,
        configs: Mapping[str, str | float | bool] | None = None,
    ) -> None:
        """Create a topic and return when it can be written to."""
        self._administer().create_topics(
            [NewTopic(name, partitions, replicas, configs=configs or {})]
        )

    def wait_until_in_sync(
        self, topics: Iterable[str] | None = None, timeout_s: float = WAIT_TIMEOUT_S
    ) -> None:
        """Wait until every replica of these topics (all topics if None) is in sync and led."""
        names = None if topics is None else set(topics)

        def in_sync() -> bool:
            views = self._views()
            running = [node for node in self._nodes.values() if node.runs]
            chosen = [_chosen(view, names) for view in views]
            return (
                len(views) == len(running)
                and all(view == chosen[0] for view in chosen)
                and all(
                    row.leader_id >= 0 and set(row.isr_nodes) == set(row.replica_nodes)
                    for row in chosen[0].values()
                )
            )

        self._wait(in_sync, "all replicas to be in sync", timeout_s)

    # -- inside

    def _check_id(self, broker_id: Node) -> None:
        if broker_id not in self._nodes:
            raise ValueError(f"there is no broker {broker_id}: this cluster has {self.broker_ids}")

    def _child(self, broker_id: int) -> Child:
        self._check_id(broker_id)
        child = self._nodes[broker_id].child
        if child is None:
            raise RuntimeError("the cluster is not started: use `with Cluster(3)`, or start()")
        return child

    def _running(self, broker_id: int) -> Child:
        child = self._child(broker_id)
        if not child.runs:
            raise RuntimeError(f"broker {broker_id} is not running: start_broker({broker_id})")
        return child

    def _running_relays(self) -> Relays:
        if self._relays is None:
            raise RuntimeError("the cluster is not started: use `with Cluster(3)`, or start()")
        return self._relays

    def _administer(self) -> BlockingAdmin:
        if self._admin is None:
            self._admin = BlockingAdmin(client_id="headwater-testing", **self.client_settings())
        return self._admin

    def _newest(self, topic: str, partition: int) -> int:
        """Return the leader in the newest epoch that any broker knows."""
        known = [view[topic, partition] for view in self._views() if (topic, partition) in view]
        if not known:
            raise KafkaError(E.UNKNOWN_TOPIC_OR_PARTITION, "no broker knows this partition")
        return max(known, key=lambda row: row.leader_epoch).leader_id

    def _views(self) -> list[_View]:
        """Yield the partitions as each running broker sees them; skip those that do not answer."""
        ports = [node.client_port for node in self._nodes.values() if node.runs]
        settings = AdminSettings.of(
            self.client_settings()
            | {
                "client_id": "headwater-testing",
                "request_timeout_ms": int(_ASK_S * 1000),
                "socket_connection_setup_timeout_ms": int(_ASK_S * 1000),
            }
        )
        return self._running_relays().run(_views_at(settings, ports))

    def _all_known(self) -> bool:
        """Return whether the metadata of each broker has all brokers and a controller."""
        for broker_id in self._nodes:
            own = self.client_settings() | {"bootstrap_servers": self.address(broker_id)}
            with BlockingAdmin(**own) as admin:
                described = admin.describe_cluster()
            known = {node.id for node in described.brokers}
            if known != set(self._nodes) or described.controller_id not in known:
                return False
        return True

    def _wait(
        self, found: Callable[[], T | None], for_what: str, timeout_s: float = WAIT_TIMEOUT_S
    ) -> T:
        """Call `found` until it returns something, ignoring errors of a cluster in transition."""
        now_ms, problem = SystemClock().monotonic_ms, ""
        begun = now_ms()
        silent = True
        while now_ms() < begun + timeout_s * 1000:
            try:
                answer = found()
            except KafkaError as failure:
                problem = f" ({failure})"
            else:
                if answer:
                    return answer
                problem = ""
            if silent and now_ms() >= begun + _SILENT_S * 1000:
                log.warning("waiting for %s for %g s%s", for_what, _SILENT_S, problem)
                silent = False
            self._pause.wait(_POLL_S)
        raise TimeoutError(f"waited {timeout_s:g} s for {for_what}{problem}")

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Node:
    """One broker of the cluster: its ports, and its process after the first start."""

    def __init__(self, rack: str) -> None:
        self.rack = rack
        self.client_port = unused_port()
        self.broker_port = unused_port()
        self.metrics_port = unused_port()
        self.child: Child | None = None

    @property
    def runs(self) -> bool:
        return self.child is not None and self.child.runs


def _relay_to_server(relays: Relays, broker_id: int, server: str) -> str:
    """Relay a broker's connections to one server of the store; return where to connect."""
    host, _, port = server.rpartition(":")
    return f"127.0.0.1:{relays.relay_to_store(broker_id, host.strip('[]'), int(port))}"


def _chosen(view: _View, topics: set[str] | None) -> _View:
    return {at: row for at, row in view.items() if topics is None or at[0] in topics}


async def _views_at(settings: AdminSettings, ports: list[int]) -> list[_View]:
    login = login_of(settings, SystemRandomness())
    asked = (_view_at(settings, port, login) for port in ports)
    views = await asyncio.gather(*asked, return_exceptions=True)
    return [view for view in views if isinstance(view, dict)]


async def _view_at(settings: AdminSettings, port: int, login: "Login | None") -> _View:
    """Return the metadata of exactly this broker; a client may ask any of them."""
    connection = await open_connection(settings, TcpNetwork(), "127.0.0.1", port, login)
    try:
        answer = await connection.call(MetadataRequest(topics=None), MetadataResponse)
    finally:
        connection.close()
    return {
        (topic.name or "", row.partition_index): row
        for topic in answer.topics
        for row in topic.partitions
    }
