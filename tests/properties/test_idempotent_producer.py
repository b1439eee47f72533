"""The whole idempotent producer on virtual time against a cluster that fails in every known way.

Whatever happens: every record ends in exactly one way, what was acknowledged is stored once and at
the offset that was reported, and each partition keeps the order of the sends.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import aio
from headwater.errors import E
from simulator.clock import SimClock
from simulator.loop import Scheduler, SimLoop
from simulator.network import SimNetwork
from simulator.randomness import SimRandomness, stream
from simulator.trace import Trace
from tests.clients.fake_cluster import HOST, Attempt, FakeCluster, Fault

TOPIC = "t"
FAULTS: list[Fault] = [
    None,
    "cut before", "cut after", "no answer", "left out",
    E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER, E.LEADER_NOT_AVAILABLE, E.INVALID_RECORD,
    E.KAFKA_STORAGE_ERROR, ("after", E.KAFKA_STORAGE_ERROR),
    ("after", E.REQUEST_TIMED_OUT), ("after", E.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
]  # fmt: skip


class Loop(SimLoop):
    """All threads of a simulated process are one."""

    call_soon_threadsafe = SimLoop.call_soon


@dataclass
class Run:
    """One producer on one cluster."""

    records: int = 60
    partitions: int = 1
    brokers: int = 2
    seed: int = 0
    options: dict[str, object] = field(default_factory=dict)
    pauses: dict[int, float] = field(default_factory=dict)
    """Seconds to wait before a record."""
    outcomes: dict[int, list[object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster = FakeCluster(self.brokers, self.partitions)
        self.scheduler = Scheduler(Trace())

    def play(self, meanwhile: Callable[[int], object] = lambda _: None) -> "Run":
        loop = Loop(self.scheduler, "client", HOST)
        loop.run(self._main(meanwhile), 3600)
        assert self.scheduler.complaints == []
        return self

    async def _main(self, meanwhile: Callable[[int], object]) -> None:
        network = SimNetwork(self.scheduler, stream(self.seed, "network"), 4)
        pause = stream(self.seed, "pauses")
        await self.cluster.serve(network)
        given: dict[str, object] = {
            "batch_size": 90, "linger_ms": 1, "retry_backoff_ms": 20, "retry_backoff_max_ms": 40,
            "request_timeout_ms": 500, "delivery_timeout_ms": 120_000,
            "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 10, "max_block_ms": 30_000,
        }  # fmt: skip
        async with aio.Producer(
            bootstrap_servers=self.cluster.bootstrap,
            clock=SimClock(self.scheduler),
            network=network,
            randomness=SimRandomness(stream(self.seed, "client")),
            **{**given, **self.options},
        ) as producer:
            for number in range(self.records):
                meanwhile(number)
                await asyncio.sleep(self.pauses.get(number, 0))
                await producer.send(
                    TOPIC,
                    b"%d" % number,
                    partition=number % self.partitions,
                    on_delivery=self._noting(number),
                )
                if pause.random() < 0.3:
                    await asyncio.sleep(pause.random() / 50)

    def _noting(self, number: int) -> Callable[[object, object], None]:
        told = self.outcomes.setdefault(number, [])
        return lambda metadata, error: told.append(error or metadata)

    @property
    def acknowledged(self) -> dict[int, tuple[int, int]]:
        return {
            number: (told[0].partition, told[0].offset)
            for number, told in self.outcomes.items()
            if not isinstance(told[0], Exception)
        }

    def check(self) -> None:
        assert all(len(told) == 1 for told in self.outcomes.values())
        assert len(self.outcomes) == self.records
        stored = Counter(
            int(value)
            for partition in range(self.partitions)
            for value in self.cluster.values(TOPIC, partition)
        )
        assert [number for number, times in stored.items() if times > 1] == []
        assert self.acknowledged.keys() <= stored.keys()
        for number, (partition, offset) in self.acknowledged.items():
            assert offset < 0 or self.cluster.values(TOPIC, partition)[offset] == b"%d" % number
        for partition in range(self.partitions):
            order = [int(value) for value in self.cluster.values(TOPIC, partition)]
            assert order == sorted(order)


def scripted(trouble: dict[int, list[Fault]]) -> Callable[[Attempt], Fault]:
    """For each record the faults of the first attempts to send it."""
    left = {b"%d" % number: list(faults) for number, faults in trouble.items()}

    def fault(attempt: Attempt) -> Fault:
        waiting = [left[value] for value in attempt.values if left.get(value)]
        return waiting[0].pop(0) if waiting else None

    return fault


TROUBLE = st.dictionaries(
    st.integers(0, 59), st.lists(st.sampled_from(FAULTS), min_size=1, max_size=5), max_size=6
)


@settings(max_examples=200, deadline=None)
@given(
    TROUBLE,
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 59), st.integers(0, 2), st.integers(1, 2)), max_size=4),
    st.sampled_from([600, 120_000]),
    st.sampled_from([1, 90]),
    st.integers(0, 1 << 20),
)
def test_every_record_ends_once_and_is_stored_once_in_order(
    trouble: dict[int, list[Fault]],
    partitions: int,
    moves: list[tuple[int, int, int]],
    delivery_timeout_ms: int,
    batch_size: int,
    seed: int,
) -> None:
    run = Run(
        partitions=partitions,
        seed=seed,
        options={"delivery_timeout_ms": delivery_timeout_ms, "batch_size": batch_size},
    )
    run.cluster.fault = scripted(trouble)

    def move(number: int) -> None:
        for at, partition, leader in moves:
            if at == number and partition < partitions:
                run.cluster.move(partition, leader)

    run.play(move).check()
    refused = any(E.INVALID_RECORD in faults for faults in trouble.values())
    if delivery_timeout_ms > 1000 and not refused:
        assert len(run.acknowledged) == run.records


def test_a_batch_whose_fate_is_unknown_is_not_sent_under_a_new_number() -> None:
    """Stored, reported as timed out, refused when repeated, and by then older than five batches."""
    run = Run(records=80, options={"batch_size": 1, "linger_ms": 0, "retry_backoff_ms": 300})
    tries = Counter[bytes | None]()

    def fault(attempt: Attempt) -> Fault:
        tries[attempt.values[0]] += 1
        if b"20" not in attempt.values:
            return None
        if tries[attempt.values[0]] == 1:
            return "after", E.REQUEST_TIMED_OUT
        return E.NOT_ENOUGH_REPLICAS if tries[attempt.values[0]] <= 3 else None

    run.cluster.fault = fault
    run.play().check()
    assert tries[b"20"] == 4
    assert len(run.acknowledged) == run.records


def test_a_refusal_says_nothing_of_an_earlier_attempt() -> None:
    """The first batch is given up; the second was stored, and is refused once when repeated."""
    run = Run(
        records=3,
        pauses={2: 0.4},
        options={"delivery_timeout_ms": 2000, "batch_size": 1, "linger_ms": 0},
    )
    tries = Counter[bytes | None]()

    def fault(attempt: Attempt) -> Fault:
        tries[attempt.values[0]] += 1
        if attempt.values == [b"1"]:
            return "no answer" if tries[b"1"] == 1 else E.NOT_ENOUGH_REPLICAS
        return E.NOT_ENOUGH_REPLICAS if attempt.values == [b"2"] and tries[b"2"] == 2 else None

    run.cluster.fault = fault
    run.play().check()
    assert run.cluster.values(TOPIC) == [b"0", b"1", b"2"]
    assert run.acknowledged.keys() == {0, 2}
    assert tries[b"2"] == 3


def test_a_throttled_producer_waits_as_long_as_it_is_asked_to() -> None:
    run = Run(records=8, pauses={4: 0.1}, options={"batch_size": 1})
    run.cluster.throttle_ms = 1000
    arrived: list[int] = []
    run.cluster.fault = lambda _: arrived.append(run.scheduler.now_us)
    run.play().check()
    assert len(run.acknowledged) == run.records
    assert arrived[1] - arrived[0] >= run.cluster.throttle_ms * 1000
