"""The loads that every server gets: which requests, over how many connections, with what limits.

A produce load comes in two shapes, since the fast path must hold for all of them: `old` is what
librdkafka 2.0 or aiokafka send (Produce 7, acks=1, a plain batch), `new` what a Java 4 client
sends by default (Produce 13 by topic id, acks=all, an idempotent batch). `mixed` ones cross them.
All connections of a load write to one partition, unless it says otherwise.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from benchmarks.load import encode, generator
from benchmarks.load.encode import NOBODY, Topic
from benchmarks.load.generator import Load
from benchmarks.load.servers import Server
from benchmarks.load.targets import Limit, at_least, at_most

FETCH_BYTES = 1 << 20
_FETCH_BATCH = encode.batch_of(64 << 10, 1000)
_FETCH_COPIES = 2000  # 128 MiB a partition: more than any CPU cache, less than memory


@dataclass(frozen=True)
class Limits:
    """Bounds of one load: rate against C, rate against Kafka, CPU per request against Kafka."""

    rate_c: Limit | None = None
    rate_kafka: Limit | None = None
    cpu_kafka: Limit | None = None

    def of(self, measure: str, rival: str) -> Limit | None:
        """The bound of `measure` ("rate" or "cpu") against `rival`."""
        found: Limit | None = getattr(self, f"{measure}_{rival}", None)
        return found


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Produce:
    """A produce load."""

    name: str
    records: int
    value_bytes: int
    connections: int
    depth: int = 1
    version: int = 7
    acks: int = 1
    idempotent: bool = False
    partitions_per_request: int = 1
    spread: bool = False  # each connection writes to a partition of its own
    baseline: str = ""  # the case with one partition a request, for CPU per partition
    limits: Limits = NO_LIMITS
    rate_unit: str = "MB/s"

    @property
    def bulky(self) -> bool:
        """Whether a run writes gigabytes."""
        return self.records * self.value_bytes > 10_000

    @property
    def settling(self) -> float:
        """Seconds before a measurement makes sense: Kafka is busy with many fresh partitions."""
        return 2.5 if self.spread or self.partitions_per_request > 1 else 0.0

    def prepare(self, server: Server) -> Topic:
        """A fresh topic for one run; each partition has a record, so that its files are there."""
        topic = server.fresh_topic(self.connections if self.spread else self.partitions_per_request)
        everywhere = list(range(topic.partitions))
        first = encode.produce_request(7, 1, topic, everywhere, encode.batch(1, 100))
        generator.run(Load((first,), requests=1), server.port, server.pid)
        return topic

    def load(self, server: Server, topic: Topic) -> Load:
        """The requests of one run; each connection is a producer of its own."""
        frames = []
        for i in range(self.connections if self.idempotent or self.spread else 1):
            producer = server.producer() if self.idempotent else NOBODY
            batch = encode.batch(self.records, self.value_bytes, producer)
            partitions = [i] if self.spread else list(range(self.partitions_per_request))
            frames.append(encode.produce_request(self.version, self.acks, topic, partitions, batch))
        return Load(
            tuple(frames),
            connections=self.connections,
            depth=self.depth,
            idempotent=self.idempotent,
        )


@dataclass(frozen=True)
class Fetch:
    """A fetch load: each consumer reads its own partition from start to end, again and again."""

    name: str
    consumers: int
    version: int
    limits: Limits = NO_LIMITS
    rate_unit: str = "MB/s"

    @property
    def bulky(self) -> bool:
        """A run writes nothing."""
        return False

    @property
    def settling(self) -> float:
        """Nothing changes in a log that is only read."""
        return 0.0

    def prepare(self, server: Server) -> Topic:
        """A topic that is already full."""
        return server.filled_topic(self.consumers, _FETCH_BATCH, _FETCH_COPIES)

    def load(self, server: Server, topic: Topic) -> Load:
        """The requests of one run; the C server knows one version."""
        version = 11 if server.name == "c" else self.version
        records = encode.record_count(_FETCH_BATCH)
        return Load(
            tuple(
                encode.fetch_request(version, topic, partition, FETCH_BYTES)
                for partition in range(self.consumers)
            ),
            connections=self.consumers,
            fetch_end=_FETCH_COPIES * records,
            batch_bytes=len(_FETCH_BATCH),
            batch_records=records,
        )


Case = Produce | Fetch


@dataclass(frozen=True)
class _Size:
    """How large the requests of a load are and how many are under way, with its limits."""

    name: str
    records: int
    value_bytes: int
    connections: int
    depth: int
    limits: Limits
    rate_unit: str = "MB/s"


def _records_in(total_bytes: int, value_bytes: int) -> int:
    return encode.record_count(encode.batch_of(total_bytes, value_bytes))


_SMALL_CPU, _LARGE_CPU = at_most(0.6), at_most(1.0)
_SIZES = (
    _Size("1rec-1c", 1, 100, 1, 1, NO_LIMITS, "req/s"),
    _Size("1rec-10c", 1, 100, 10, 1, Limits(None, at_least(1.8), _SMALL_CPU), "req/s"),
    _Size("1rec-100c", 1, 100, 100, 1, Limits(at_least(0.35), at_least(1.3), _SMALL_CPU), "req/s"),
    _Size("1rec-10cx5", 1, 100, 10, 5, Limits(at_least(0.45), at_least(3), _SMALL_CPU), "req/s"),
    _Size(
        "16KiB",
        _records_in(16 << 10, 100),
        100,
        10,
        2,
        Limits(at_least(0.65), at_least(1.3), _SMALL_CPU),
    ),
    _Size(
        "64KiB",
        _records_in(64 << 10, 1000),
        1000,
        10,
        2,
        Limits(at_least(0.85), at_least(0.9), _LARGE_CPU),
    ),
    _Size(
        "900KB",
        _records_in(900_000, 1000),
        1000,
        4,
        1,
        Limits(at_least(0.85), at_least(1.0), _LARGE_CPU),
    ),
    _Size(
        "1MiB",
        _records_in(1 << 20, 1000),
        1000,
        4,
        1,
        Limits(at_least(0.85), at_least(1.0), _LARGE_CPU),
    ),
)


def _old(size: _Size) -> Produce:
    return Produce(
        f"produce-{size.name}-old",
        size.records,
        size.value_bytes,
        size.connections,
        size.depth,
        limits=size.limits,
        rate_unit=size.rate_unit,
    )


def _new(old: Produce) -> Produce:
    name = old.name.removesuffix("-old") + "-new"
    return replace(old, name=name, version=13, acks=-1, idempotent=True)


def _loads() -> Iterator[Case]:
    for size in _SIZES:
        old = _old(size)
        yield old
        yield _new(old)
        if size.name == "1rec-10c":
            for partitions in (10, 50):
                several = replace(
                    old,
                    name=f"produce-{partitions}-partitions-old",
                    partitions_per_request=partitions,
                    baseline=old.name,
                    limits=NO_LIMITS,
                )
                yield several
                yield replace(_new(several), baseline=_new(old).name)
        if size.name == "1rec-100c":
            yield replace(_new(old), name="produce-1rec-100c-mixed", version=7, limits=NO_LIMITS)
            yield replace(old, name="produce-1rec-100c-spread", spread=True, limits=NO_LIMITS)
    read = Limits(at_least(0.7), at_least(1.0), at_most(0.7))
    yield Fetch("fetch-1c-new", 1, 18)
    yield Fetch("fetch-4c-old", 4, 11, read)
    yield Fetch("fetch-4c-new", 4, 18, read)


# Idempotent acks=all at 100 connections has a bound of its own against Kafka.
_OWN_LIMITS = {"produce-1rec-100c-new": Limits(at_least(0.35), at_least(1.1), _SMALL_CPU)}
CASES: Mapping[str, Case] = {
    case.name: replace(case, limits=_OWN_LIMITS.get(case.name, case.limits)) for case in _loads()
}
