"""Brokers with a plain listener, where topics are made, and a secured one, which gets the load."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.free_ports import free_port

from benchmarks.load.generator import Load, Sample
from benchmarks.load.generator import run as run_load
from benchmarks.load.servers import Headwater, Kafka
from benchmarks.security.login import PASSWORD, USER
from headwater.pki.authority import Authority

_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Stores:
    """An authority and the key store that all brokers of a run share; a context manager."""

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="bench-stores-"))
        authority = Authority(self.folder)
        authority.create("bench")
        self.authority = authority.certificate
        self.broker = self.folder / "broker.pem"
        authority.sign(self.broker, "broker", ("127.0.0.1", "localhost"))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _settings(stores: Stores, protocol: str, plain: int, secure: int, more: str) -> dict[str, str]:
    """Return settings that both kinds of brokers read alike; `more` is another listener."""
    prefix = f"listener.name.{protocol.lower()}"
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},{protocol}://127.0.0.1:{secure}{more}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},{protocol}://127.0.0.1:{secure}",
    }
    if protocol.endswith("SSL"):
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(stores.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(stores.authority),
            "ssl.enabled.protocols": "TLSv1.3",
        }
    if protocol.startswith("SASL"):
        settings |= {
            "sasl.enabled.mechanisms": "PLAIN",
            f"{prefix}.plain.sasl.jaas.config": f'{_JAAS} user_{USER}="{PASSWORD}";',
        }
    return settings


def _secured(load: Load, protocol: str) -> Load:
    if protocol.startswith("SASL"):
        load = replace(load, user=USER, password=PASSWORD)
    return replace(load, tls=protocol.endswith("SSL"))


class SecureKafka(Kafka):
    """Apache Kafka with a listener of this protocol beside the plain one."""

    def __init__(
        self, stores: Stores, protocol: str, more: Mapping[str, str] | None = None
    ) -> None:
        plain, control, self.secure_port = free_port(), free_port(), free_port()
        settings = _settings(
            stores, protocol, plain, self.secure_port, f",CONTROLLER://127.0.0.1:{control}"
        )
        settings["listener.security.protocol.map"] = (
            f"PLAINTEXT:PLAINTEXT,{protocol}:{protocol},CONTROLLER:PLAINTEXT"
        )
        super().__init__({**settings, **(more or {})}, (plain, control))
        self._protocol = protocol

    def measure(self, load: Load) -> Sample:
        """Puts a load on the secured listener."""
        return run_load(_secured(load, self._protocol), self.secure_port, self.pid)


class SecureHeadwater(Headwater):
    """Our broker with a listener of this protocol beside the plain one."""

    def __init__(
        self,
        stores: Stores,
        protocol: str,
        name: str = "headwater",
        more: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self._more = dict(more or {})
        self.secure_port = free_port()
        self._stores = stores
        self._protocol = protocol

    def start(self) -> None:
        """Starts the process and returns at once."""
        secured = _settings(self._stores, self._protocol, self.port, self.secure_port, "")
        self._settings = {**secured, **self._more}
        super().start()

    def measure(self, load: Load) -> Sample:
        """Puts a load on the secured listener."""
        return run_load(_secured(load, self._protocol), self.secure_port, self.pid)
