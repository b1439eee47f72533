"""Moves between log dirs, step by step, without an event loop."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from headwater.log.log_dir import LogDir
from headwater.model import TopicPartition
from headwater.replication.log_dir_moves import LogDirMoves, MoveHost
from headwater.replication.replica import Replica
from headwater.replication.replicas import Replicas
from headwater.replication.throttles import ReplicationThrottle
from headwater.seams.tasks import Lane
from headwater.seams.timers import Timer
from simulator.images.storage import Storage


class Mover:
    """The moves of one life."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._due: deque[Callable[[], None]] = deque()
        self._replicas: dict[TopicPartition, _StandIn] = {}
        host = MoveHost(
            cast("Replicas", self),
            ReplicationThrottle(2, 1000),
            storage.clock,
            storage.files,
            self._run_later,
            self._call_later,
            lambda: None,
            lambda _: None,
            lambda _: True,
            self._dir_failed,
        )
        self._moves = LogDirMoves(host)

    @property
    def moving(self) -> set[TopicPartition]:
        """The partitions with a copy."""
        return {future.log.topic_partition for future in self._storage.dirs.futures}

    def begin(self, at: TopicPartition, path: str) -> None:
        """Begin a move; KafkaError says why it cannot be."""
        self._moves.move(at, path)

    def step(self, count: int) -> None:
        """Go on for that many steps; moves that an earlier life began go on too."""
        for at in self.moving:
            replica = self.get(*at)
            if replica is not None:
                self._moves.resume(replica)
        for _ in range(count):
            if self._due:
                self._due.popleft()()

    def is_held(self, at: TopicPartition) -> bool:
        """Return whether the log must not be flushed now."""
        return at in self._replicas and self._replicas[at].held

    def pause(self) -> None:
        """Begin no further step."""
        self._moves.close()
        self.step(100)

    def _run_later(
        self,
        call: Callable[[], None],
        done: Callable[[object, Exception | None], None],
        _lane: Lane,
    ) -> None:
        def run() -> None:
            try:
                call()
            except Exception as failure:  # noqa: BLE001 - as a thread does
                done(None, failure)
            else:
                done(None, None)

        self._due.append(run)

    def _call_later(self, _delay_s: float, call: Callable[[], None]) -> Timer:
        self._due.append(call)
        return cast("Timer", SimpleNamespace(cancel=lambda: None))

    def _dir_failed(self, log_dir: LogDir, failure: OSError) -> None:
        self._storage.dirs.fail(log_dir, str(failure))

    # -- what moves need of `Replicas`

    @property
    def log_dirs(self) -> object:
        """The log dirs."""
        return self._storage.dirs

    def is_offline(self, topic: str, partition: int) -> bool:
        """No partition is offline."""
        return False

    def get(self, topic: str, partition: int) -> Replica | None:
        """Return a stand-in for the replica, with its log."""
        at = TopicPartition(topic, partition)
        log = self._storage.dirs.logs.get(at)
        if log is None:
            return None
        known = self._replicas.get(at)
        if known is None or known.log is not log:
            known = self._replicas[at] = _StandIn(log)
        return cast("Replica", known)


class _StandIn(SimpleNamespace):
    """A replica as far as a move knows it."""

    def __init__(self, log: object) -> None:
        following, saves = SimpleNamespace(cutting=False), SimpleNamespace(saving=False)
        super().__init__(
            log=log, offline=None, partition=None, flushes=self, following=following,
            epoch_saves=saves, held=False,
        )  # fmt: skip

    def hold(self, call: Callable[[], None]) -> None:
        """Begin no flush until `let_go`."""
        self.held = True
        call()

    def let_go(self) -> None:
        """Flush again."""
        self.held = False

    @property
    def topic_partition(self) -> TopicPartition:
        return cast("TopicPartition", self.log.topic_partition)

    @property
    def topic_id(self) -> bytes:
        return cast("bytes", self.log.topic_id)

    @property
    def directory(self) -> str:
        return cast("str", self.log.directory)
