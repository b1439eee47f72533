"""One broker under a test's control, in a thread of the test's process or in its own process.

In a thread it starts in milliseconds; as a process it can be killed like a real one.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from headwater.client.admin import BlockingAdmin, NewTopic
from headwater.testing.hosts import Host, ProcessHost, ThreadHost
from headwater.testing.tls_stores import TlsStores

DEFAULTS = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "metrics.listener": "127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
}
"""Settings that make tests quick and short; `settings` overrides them."""


class Broker:
    """A context manager around one broker on a free port, with its data in a temporary folder."""

    def __init__(
        self,
        settings: Mapping[str, str | float | bool] | None = None,
        *,
        data_dir: str | Path | None = None,
        port: int = 0,
        subprocess: bool = False,
        listeners: str | None = None,
        tls: bool = False,
    ) -> None:
        """`listeners` replaces the only one, on a free port; the first is for this object's clients.

        `tls` makes it one with TLS, with certificates on both sides; clients take
        `client_settings()`.
        """
        chosen = {name: setting_text(value) for name, value in (settings or {}).items()}
        self.settings = {**DEFAULTS, **chosen}
        self.port = port
        self.bootstrap = ""
        """`host:port`, for `bootstrap.servers`; known after the start and kept over restarts."""
        self.metrics_url: str | None = None
        """Where its metrics are; known after the start, None if they are not served."""
        self._process = os.getpid()
        self._own_dir = data_dir is None
        self.data_dir = Path(
            tempfile.mkdtemp(prefix="headwater-") if data_dir is None else data_dir
        )
        self._stores = TlsStores(self.data_dir / "tls") if tls else None
        self._listeners = listeners or self.settings.pop("listeners", None)
        self._host: Host = ProcessHost() if subprocess else ThreadHost()
        self._serves = False

    def start(self) -> "Broker":
        """Start and wait until clients can connect."""
        protocol = "PLAINTEXT" if self._stores is None else "SSL"
        settings = {
            **({} if self._stores is None else self._stores.broker_settings()),
            **self.settings,
            "log.dirs": str(self.data_dir / "data" if self._stores else self.data_dir),
            "listeners": self._listeners or f"{protocol}://127.0.0.1:{self.port}",
        }
        if self._host.runs:
            raise RuntimeError(f"the broker runs already, at {self.bootstrap}: stop it first")
        self.bootstrap, self.metrics_url = self._host.start(settings)
        self._serves = True
        self.port = int(self.bootstrap.rpartition(":")[2])
        return self

    def stop(self) -> None:
        """Stop cleanly; the data stays until `close`."""
        self._serves = False
        self._host.stop()

    def kill(self) -> None:
        """End the process with SIGKILL; only with `subprocess=True`."""
        self._host.kill()
        self._serves = False

    def restart(self) -> None:
        """Stop cleanly and start on the same port with the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the temporary folder; do nothing in a forked child."""
        if self._process != os.getpid():
            return
        self.stop()
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The id of the process that serves."""
        return self._host.pid

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str | float | bool] | None = None,
    ) -> None:
        """Create a topic and return when it can be written to."""
        with self._admin() as admin:
            admin.create_topics([NewTopic(name, partitions, configs=configs or {})])

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        with self._admin() as admin:
            admin.delete_topics([name])

    def _admin(self) -> BlockingAdmin:
        if not self._serves:
            state = (
                "stopped: start() it again"
                if self.bootstrap
                else ("not started: use `with Broker() as broker`, or start()")
            )
            raise RuntimeError(f"the broker is {state}")
        return BlockingAdmin(client_id="headwater-testing", **self.client_settings())

    def client_settings(self, user: str = "client") -> dict[str, Any]:
        """Return the settings of a client: the address, and with `tls` the stores of this user."""
        secure = {} if self._stores is None else self._stores.client_settings(user)
        return {"bootstrap_servers": self.bootstrap, **secure}

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def setting_text(value: str | float | bool) -> str:
    """Return a setting as in a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)
