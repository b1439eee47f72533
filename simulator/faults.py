"""The faults of a run: each seed draws a few kinds of trouble and their times."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from simulator.cluster import Cluster
from simulator.files import MANY_DESCRIPTORS
from simulator.invariants import Promises
from simulator.node import Life
from simulator.randomness import stream

KINDS = (
    "crash",
    "crash at an operation",
    "power cut",
    "reset",
    "full disk",
    "broken disk",
    "clock jump",
    "restart",
    "far clock jump",
    "few descriptors",
    "crash of a new topic",
)
BREAKABLE = ("write", "fdatasync", "sync_dir", "create", "rename", "read")
FARTHEST_JUMP_MS = 600_000
HOUR_MS = 3_600_000
TEN_YEARS_MS = 10 * 365 * 24 * HOUR_MS
STEP_S = 0.01
PATIENCE_S = 60.0
"""How long a start or a stop may take, in virtual time."""
MOST_CRASHES_AT_START = 3


@dataclass(frozen=True)
class FaultPlan:
    """The troubles of one seed."""

    kinds: tuple[str, ...]
    troubles: int
    cold: float
    short: float
    all_synced: bool
    slowest_network_ms: int
    slowest_thread_ms: int
    recreated: bool = False
    """Whether a topic is deleted and recreated while it is in use."""
    log_dirs: int = 1

    @classmethod
    def of(cls, seed: int) -> "FaultPlan":
        """Draw a plan with some kinds of trouble, so that common ones do not hide rare ones."""
        chance = stream(seed, "weather")
        kinds = tuple(kind for kind in KINDS if chance.random() < 0.5) or ("crash",)
        return cls(
            kinds,
            troubles=chance.randrange(2, 6),
            cold=chance.choice((0.0, 0.05, 0.3)),
            short=chance.choice((0.0, 0.02, 0.1)),
            all_synced=chance.random() < 0.5,
            slowest_network_ms=chance.choice((1, 5)),
            slowest_thread_ms=chance.choice((1, 20, 200)),
            recreated=chance.random() < 0.6,
            log_dirs=chance.choice((1, 1, 2, 3)),
        )


class Nemesis:
    """Causes the troubles, and restarts the broker."""

    def __init__(
        self,
        cluster: Cluster,
        fault_plan: FaultPlan,
        promises: Promises,
        audit: Callable[[], Awaitable[None]],
    ) -> None:
        self._cluster = cluster
        self._node = cluster.node
        self._fault_plan = fault_plan
        self._promises = promises
        self._audit = audit
        self._chance = stream(cluster.seed, "nemesis")
        self._node.faults.cold = fault_plan.cold
        self._node.faults.short = fault_plan.short

    async def run(self) -> None:
        """Cause all troubles, one after the other; the broker serves afterwards."""
        for _ in range(self._fault_plan.troubles):
            await self._wait_ms(30, 800)
            await self._bring(self._chance.choice(self._fault_plan.kinds))

    async def _bring(self, kind: str) -> None:
        self._cluster.trace.note(f"trouble: {kind}")
        match kind:
            case "reset":
                self._cluster.network.reset_some(0.5)
            case "full disk":
                await self._fill_disk()
            case "broken disk":
                await self._break_disk()
            case "clock jump":
                self._node.skew_ms = self._chance.randrange(-FARTHEST_JUMP_MS, FARTHEST_JUMP_MS)
            case "crash of a new topic":
                await self._crash_new_topic()
            case "power cut of a new topic":
                await self._cut_power_of_new_topic()
            case "far clock jump":
                await self._jump_far()
            case "few descriptors":
                await self._use_up_descriptors()
            case "restart":
                await self.stop()
                await self.start()
            case "crash":
                self._node.crash()
                await self._come_back(power_cut=False)
            case "power cut":
                self._node.crash()
                await self._come_back(power_cut=True)
            case _:
                await self._crash_at_operation()

    async def _fill_disk(self) -> None:
        self._node.faults.full, self._node.faults.freed = True, 0
        await self._wait_ms(50, 1500)
        self._node.faults.full = False
        await self._wait_ms(1000, 1200)

    async def _jump_far(self) -> None:
        """Set the wall clock wrong by hours or years for a while; the broker may restart meanwhile."""
        far = self._chance.choice((2 * HOUR_MS, TEN_YEARS_MS))
        before, self._node.skew_ms = self._node.skew_ms, self._chance.choice((-far, far))
        restart = self._chance.choice(("none", "restart", "crash"))
        if restart == "restart":
            await self.stop()
            await self.start()
        elif restart == "crash":
            self._node.crash()
            await self._come_back(power_cut=False)
        await self._wait_ms(50, 2500)
        self._node.skew_ms = before

    async def _use_up_descriptors(self) -> None:
        """Let the process open only a few more files for a while."""
        life = self._node.life
        assert life is not None
        self._node.faults.descriptors = len(life.files.open_files) + self._chance.randrange(3)
        await self._wait_ms(50, 800)
        self._node.faults.descriptors = MANY_DESCRIPTORS

    async def _break_disk(self) -> None:
        """Let the disk fail for a while, then restart the broker, as its log demands."""
        self._node.faults.broken = self._chance.choice(BREAKABLE)
        await self._wait_ms(50, 800)
        self._node.faults.broken = ""
        self._node.crash()
        await self._come_back(power_cut=False)

    async def _crash_at_operation(self) -> None:
        life = self._node.life
        assert life is not None
        faults = self._node.faults
        faults.crash_before = life.files.operations + self._chance.randrange(40)
        await self._until(lambda: life.ended, 1.0)
        faults.crash_before = None
        if life.ended:
            await self._come_back(self._draws_power_cut())

    async def _crash_new_topic(self) -> None:
        """Crash soon after a recreated topic acknowledged its first records."""
        before = self._promises.written_again()
        await self._until(lambda: self._promises.written_again() > before, 1.5)
        self._node.crash()
        await self._come_back(self._draws_power_cut())

    async def _cut_power_of_new_topic(self) -> None:
        """Lose power soon after a topic took the name of another, before much is synced."""
        before = self._promises.created_again()
        await self._until(lambda: self._promises.created_again() > before, 2.5)
        await self._wait_ms(0, 100)
        self._node.crash()
        await self._come_back(power_cut=True)

    def _draws_power_cut(self) -> bool:
        return "power cut" in self._fault_plan.kinds and self._chance.random() < 0.5

    async def _come_back(self, power_cut: bool) -> None:
        """Start again, with another crash during the start in some runs."""
        any_power_cut = False
        for rest in range(MOST_CRASHES_AT_START, -1, -1):
            # Long enough for answers in flight to arrive: they count as given.
            await self._wait_ms(20, 300)
            if power_cut:
                any_power_cut = self._cluster.auditing = True
                self._node.lose_power()
            if rest and self._chance.random() < 0.3:
                self._node.faults.crash_before = self._chance.randrange(40)
            life = await self.start()
            self._node.faults.crash_before = None
            if life.serving:
                break
            power_cut = self._draws_power_cut()
        if any_power_cut:
            await self._audit()
            self._cluster.auditing = False

    async def start(self) -> Life:
        """Start the broker; return when it serves or has crashed."""
        self._node.start()
        life = self._node.life
        assert life is not None
        if not await self._until(lambda: life.serving or life.ended, PATIENCE_S):
            self._cluster.scheduler.complain("I10: the broker does not come up")
        return life

    async def stop(self) -> None:
        """Stop the broker cleanly."""
        self._node.stop()
        if not await self._until(lambda: self._node.life is None, PATIENCE_S):
            self._cluster.scheduler.complain("the broker does not stop")
            self._node.crash()

    async def _until(self, done: Callable[[], bool], patience_s: float) -> bool:
        for _ in range(int(patience_s / STEP_S)):
            if done():
                return True
            await asyncio.sleep(STEP_S)
        return done()

    async def _wait_ms(self, least: int, most: int) -> None:
        await asyncio.sleep(self._chance.randrange(least, most) / 1000)
