"""The plan of one run of a cluster: its size, its settings, and its troubles, all from a seed.

A plan is data. `shrinking.py` shortens a failing run by removing troubles one by one; the rest of
the run stays the same.
"""

from dataclasses import dataclass

from simulator.randomness import Stream, stream

SESSION_MS = 1500
"""The timeout of a session with ZooKeeper."""
LAG_LIMIT_MS = 2500
"""replica.lag.time.max.ms: longer than a session."""
STORM_MS = 11_000
"""The time during which troubles occur."""
FEWEST, MOST = 5, 9
"""The number of troubles of a run."""

WITHOUT_TRANSACTIONS = 7
"""One seed of seven has no transactions."""
SECURED = 30
"""In one seed of thirty clients log in."""
MOVED = 1 / 3
"""The share of seeds in which partitions get other replicas."""
MOST_MOVES = 3
FIRST_MOVE = 100
"""Their numbers begin here, after those of all troubles."""

BROKERS = ("leader", "leader", "follower", "controller", "coordinator", "any")
"""The targets of troubles; a role is resolved when the trouble begins."""

KINDS = (
    "crash",
    "crash at an operation",
    "crash of all",
    "chained crash",
    "restart",
    "rolling restart",
    "power cut",
    "unseen power cut",
    "pause",
    "short pause",
    "isolate",
    "cut off from brokers",
    "cut off from zookeeper",
    "deaf to zookeeper",
    "mute to zookeeper",
    "one-way cut",
    "one-way ring",
    "bridge",
    "slow links",
    "slow links of brokers",
    "cut off from clients",
    "reset",
    "zookeeper restart",
    "zookeeper breaks at a write",
    "zookeeper breaks",
    "session expires",
    "clock jump",
    "full disk",
    "slow disk",
    "new controller",
    "unheard new controller",
    "late control requests",
    "leaders moved",
    "leaders swapped",
    "client pause",
    "member crash",
    "member crash while joining",
    "transactor crash",
    "second transactor",
    "stalled streams",
    "stalled streams of brokers",
)


@dataclass(frozen=True)
class Trouble:
    """One fault and its duration."""

    at_ms: int
    kind: str
    who: str
    lasts_ms: int
    number: int = 0
    """Makes random choices differ between two troubles of one kind."""

    def __str__(self) -> str:
        return f"{self.at_ms / 1000:.3f} s: {self.kind} ({self.who}) for {self.lasts_ms} ms"


@dataclass(frozen=True)
class ClusterPlan:
    """The swarm settings of one seed."""

    brokers: int
    troubles: tuple[Trouble, ...]
    settings: dict[str, str]
    slowest_network_ms: int
    slowest_thread_ms: int
    cold: float
    short: float
    producers: int
    records: int
    """How many records each producer sends."""
    recreated: bool
    """Whether a topic is deleted and recreated while it is in use."""
    members: int
    """How many consumers share a group."""
    strategy: str
    """The assignor of the group."""
    min_insync: int
    pause_ms: int = 800
    """How long a producer rests at most between two records."""
    idle_s: int = 0
    """The quiet time before the audit."""
    transactors: int = 0
    """How many transactional ids write transactions."""
    transactions: int = 0
    """How many transactions each of them has."""
    transformers: int = 0
    """How many members transform records in transactions."""
    old_protocol: float = 0.0
    """The share of transactional processes that know no transaction.version."""
    follower_reads: bool = False
    """Whether brokers and consumers have racks, and consumers read from the replica of theirs."""
    secured: bool = False
    """Whether clients log in, with rights, passwords and quotas that change."""
    moves: tuple[Trouble, ...] = ()
    """What an operator does to the replicas of partitions beside the troubles."""

    @property
    def ends_ms(self) -> int:
        """When the last trouble ends, unless that depends on the brokers."""
        return max((one.at_ms + one.lasts_ms for one in (*self.troubles, *self.moves)), default=0)

    @classmethod
    def of(cls, seed: int) -> "ClusterPlan":
        """Draw a plan with some kinds of trouble, so that common ones do not hide rare ones."""
        chance = stream(seed, "cluster plan")
        kinds = tuple(kind for kind in KINDS if chance.random() < 0.4) or ("crash",)
        count = chance.randrange(FEWEST, MOST + 1)
        troubles = [_trouble(chance, kinds, number) for number in range(count)]
        settings = {
            "replica.fetch.wait.max.ms": str(chance.choice((150, 500, 1000, 1000))),
            "log.segment.bytes": str(chance.choice((5000, 1 << 20))),
            "num.replica.fetchers": str(chance.choice((1, 1, 1, 2))),
            "leader.imbalance.check.interval.seconds": str(chance.choice((1, 3, 300))),
        }
        transacts = seed % WITHOUT_TRANSACTIONS != 0
        return cls(
            brokers=3,
            troubles=tuple(sorted(troubles, key=lambda trouble: (trouble.at_ms, trouble.number))),
            settings=settings,
            slowest_network_ms=chance.choice((1, 5, 30)),
            slowest_thread_ms=chance.choice((1, 20, 100)),
            cold=chance.choice((0.0, 0.0, 0.1)),
            short=chance.choice((0.0, 0.0, 0.05)),
            producers=chance.choice((1, 1, 2) if transacts else (1, 2, 3)),
            records=chance.choice((10, 15, 30) if transacts else (15, 30, 50)),
            recreated=chance.random() < 0.4,
            members=chance.randrange(3),
            strategy=chance.choice(("range", "cooperative-sticky")),
            min_insync=chance.choice((1, 2, 2)),
            transactors=chance.choice((1, 2, 2, 3)) if transacts else 0,
            transactions=chance.choice((3, 5, 8)),
            transformers=chance.choice((0, 1, 1, 2)) if transacts else 0,
            old_protocol=chance.choice((0.0, 0.5, 0.5, 1.0)),
            follower_reads=chance.random() < 1 / 3,
            secured=seed % SECURED == SECURED - 1,
            moves=_moves(seed),
        )


def _trouble(chance: Stream, kinds: tuple[str, ...], number: int) -> Trouble:
    kind = chance.choice(kinds)
    lasts_ms = chance.choice((50, 300, 1000, 2000, 3500, 5000))
    return Trouble(chance.randrange(STORM_MS), kind, chance.choice(BROKERS), lasts_ms, number)


def _moves(seed: int) -> tuple[Trouble, ...]:
    """Draw from a stream of their own: what else a seed means stays as it is."""
    chance = stream(seed, "moves")
    if chance.random() >= MOVED:
        return ()
    count = chance.randrange(1, MOST_MOVES + 1)
    return tuple(
        _trouble(chance, ("partitions moved",), FIRST_MOVE + number) for number in range(count)
    )
