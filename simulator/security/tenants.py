"""Users with few rights: they write and read what they may, and try what they may not."""

import asyncio
from collections.abc import Callable
from typing import Any

from headwater.client.consumer.consumer import Consumer
from headwater.client.login import PasswordLogin
from headwater.client.producer.producer import Producer
from headwater.config.client_sasl import SaslCredentials
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from headwater.transport.client_connection import ClientConnection
from headwater.transport.sasl_login import log_in
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from simulator.cluster import Cluster
from simulator.invariants import Promises
from simulator.node import PORT
from simulator.randomness import SimRandomness, stream
from simulator.security.checks import marker
from simulator.security.users import OF, Users
from simulator.workload.real_clients import RealClient

LARGEST = 300
AFTER_SESSION_S = 0.4
OPEN_MS = 2500
"""The timeout of transactions."""


class Tenant(RealClient):
    """A process of one user that starts again after every error."""

    def __init__(
        self, cluster: Cluster, promises: Promises, user: str, what: str, over: Callable[[], bool]
    ) -> None:
        super().__init__(cluster, promises, f"tenant {user} {what}")
        self.user = user
        self.what = what
        self.over = over

    async def run(self) -> None:
        """Work until the run is over."""
        while not self.over():
            try:
                await self.work()
            except (KafkaError, OSError):
                await self.pause(400)

    async def work(self) -> None:
        """Work with one client for a while."""
        raise NotImplementedError

    def any_topic(self) -> str:
        """Choose a topic, the own one or another."""
        return self.chance.choice(list(OF.values()))

    def connected(self) -> dict[str, Any]:
        """Return the settings of every client of this process."""
        return {"bootstrap_servers": self.bootstrap, **self.seams(), **self.options()}


class TenantWriter(Tenant):
    """Writes as fast as it may, with or without transactions."""

    async def work(self) -> None:
        """Write some records."""
        transacts = self.what == "transactions"
        named: dict[str, Any] = {}
        if transacts:
            named = {"transactional_id": f"tx-{self.user}", "transaction_timeout_ms": OPEN_MS}
        producer = Producer(
            **self.connected(), max_block_ms=2500, delivery_timeout_ms=3000, linger_ms=0,
            **named,
        )  # fmt: skip
        self.opened(producer._waits)
        try:
            if transacts:
                await self._transact(producer)
            else:
                await self._write(producer)
        finally:
            await producer.close(0.5)

    async def _transact(self, producer: Producer) -> None:
        await producer.init_transactions()
        for _ in range(self.chance.randrange(1, 5)):
            await producer.begin_transaction()
            try:
                await self._write(producer)
            except KafkaError:
                await producer.abort_transaction()
                raise
            await producer.commit_transaction()
            await self.pause(200)

    async def _write(self, producer: Producer) -> None:
        topic = self.any_topic()
        for _ in range(self.chance.randrange(2, 20)):
            if self.chance.random() < 0.15:
                topic = self.any_topic()
            value = marker(topic) + bytes(self.chance.randrange(LARGEST))
            stored = await producer.send(topic, value, partition=0)
            await stored
            if self.chance.random() < 0.3:
                await self.pause(30)
            if self.over():
                return


class TenantReader(Tenant):
    """Reads one topic or the other."""

    async def work(self) -> None:
        """Read for some time."""
        consumer: Consumer[Any, Any] = Consumer(
            **self.connected(), default_api_timeout_ms=2500,
            fetch_max_wait_ms=self.chance.choice((100, 500)), max_partition_fetch_bytes=1500,
            auto_offset_reset=self.chance.choice(("earliest", "latest")),
        )  # fmt: skip
        self.opened(consumer._poller)
        try:
            await consumer.assign([TopicPartition(self.any_topic(), 0)])
            for _ in range(self.chance.randrange(2, 10)):
                await consumer.poll(timeout=0.3)
                if self.over():
                    return
        finally:
            await consumer.close()


class Lingerer(Tenant):
    """Logs in, and asks for something after the end of its session."""

    def __init__(
        self,
        cluster: Cluster,
        promises: Promises,
        user: str,
        users: Users,
        over: Callable[[], bool],
    ) -> None:
        super().__init__(cluster, promises, user, "lingerer", over)
        self._users = users

    async def work(self) -> None:
        """Wait for the end of a session, and go on."""
        node = self.chance.choice(self.cluster.nodes)
        login = self._users.login(self.name)
        credentials = SaslCredentials(
            login["sasl_mechanism"], login["sasl_username"], login["sasl_password"]
        )
        randomness = SimRandomness(stream(self.cluster.seed, f"{self.name} login"))
        connection = await ClientConnection.open(
            self.cluster.network, node.host, PORT, client_id=self.name, timeout_s=2.0
        )
        try:
            exchange = PasswordLogin(credentials, randomness).begin()
            lifetime_ms = await log_in(connection, credentials.mechanism, exchange)
            until_s = asyncio.get_running_loop().time() + lifetime_ms / 1000 + AFTER_SESSION_S
            while asyncio.get_running_loop().time() < until_s and not self.over():
                await self.pause(300)
            await connection.call(MetadataRequest(topics=None), MetadataResponse)
        finally:
            connection.close()
        await self.pause(500)
