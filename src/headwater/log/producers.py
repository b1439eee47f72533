"""The producers of one log and their last batches, so that a retry is not written twice.

The last five batches of each producer id are remembered. A duplicate of one of them is answered
with its offsets; a batch that does not follow the last one is refused. The open transactions of
the producers determine up to where a read-committed consumer may read.

`admit` and `replay_batch` run when a batch is staged, before it is written. `commit_staged` makes
the changes final, `rollback_staged` undoes them: a failed write leaves no trace, and a retry of a
staged batch is recognized.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from headwater.errors import E, KafkaError
from headwater.log.aborted_index import AbortedTransaction
from headwater.log.transactions import OpenTransactions
from headwater.model import NO_EPOCH, NO_OFFSET, NO_SEQUENCE
from headwater.records.batch import CONTROL, TRANSACTIONAL, RawHeader
from headwater.records.control import Marker, read_marker
from headwater.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
)
from headwater.seams.files import Buffer

WINDOW: Final = 5
LAST_SEQUENCE: Final = (1 << 31) - 1
EPOCH_BUMP_VERSION: Final = 2
"""The first transaction.version in which every transaction has an epoch of its own."""

Batch: TypeAlias = tuple[int, int, int, int]
"""First sequence, last sequence, base offset, last offset."""
State: TypeAlias = tuple[int, int, tuple[Batch, ...], int, int, int]
"""Epoch, last sequence, window, time of the last append, coordinator epoch, first offset of the
open transaction. Plain tuples: a state is replaced, never changed, so that `rollback_staged` can put
the old one back."""


class ProducerStateEntry(NamedTuple):
    """One producer's state, as DescribeProducers reports it."""

    producer_id: int
    epoch: int
    last_sequence: int
    window: tuple[Batch, ...]
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


class ProducerStates:
    """The producers of one log, by id. One object for the life of the log."""

    __slots__ = ("_states", "_transactions", "_undo", "aborted")

    def __init__(self) -> None:
        self._states: dict[int, State] = {}
        # The states before the staged batches; None for a producer that was unknown.
        self._undo: dict[int, State | None] = {}
        self._transactions = OpenTransactions()
        # Aborted transactions whose markers are staged: the index gets them once they are written.
        self.aborted: list[AbortedTransaction] = []

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        for producer_id, state in self._states.items():
            yield ProducerStateEntry(producer_id, *state)

    def written_states(self) -> dict[int, State]:
        """Return a copy of the states of the written log, without staged batches.

        States are never changed in place, so another thread may read the copy.
        """
        states = self._states.copy()
        for producer_id, state in self._undo.items():
            if state is None:
                states.pop(producer_id, None)
            else:
                states[producer_id] = state
        return states

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        """Return the state of a producer."""
        state = self._states.get(producer_id)
        return None if state is None else ProducerStateEntry(producer_id, *state)

    def admit(self, header: RawHeader, base_offset: int, now_ms: int) -> tuple[int, int] | None:
        """Accept a batch that gets `base_offset`, or return the offsets of its original.

        Raises OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH for one that does not fit.
        """
        _, _, _, _, _, _, delta, _, _, producer_id, epoch, first, _ = header
        last = (first + delta) & LAST_SEQUENCE
        state = self._states.get(producer_id)
        if state is None:
            window: tuple[Batch, ...] = ()
            coordinator_epoch = transaction_start = -1
        else:
            known_epoch, last_sequence, window, _, coordinator_epoch, transaction_start = state
            if epoch == known_epoch:
                if first != (last_sequence + 1) & LAST_SEQUENCE:
                    return _original(window, first, last, producer_id, last_sequence)
            else:
                _check_epoch(producer_id, epoch, known_epoch, first)
                window = ()
            if transaction_start != NO_OFFSET and not header[ATTRIBUTES] & TRANSACTIONAL:
                raise KafkaError(
                    E.INVALID_TXN_STATE,
                    f"producer {producer_id} has a transaction open: all its batches belong to it",
                )
        if producer_id not in self._undo:
            self._undo[producer_id] = state
        batch = (first, last, base_offset, base_offset + delta)
        if len(window) == WINDOW:
            window = window[1:]
        self._states[producer_id] = (
            epoch, last, (*window, batch), now_ms, coordinator_epoch, transaction_start
        )  # fmt: skip
        return None

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raise INVALID_PRODUCER_EPOCH if a newer epoch of the producer has written."""
        state = self._states.get(producer_id)
        if state is not None and epoch < state[0]:
            _check_epoch(producer_id, epoch, state[0], 0)

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether this epoch of the producer has a transaction open in this log."""
        state = self._states.get(producer_id)
        return state is not None and state[5] != NO_OFFSET and state[0] == epoch

    def check_marker(self, marker: Marker, transaction_version: int) -> None:
        """Raise unless the marker comes from the newest producer and coordinator epochs.

        From transaction version 2 on, a marker has the epoch after that of its transaction. One
        with the same epoch is late, unless it is a repetition: then no transaction is open.
        """
        producer_id, epoch, _, coordinator_epoch = marker
        self.check_epoch(producer_id, epoch)
        if transaction_version >= EPOCH_BUMP_VERSION and self.in_transaction(producer_id, epoch):
            raise KafkaError(
                E.INVALID_PRODUCER_EPOCH,
                f"the marker of epoch {epoch} is late: producer {producer_id} has begun another "
                "transaction",
            )
        state = self._states.get(producer_id)
        if state is not None and coordinator_epoch < state[4]:
            raise KafkaError(
                E.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} is over, {state[4]} has written a marker "
                f"for producer {producer_id}",
            )

    def batch_refused(self, header: RawHeader, now_ms: int) -> None:
        """Note that a batch was refused for now; its producer will send it again.

        If it is the producer's first, the second, which may be in flight already, must not be
        accepted before it.
        """
        producer_id = header[PRODUCER_ID]
        if producer_id >= 0 and header[BASE_SEQUENCE] == 0 and producer_id not in self._states:
            self._states[producer_id] = _nothing_written(header[PRODUCER_EPOCH], now_ms)

    def replay_batch(self, header: RawHeader, batch: Buffer, now_ms: int) -> None:
        """Record the sequence and the transaction of a batch that a leader has checked.

        Only the header is read, unless the batch is a marker.
        """
        if header[ATTRIBUTES] & CONTROL:
            self._end_transaction(header, batch, now_ms)
        elif header[PRODUCER_ID] >= 0:
            self._replay_data(header, now_ms)
            if header[ATTRIBUTES] & TRANSACTIONAL:
                self.begin_transaction(header[PRODUCER_ID], header[BASE_OFFSET])

    def begin_transaction(self, producer_id: int, first_offset: int) -> None:
        """Note where the producer's transaction begins, unless one is open already."""
        state = self._states[producer_id]
        if state[5] == NO_OFFSET:
            self._states[producer_id] = (*state[:5], first_offset)
            self._transactions.begin(producer_id, first_offset)

    def _replay_data(self, header: RawHeader, now_ms: int) -> None:
        base_offset, _, _, _, _, _, delta, _, _, producer_id, epoch, first, _ = header
        state = self._states.get(producer_id)
        window: tuple[Batch, ...] = ()
        coordinator_epoch = transaction_start = -1
        if state is not None:
            known_epoch, _, window, _, coordinator_epoch, transaction_start = state
            if epoch != known_epoch:
                window = ()
        if producer_id not in self._undo:
            self._undo[producer_id] = state
        last = NO_SEQUENCE
        if first != NO_SEQUENCE:  # coordinators write without sequences
            last = (first + delta) & LAST_SEQUENCE
            window = (*window, (first, last, base_offset, base_offset + delta))[-WINDOW:]
        self._states[producer_id] = (
            epoch, last, window, now_ms, coordinator_epoch, transaction_start
        )  # fmt: skip

    def _end_transaction(self, header: RawHeader, batch: Buffer, now_ms: int) -> None:
        marker = read_marker(batch)
        if marker is None:
            return
        producer_id, offset = header[PRODUCER_ID], header[BASE_OFFSET]
        first = self._end_in_state(
            producer_id, header[PRODUCER_EPOCH], marker.coordinator_epoch, now_ms
        )
        stable = self._transactions.end(producer_id, offset)
        if first >= 0 and not marker.commit:
            self.aborted.append(AbortedTransaction(producer_id, first, offset, stable))

    def _end_in_state(
        self, producer_id: int, epoch: int, coordinator_epoch: int, now_ms: int
    ) -> int:
        """Return where the transaction of a marker began, or -1 if it wrote nothing here."""
        state = self._states.get(producer_id)
        self._undo.setdefault(producer_id, state)
        if state is None:
            self._states[producer_id] = (
                epoch,
                NO_SEQUENCE,
                (),
                now_ms,
                coordinator_epoch,
                NO_OFFSET,
            )
            return NO_OFFSET
        known_epoch, last, window, _, _, first_offset = state
        if epoch > known_epoch:
            known_epoch, last, window = epoch, NO_SEQUENCE, ()
        self._states[producer_id] = (
            known_epoch,
            last,
            window,
            now_ms,
            coordinator_epoch,
            NO_OFFSET,
        )
        return first_offset

    def commit_staged(self) -> None:
        """Make the changes final after the staged batches are written."""
        if self._undo:
            self._undo.clear()

    def rollback_staged(self, log_end: int) -> None:
        """Undo the changes: the staged batches are lost, and the log ends at `log_end`.

        A producer that lost its first batch stays known as one that wrote nothing: its second
        batch, which may be in flight already, must not be accepted before the first.
        """
        for producer_id, state in self._undo.items():
            if state is None:
                lost = self._states.pop(producer_id, None)
                if lost is not None and lost[2] and lost[2][0][0] == 0:
                    self._states[producer_id] = _nothing_written(lost[0], lost[3])
            else:
                self._states[producer_id] = state
        self._undo.clear()
        self.restore_transactions(log_end)

    def restore(self, producers: Iterable[ProducerStateEntry], log_end: int) -> None:
        """Replace all states by those of a snapshot at `log_end`, and their transactions with them."""
        self._states = {producer[0]: producer[1:] for producer in producers}
        self._undo.clear()
        self.restore_transactions(log_end)

    def restore_transactions(self, log_end: int) -> None:
        """Restore the open transactions from the states of a log that ends at `log_end`."""
        rows = ((producer_id, state[5]) for producer_id, state in self._states.items())
        self._transactions.restore(rows, log_end)
        self.aborted.clear()

    def assume_unreplicated(self, start: int, end: int) -> None:
        """Treat everything from `start` on as unstable until the high watermark reaches `end`."""
        self._transactions.assume_unreplicated(start, end)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset before which a read-committed consumer may read."""
        return self._transactions.stable(high_watermark)

    def undecided_below(self, end: int) -> int:
        """Return where the first transaction began that has no marker below `end`; `end` without one."""
        return self._transactions.undecided_below(end)

    def forget_replicated(self, high_watermark: int) -> None:
        """Free what is known of transactions that ended below the high watermark."""
        self._transactions.forget_replicated(high_watermark)

    def expire(self, before_ms: int) -> int:
        """Drop the producers that are silent since `before_ms` and have no open transaction."""
        old = [
            producer_id
            for producer_id, state in self._states.items()
            if state[3] < before_ms and state[5] == NO_OFFSET and producer_id not in self._undo
        ]
        for producer_id in old:
            del self._states[producer_id]
        return len(old)


def _nothing_written(epoch: int, now_ms: int) -> State:
    return epoch, NO_SEQUENCE, (), now_ms, NO_EPOCH, NO_OFFSET


def _original(
    window: tuple[Batch, ...], first: int, last: int, producer_id: int, last_sequence: int
) -> tuple[int, int]:
    for known_first, known_last, base_offset, last_offset in window:
        if known_first == first and known_last == last:
            return base_offset, last_offset
    raise KafkaError(
        E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {producer_id} sent sequence {first} after {last_sequence}",
    )


def _check_epoch(producer_id: int, epoch: int, known_epoch: int, first: int) -> None:
    if epoch < known_epoch:
        raise KafkaError(
            E.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id} has epoch {epoch}; a newer one, {known_epoch}, has written",
        )
    if first != 0:
        raise KafkaError(
            E.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} begins epoch {epoch} with sequence {first}, not 0",
        )
