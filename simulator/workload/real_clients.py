"""The real clients as a workload: idempotent producers, readers, members of a group, admins.

Each client is a process on its own host. Producers write unique values; `Promises` gets every
acknowledgment and every record that was read.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headwater.client.admin.admin_core import AdminCore
from headwater.client.admin.topics import NewTopic
from headwater.client.consumer.consumer import Consumer
from headwater.client.consumer.group.membership import Membership, MemberState
from headwater.client.consumer.listener import RebalanceListener
from headwater.client.consumer.record import ConsumerRecord
from headwater.client.errors import TimedOutError
from headwater.client.producer.producer import Producer
from headwater.errors import E, KafkaError, error_of
from headwater.model import TopicPartition, Uuid
from headwater.wire.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse
from simulator.clock import SimClock
from simulator.cluster import Cluster
from simulator.incarnations import Attempt
from simulator.invariants import Promises, Value
from simulator.loop import SimLoop
from simulator.node import PORT, rack_of
from simulator.randomness import SimRandomness, stream

OPTIONS: dict[str, Any] = {
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 300,
    "request_timeout_ms": 2000,
    "metadata_max_age_ms": 5000,
}
SESSION_MS = 2500
"""The session timeout of a member."""
REBALANCE_MS = 5000
"""The rebalance timeout of a member."""
PATIENCE_MS = 600_000
"""The timeout of a client, longer than any run."""


class RealClient:
    """One process with one client in it."""

    def __init__(self, cluster: Cluster, promises: Promises, name: str) -> None:
        self.cluster = cluster
        self.promises = promises
        self.name = name
        self.chance = stream(cluster.seed, name)
        self.loop = SimLoop(cluster.scheduler, name, name)  # type: ignore[abstract]
        self.task: asyncio.Task[None] | None = None
        cluster.client_loops.append(self.loop)

    def begin(self) -> None:
        """Start the process."""
        self.task = self.loop.create_task(self.run())
        self.task.add_done_callback(self._ended)

    async def run(self) -> None:
        """What the process does."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        """Whether the process has ended."""
        return self.task is not None and self.task.done()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self.promises.complain(f"L4: {self.name} gave up: {failure!r}")

    def seams(self) -> dict[str, Any]:
        """Return the seams of this client."""
        return {
            "clock": SimClock(self.cluster.scheduler),
            "network": self.cluster.network,
            "randomness": SimRandomness(stream(self.cluster.seed, f"{self.name} ids")),
        }

    def options(self) -> dict[str, Any]:
        """Return the settings of this client, with its login where clients log in."""
        return {**OPTIONS, **self.cluster.login(self.name)}

    def reading(self) -> dict[str, Any]:
        """Return the settings of this client if it reads: its rack counts where brokers have racks."""
        nearest = stream(self.cluster.seed, f"{self.name} rack").choice(self.cluster.nodes)
        return {**self.options(), "client_rack": rack_of(nearest.settings.node_id)}

    def opened(self, holder: Any) -> None:
        """Let no finalizer of this part of a client run when the process is killed."""

        def detach() -> None:
            if holder._finalizer is not None:
                holder._finalizer.detach()

        self.loop.at_death.append(detach)

    @property
    def bootstrap(self) -> str:
        """All brokers, in a random order of this client."""
        hosts = [f"{node.host}:{PORT}" for node in self.cluster.nodes]
        self.chance.shuffle(hosts)
        return ",".join(hosts)

    async def insist(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call until a broker answers."""
        while True:
            try:
                return await call()
            except TimedOutError:
                await self.pause(200)

    async def pause(self, most_ms: int) -> None:
        """Sleep for a random time."""
        await asyncio.sleep(self.chance.randrange(most_ms) / 1000)


class RealProducer(RealClient):
    """Writes unique values, idempotently and with acks=all, to one topic."""

    def __init__(
        self,
        cluster: Cluster,
        promises: Promises,
        name: str,
        topic: str,
        records: int,
        pause_ms: int,
    ) -> None:
        super().__init__(cluster, promises, name)
        self._topic = topic
        self._records = records
        self._pause_ms = pause_ms
        self._lives = promises.names[topic]
        self._partitions = len(self._lives.newest.partitions)
        self.acknowledged = 0

    async def run(self) -> None:
        """Send everything; every record is acknowledged in the end."""
        linger_ms = self.chance.choice((0, 1, 20))
        producer = Producer(
            bootstrap_servers=self.bootstrap, **self.seams(), **self.options(), linger_ms=linger_ms,
            delivery_timeout_ms=PATIENCE_MS, max_block_ms=PATIENCE_MS,
            batch_size=self.chance.choice((200, 4000)),  # a segment may have 5000 bytes
        )  # fmt: skip
        self.opened(producer._waits)
        for number in range(self._records):
            await self._send(producer, number)
            if self.chance.random() < 0.5:
                await self.pause(self._pause_ms)
        await producer.close()

    async def _send(self, producer: Producer, number: int) -> None:
        partition = self.chance.randrange(self._partitions)
        value = Value(self.name, number, True, bytes(self.chance.choice((0, 10, 300))))
        content = value.encode()
        # All topics of this name share the record of what was sent.
        self.promises.partitions[TopicPartition(self._topic, partition)].sent[content] = value
        attempt = Attempt(None, self.cluster.scheduler.now_us)
        self.promises.attempt(self._topic, [content], attempt)

        def delivered(metadata: Any, error: Exception | None) -> None:
            # A record that failed may still arrive: its attempt has no end.
            if error is None:
                attempt.answered(self.cluster.scheduler.now_us)
                self.acknowledged += 1
                self._acknowledge(attempt, partition, metadata.offset, content)
            elif len(self._lives.incarnations) == 1 and not self._lives.newest.doomed:
                self.promises.complain(f"L4: {self.name} record {number} failed: {error!r}")

        await producer.send(self._topic, content, partition=partition, on_delivery=delivered)

    def _acknowledge(self, attempt: Attempt, partition: int, offset: int, content: bytes) -> None:
        incarnation = self._lives.target(attempt)
        if incarnation is not None:
            books = incarnation.partitions[partition]
            books.stored.add(content)
            if offset >= 0:
                books.acknowledge(offset, [content])


class RealReader(RealClient):
    """Follows partitions by assignment, from their start."""

    def __init__(
        self, cluster: Cluster, promises: Promises, name: str, topic: str, done: Callable[[], bool]
    ) -> None:
        super().__init__(cluster, promises, name)
        self._topic = topic
        self._done = done
        self.positions = dict.fromkeys(range(len(promises.names[topic].newest.partitions)), 0)

    async def run(self) -> None:
        """Read until the fleet stops."""
        consumer = Consumer(
            bootstrap_servers=self.bootstrap, **self.seams(), **self.reading(),
            auto_offset_reset="earliest", fetch_max_wait_ms=self.chance.choice((300, 1000)),
            default_api_timeout_ms=PATIENCE_MS,
        )  # fmt: skip
        self.opened(consumer._poller)
        places = [TopicPartition(self._topic, at) for at in self.positions]
        await self.insist(lambda: consumer.assign(places))
        while not self._done():
            for record in await consumer.poll(timeout=0.5):
                self._take(record)
        await consumer.close()

    def _take(self, record: ConsumerRecord[Any, Any]) -> None:
        expected = self.positions[record.partition]
        if record.offset != expected:
            self.promises.complain(
                f"I2: {self.name} got {record.offset} of {self._topic}-{record.partition} "
                f"where {expected} was next"
            )
        self.positions[record.partition] = record.offset + 1
        at = TopicPartition(self._topic, record.partition)
        end = self.promises.committed_end(at)
        self.promises.partitions[at].consumed(record.offset, record.value or b"", end)


class RealMember(RealClient):
    """A member of a group, which reads its assignment and commits what it has read."""

    def __init__(
        self,
        cluster: Cluster,
        promises: Promises,
        name: str,
        topic: str,
        done: Callable[[], bool],
        calm: Callable[[], bool],
        strategy: str,
    ) -> None:
        super().__init__(cluster, promises, name)
        self._topic = topic
        self._done = done
        self._calm = calm
        self._strategy = strategy
        self.membership: Membership | None = None
        """The process's view of its membership."""
        self._read: dict[TopicPartition, int] = {}
        """By partition: the end of what is read and not committed."""

    async def run(self) -> None:
        """Take part in the group until the fleet stops."""
        consumer = Consumer(
            bootstrap_servers=self.bootstrap, **self.seams(), **self.reading(), group_id="group",
            auto_offset_reset="earliest", enable_auto_commit=False, session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500, fetch_max_wait_ms=500, default_api_timeout_ms=PATIENCE_MS,
            max_poll_interval_ms=REBALANCE_MS, partition_assignment_strategy=[self._strategy],
        )  # fmt: skip
        self.opened(consumer._poller)
        await self.insist(
            lambda: consumer.subscribe([self._topic], listener=_Forgetting(self._read))
        )
        group = consumer._core._group
        assert group is not None
        self.membership = group._membership
        while not self._done():
            records = await consumer.poll(timeout=0.3)
            for record in records:
                at = TopicPartition(self._topic, record.partition)
                end = self.promises.committed_end(at)
                self.promises.partitions[at].consumed(record.offset, record.value or b"", end)
                self._read[at] = record.offset + 1
            if self._read:
                await self._commit(consumer)
            elif self._calm() and self.chance.random() < 0.3:
                await self._check_committed(consumer)
        await consumer.close()

    @property
    def is_joining(self) -> bool:
        """Whether the member has asked to join and waits for the others."""
        return self.membership is not None and self.membership.state is MemberState.JOINING

    async def _check_committed(self, consumer: Consumer[Any, Any]) -> None:
        """Check that the committed offsets include everything acknowledged before.

        The answer counts as acknowledged from now on: it may tell of a commit whose answer was lost.
        During troubles a coordinator that does not know its successor may answer.
        """
        at = TopicPartition(self._topic, self.chance.randrange(2))
        books = self.promises.commits_of("group", at.partition)
        acknowledged = books.acknowledged
        found = (await consumer.committed([at])).get(at)
        offset = -1 if found is None else found.offset
        if offset < acknowledged:
            self.promises.complain(
                f"I12: {self.name} is told that {offset} is committed for {at}, "
                f"{acknowledged} was acknowledged"
            )
        books.acknowledged = max(books.acknowledged, offset)

    async def _commit(self, consumer: Consumer[Any, Any]) -> None:
        ends = dict(self._read)
        for at, end in ends.items():
            books = self.promises.commits_of("group", at.partition)
            books.asked = max(books.asked, end)
        try:
            await consumer.commit(ends)
        except KafkaError:
            return  # the group has moved on: others read these records again, or this one commits later
        self._read.clear()
        for at, end in ends.items():
            books = self.promises.commits_of("group", at.partition)
            books.acknowledged = max(books.acknowledged, end)


class _Forgetting(RebalanceListener):
    """A member commits nothing for partitions that it had before."""

    def __init__(self, read: dict[TopicPartition, int]) -> None:
        self._read = read

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        """Others read on from what is committed."""
        for at in partitions:
            self._read.pop(at, None)


class RealAdmin(RealClient):
    """Creates the topics of a run, and may delete and re-create one of them."""

    def __init__(
        self, cluster: Cluster, promises: Promises, name: str, work: Callable[["RealAdmin"], Any]
    ) -> None:
        super().__init__(cluster, promises, name)
        self._work = work
        self._core: AdminCore | None = None

    @property
    def core(self) -> AdminCore:
        """The client, while it works."""
        assert self._core is not None
        return self._core

    async def run(self) -> None:
        """Run the work of this admin."""
        settings = {**self.options(), "bootstrap_servers": self.bootstrap}
        self._core = AdminCore({**settings, "default_api_timeout_ms": 10_000}, **self.seams())
        self.opened(self._core.calls)
        await self._work(self)
        await self._core.calls.close()

    async def create(self, topic: NewTopic) -> None:
        """Create a topic, with retries until it succeeds."""
        await self._insist(lambda core: core.topics.create_topics([topic]), E.TOPIC_ALREADY_EXISTS)

    async def delete(self, topic_id: Uuid) -> None:
        """Delete a topic, with retries until it is gone.

        By id: a request by name that arrives late would delete the next topic of that name.
        """
        state = DeleteTopicsRequest.DeleteTopicState(topic_id=topic_id)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=5000)

        async def ask(core: AdminCore) -> None:
            answer = await core.calls.ask_controller(request, DeleteTopicsResponse)
            if answer.responses[0].error_code:
                raise KafkaError(error_of(answer.responses[0].error_code))

        await self._insist(ask, E.UNKNOWN_TOPIC_ID)

    async def try_to(self, call: Callable[[AdminCore], Awaitable[object]]) -> None:
        """Call once, and ignore a refusal."""
        assert self._core is not None
        try:
            await call(self._core)
        except KafkaError:
            return

    async def _insist(self, call: Callable[[AdminCore], Awaitable[None]], done: E) -> None:
        assert self._core is not None
        while True:
            try:
                await call(self._core)
            except KafkaError as failure:
                if failure.code is done:
                    return
                await self.pause(400)
            else:
                return
