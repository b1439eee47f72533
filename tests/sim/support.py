"""A cluster with one watched topic, for scenarios that are told step by step."""

from headwater.errors import error_of
from headwater.model import EARLIEST, LATEST, TopicPartition
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse
from simulator.cluster import Cluster
from simulator.incarnations import Attempt
from simulator.invariants import Promises, Value
from simulator.workload.admin import Admin
from simulator.workload.audit import Auditor
from simulator.workload.client import Client, Disturbed
from simulator.workload.reading import end_of, fetch

TOPIC = "orders"
AT = TopicPartition(TOPIC, 0)
TRIES = 20


class Scene:
    """One cluster, one client, one topic."""

    def __init__(self, cluster: Cluster, *, synced: bool = False) -> None:
        self.cluster = cluster
        self.promises = Promises(cluster.scheduler.complain, all_synced=synced)
        self.client = Client(cluster, self.promises, "client")
        self._sent = 0

    def create_topic(self, name: str = TOPIC, **configs: str) -> None:
        admin = Admin(self.cluster, self.promises, "admin")
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.cluster.run(admin.create(name, 1, named))
        admin.disconnect()
        self.promises.add_topic(name, 1, synced=False)

    async def create_later(self, name: str) -> None:
        """Create a topic however long that takes, while the test goes on."""
        admin = Admin(self.cluster, self.promises, "late admin")
        await admin.create(name, 1, {})
        admin.disconnect()

    def produce(self, size: int = 100) -> str:
        """One record with acks=all; the name of the error, NONE when it was acknowledged."""
        value = Value("scene", self._sent, False, bytes(size))
        self._sent += 1
        return self._ask(lambda: self._produce(value))

    async def _produce(self, value: Value) -> str:
        books = self.promises.partitions[AT]
        books.sent[value.encode()] = value
        attempt = Attempt(None, self.cluster.scheduler.now_us)
        self.promises.attempt(TOPIC, [value.encode()], attempt)
        now_ms = self.cluster.clock.wall_ms()
        batch = build_batch([Record(timestamp=now_ms, value=value.encode())], now=now_ms)
        data = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
        topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
        answer = await self.client.call(request, ProduceResponse, newest=12)
        result = answer.responses[0].partition_responses[0]
        if result.error_code == 0:
            books.acknowledge(result.base_offset, [value.encode()])
        return error_of(result.error_code).name

    def read_error(self) -> str:
        """What a consumer hears that reads from the start."""

        async def read() -> str:
            found = await fetch(self.client, AT, 0, newest=12, max_bytes=1000, wait_ms=0)
            return error_of(found.error_code).name

        return self._ask(read)

    def ends(self) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            return await end_of(self.client, AT, EARLIEST), await end_of(self.client, AT, LATEST)

        return self._ask(ask)

    def topics(self) -> set[str]:
        async def ask() -> set[str]:
            answer = await self.client.call(MetadataRequest(topics=None), MetadataResponse)
            return {topic.name or "" for topic in answer.topics}

        return self._ask(ask)

    def _ask(self, question):
        """The answer, over a new connection if the old one died with its broker."""

        async def insist():
            for _ in range(TRIES):
                try:
                    return await question()
                except Disturbed:
                    await self.client.back_off()
            raise TimeoutError

        return self.cluster.run(insist())

    def audit(self) -> None:
        self.cluster.run(Auditor(self.cluster, self.promises, "audit").run())

    def let_pass(self, seconds: float) -> None:
        """Let virtual time go by."""
        until_us = self.cluster.scheduler.now_us + int(seconds * 1e6)
        self.cluster.clients.call_later(seconds, lambda: None)
        self.cluster.wait(lambda: self.cluster.scheduler.now_us >= until_us, seconds + 1)
