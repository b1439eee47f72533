"""Moves replicas between the log dirs of this broker (AlterReplicaLogDirs, KIP-113).

A move copies the log piece by piece on file threads while the log serves. When the copy has caught up,
flushes of the log are held, the copy is flushed and marked, and one step on the loop copies the last
bytes and exchanges the two (`log/future_logs.py` says what a crash leaves). Few moves run at a time;
the others wait. A full disk defers a move; a disk that fails ends it, and the log serves from where it
is.
"""

import errno
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from headwater.errors import E, KafkaError
from headwater.log.descriptors import EXHAUSTED
from headwater.log.future_logs import FutureLog, common_end, remove_mark
from headwater.log.log_dir import LogDir, dir_at
from headwater.log.partition_log import PartitionLog
from headwater.log.retirement import Retirement
from headwater.log.slices import FileSlice
from headwater.model import TopicPartition
from headwater.replication.replica import Replica
from headwater.replication.replicas import Replicas
from headwater.replication.throttles import ReplicationThrottle
from headwater.replication.upkeep import Upkeep
from headwater.seams.clock import Clock
from headwater.seams.files import Files
from headwater.seams.tasks import Lane
from headwater.seams.timers import CallLater

log = logging.getLogger("headwater.server")

PIECE = 1024 * 1024
"""The bytes that are copied at a time, and the most that the last step copies on the loop."""
AT_ONCE = 2
RETRY_S = 30.0
"""When a move that a full disk refused is tried again."""
_TEMPORARY = EXHAUSTED | {errno.ENOSPC, errno.EDQUOT}


OffLoop: TypeAlias = Callable[
    [Callable[[], None], Callable[[object, Exception | None], None], Lane], None
]


@dataclass(frozen=True, slots=True)
class MoveHost:
    """What moves need of the broker."""

    replicas: Replicas
    throttle: ReplicationThrottle
    clock: Clock
    files: Files
    off_loop: OffLoop
    call_later: CallLater
    write_staged: Callable[[], None]
    """Writes what is staged in all logs."""
    replaced: Callable[[Replica], None]
    """Called with a replica that has another log now."""
    is_known: Callable[[TopicPartition], bool]
    """Whether the cluster has the partition."""
    dir_failed: Callable[[LogDir, OSError], None]
    """Called with a log dir that could not be written to."""


class _CopyFailed(OSError):
    """The disk of the copy failed, not that of the log."""


@contextmanager
def _writing_copy() -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        raise _CopyFailed(failure.errno, failure.strerror or str(failure)) from failure


class LogDirMoves:
    """All moves between the log dirs of this broker."""

    def __init__(self, host: MoveHost) -> None:
        self.host = host
        self._moves: dict[TopicPartition, _Move] = {}
        # Moves that were stopped while a thread works on their copies.
        self._ending: dict[TopicPartition, _Move] = {}
        self._running: set[_Move] = set()
        self._waiting: deque[_Move] = deque()
        self._closed = False

    # -- requests

    def move(self, at: TopicPartition, path: str) -> None:
        """Begin to move a replica to the log dir at `path`; KafkaError says why that cannot be.

        A replica that does not exist yet is created there.
        """
        replicas, log_dirs = self.host.replicas, self.host.replicas.log_dirs
        log_dir = dir_at(log_dirs.dirs, path)
        replica = replicas.get(*at)
        if replica is None:
            if replicas.is_offline(*at):
                raise replicas.absence(*at)
            if not self.host.is_known(at):
                raise KafkaError(E.UNKNOWN_TOPIC_OR_PARTITION)
            log_dirs.preferred[at] = log_dir
            raise KafkaError(E.REPLICA_NOT_AVAILABLE)
        if replica.offline is not None:
            raise replica.offline
        future = log_dirs.futures.get(at)
        if future is not None and future.log_dir is log_dir:
            return
        if log_dirs.dir_of(at) is log_dir:
            self.cancel(at)
            return
        log_dirs.refuse_to_replace()
        self.cancel(at, partial(self._create, at, log_dir))

    def _create(self, at: TopicPartition, log_dir: LogDir) -> None:
        replica = self.host.replicas.get(*at)
        if replica is None or self._closed:
            return
        now_ms = self.host.clock.wall_ms()
        self.host.replicas.log_dirs.futures.create(replica.log, log_dir, now_ms)
        log.info("moving %s from %s to %s", at, replica.directory, log_dir.path)
        self.resume(replica)

    # -- replicas come and go

    def resume(self, replica: Replica) -> None:
        """Go on with the move of a replica that leads or follows again, if it has one."""
        at = replica.topic_partition
        future = self.host.replicas.log_dirs.futures.get(at)
        known = self._moves.get(at)
        if future is None or self._closed or (known is not None and known.replica is replica):
            return
        if known is not None or at in self._ending:
            self.pause(at, partial(self.resume, replica))
            return
        if future.log.topic_id != replica.topic_id:
            self.cancel(at)
            return
        move = self._moves[at] = _Move(self, replica, future)
        self._enqueue(move)

    def pause(self, at: TopicPartition, then: Callable[[], None] = lambda: None) -> None:
        """Stop a move, and call `then` once no thread touches its copy, which stays."""
        move = self._moves.pop(at, None) or self._ending.get(at)
        if move is None:
            then()
            return

        def idle() -> None:
            self._ending.pop(at, None)
            then()

        self._ending[at] = move
        move.end(idle)

    def cancel(self, at: TopicPartition, then: Callable[[], None] = lambda: None) -> None:
        """Stop a move and remove its copy, then call `then`."""

        def discard() -> None:
            log_dirs = self.host.replicas.log_dirs
            if log_dirs.futures.get(at) is not None:
                try:
                    path = log_dirs.futures.discard(at)
                except OSError as failure:
                    _logged(None, failure)
                else:
                    self.host.off_loop(partial(log_dirs.remove, path), _logged, Lane.FILES)
            then()

        self.pause(at, discard)

    def drop_orphans(self) -> None:
        """Remove the copies of partitions that are not on this broker any more."""
        log_dirs = self.host.replicas.log_dirs
        for future in list(log_dirs.futures):
            at = future.log.topic_partition
            if at not in log_dirs.logs and not self.host.replicas.is_offline(*at):
                self.cancel(at)

    def close(self) -> None:
        """Begin nothing more; what is under way ends. The next start goes on."""
        self._closed = True
        for at in list(self._moves):
            self.pause(at)

    # -- turns

    def _enqueue(self, move: "_Move") -> None:
        if not move.ended:
            self._waiting.append(move)
            self._start_next()

    def _start_next(self) -> None:
        while self._waiting and len(self._running) < AT_ONCE:
            move = self._waiting.popleft()
            if not move.ended:
                self._running.add(move)
                self.host.call_later(0, move.step)

    def leave(self, move: "_Move", retry_s: float | None = None) -> None:
        """A move ended, or waits for a disk: let another one run."""
        self._running.discard(move)
        if retry_s is not None:
            self.host.call_later(retry_s, partial(self._enqueue, move))
        elif self._moves.get(move.at) is move:
            del self._moves[move.at]
        self._start_next()


class _Move:
    """One replica that moves."""

    def __init__(self, moves: LogDirMoves, replica: Replica, future: FutureLog) -> None:
        self.replica = replica
        self.at = replica.topic_partition
        self.ended = False
        self._moves = moves
        self._host = moves.host
        self._future = future
        self._truncations = -1
        self._exchanged = False
        self._busy = False
        self._when_idle: list[Callable[[], None]] = []

    def end(self, then: Callable[[], None]) -> None:
        """Stop; call `then` once no thread works on the copy."""
        self.ended = True
        self._moves.leave(self)
        self._when_idle.append(then)
        if not self._busy:
            self._tell_idle()

    def _tell_idle(self) -> None:
        calls, self._when_idle = self._when_idle, []
        for call in calls:
            call()

    # -- copying

    def step(self) -> None:
        """Copy the next piece, or finish."""
        if self.ended:
            return
        current, copy = self.replica.log, self._future.log
        if self.replica.following.cutting:
            self.replica.following.when_cut(self.step)
            return
        if copy.failure is not None:
            self._failed(_CopyFailed(copy.failure))
            return
        if current.failure is not None or self.replica.offline is not None:
            self._failed(OSError(current.failure or "the replica is offline"))
            return
        now_ms = self._host.clock.monotonic_ms()
        wait_ms = self._host.throttle.wait_ms(now_ms)
        if wait_ms:
            self._host.call_later(wait_ms / 1000, self.step)
            return
        start = current.segments.start_offset
        if self._truncations != current.truncations:
            self._truncations = current.truncations
            end = common_end(current, copy)
            if end < copy.log_end_offset:
                self._run(partial(self._change_copy, copy.truncate_to, end), self.step)
                return
        if copy.log_end_offset < start:
            self._run(partial(self._change_copy, copy.truncate_fully, start), self.step)
            return
        piece = self._next_piece()
        if piece is None:
            self._hold()
        else:
            self._host.throttle.record(now_ms, piece.size)
            self._run(partial(self._copy, piece), self.step)

    def _next_piece(self) -> FileSlice | None:
        current = self.replica.log
        return current.read(self._future.log.log_end_offset, current.log_end_offset, PIECE, True)

    def _copy(self, piece: FileSlice | None) -> None:
        if piece is not None:
            self._append(piece.load())

    def _append(self, batches: bytes) -> None:
        with _writing_copy():
            self._future.append(batches, self._host.clock.wall_ms())

    def _change_copy(self, truncate: Callable[[int], object], offset: int) -> None:
        with _writing_copy():
            truncate(offset)

    # -- the last steps: the log is not flushed meanwhile

    def _hold(self) -> None:
        self._busy = True
        self.replica.flushes.hold(self._held)

    def _held(self) -> None:
        self._busy = False
        if not self._may_finish():
            self._let_go()
            return
        self._run(partial(self._complete, self._next_piece()), self._exchange, holding=True)

    def _may_finish(self) -> bool:
        return (
            not self.ended
            and not self.replica.following.cutting
            and self.replica.log.truncations == self._truncations
            and self.replica.log.failure is None
            and self.replica.offline is None
            and self._future.log.failure is None
        )

    def _complete(self, piece: FileSlice | None) -> None:
        self._copy(piece)
        with _writing_copy():
            self._future.mark(self._host.files, self.replica.log.log_start_offset)

    def _let_go(self) -> None:
        """Flush again, and go on with the move."""
        self.replica.flushes.let_go()
        if self.ended:
            self._tell_idle()
        else:
            self.step()

    def _exchange(self) -> None:
        if not self._may_finish():
            self._let_go()
            return
        self._host.write_staged()
        current, copy = self.replica.log, self._future.log
        saves = self.replica.epoch_saves
        if saves.saving or current.staging.batches:
            # A thread writes the epochs of this log, and the first batches of an epoch wait for that.
            self._busy = True
            saves.when_saved(self._epochs_saved)
            return
        log_dirs = self._host.replicas.log_dirs
        try:
            if not self._copy_rest() or current.log_start_offset > copy.noted_start:
                self._run(partial(self._complete, self._next_piece()), self._exchange, holding=True)
                return
            if copy.log_end_offset != current.log_end_offset:
                raise OSError(f"the copy ends at {copy.log_end_offset}")
            new, former = log_dirs.replace_by_future(self.at)
        except OSError as failure:
            self.replica.flushes.let_go()
            self._failed(failure)
            return
        self._exchanged = True
        _use_log(self.replica, new)
        self._host.replaced(self.replica)
        finished = partial(self._finished, former)
        self._run(partial(self._clear_up, new.directory, former), finished, holding=True)

    def _epochs_saved(self) -> None:
        self._busy = False
        self._exchange()

    def _copy_rest(self) -> bool:
        """Copy what came during the flush; return False if that would hold the loop."""
        left = PIECE
        while (piece := self._next_piece()) is not None:
            data = piece.load_now() if piece.size <= left else None
            if data is None:
                return False
            self._append(bytes(data))
            left -= piece.size
        return True

    def _clear_up(self, directory: str, former: Retirement) -> None:
        """Remove the former log, once a power cut cannot undo the new name of the copy."""
        self._future.log_dir.sync_renames()
        former.free_name()
        self._host.replicas.log_dirs.remove(former.path)
        remove_mark(self._host.files, directory)

    def _finished(self, former: Retirement) -> None:
        self._host.replicas.log_dirs.name_freed(self.at, former)
        self.replica.flushes.let_go()
        log.info("%s is now in %s", self.at, self.replica.directory)
        self._moves.leave(self)

    # -- threads

    def _run(
        self, call: Callable[[], None], then: Callable[[], None], *, holding: bool = False
    ) -> None:
        def done(_: object, failure: Exception | None) -> None:
            self._busy = False
            if holding and (self.ended or failure is not None):
                self.replica.flushes.let_go()
            if self.ended:
                self._tell_idle()
            elif failure is not None:
                self._failed(failure)
            else:
                then()

        self._busy = True
        self._host.off_loop(call, done, Lane.FILES)

    def _failed(self, failure: Exception) -> None:
        if isinstance(failure, KafkaError) and failure.code is E.OFFSET_NOT_AVAILABLE:
            self.step()  # the log was truncated or dropped a segment meanwhile
            return
        if self._exchanged:
            log.error("%s moved, but its former folder stays until a restart: %s", self.at, failure)
            self._moves.leave(self)
            return
        to = self._future.log_dir.path
        if isinstance(failure, _CopyFailed) and failure.errno not in _TEMPORARY:
            log.error(
                "the move of %s to %s ended, the disk failed (%s); it stays in %s: repair the disk, "
                "restart the broker and ask again",
                self.at, to, failure, self.replica.directory,
            )  # fmt: skip
            self._moves.cancel(self.at)
            self._host.dir_failed(self._future.log_dir, failure)
            return
        log.error("moving %s to %s failed, retrying in %.0f s: %s", self.at, to, RETRY_S, failure)
        self._future.log.drop_staged()
        self._moves.leave(self, RETRY_S)


def _use_log(replica: Replica, new: PartitionLog) -> None:
    """Continue in another log with the same batches."""
    replica.log = new
    replica._staging = new.staging
    replica.upkeep = Upkeep(new, replica.partition)


def _logged(_: object, failure: Exception | None) -> None:
    if failure is not None:
        log.error("a copy that was given up is not removed, the next start tries: %s", failure)
