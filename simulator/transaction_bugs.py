"""Mistakes that brokers of this kind have made in transactions, on demand.

B24 to B27 and B40 are of the catalogue of bugs; the others have names of their own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from headwater.broker import transaction_verifier
from headwater.client.consumer.group.commits import Commits
from headwater.client.group_metadata import ConsumerGroupMetadata
from headwater.coordination.runtime_loop import ShardRuntime
from headwater.coordination.shard import Outcome
from headwater.coordination.transactions import ending
from headwater.coordination.transactions.metadata import TransactionMetadata
from headwater.coordination.transactions.shard import TransactionShard
from headwater.coordination.transactions.states import TransactionState
from headwater.log.aborted_index import AbortedIndex, AbortedTransaction
from headwater.log.producers import ProducerStates
from headwater.log.transactions import OpenTransactions
from headwater.model import NO_PRODUCER_ID
from headwater.replication.leader_and_isr import LeaderAndIsr
from headwater.replication.replica import Replica
from headwater.replication.verifications import Verifications
from simulator.planting import ClusterBug


@contextmanager
def _late_writes_accepted() -> Iterator[None]:
    """A leader writes what the coordinator refuses: a transaction that nobody ends (B24)."""
    with patch.object(transaction_verifier, "_as_writer_error", lambda *_: None):
        yield


@contextmanager
def _late_end_accepted() -> Iterator[None]:
    """A late EndTxn of an earlier epoch ends the transaction of now (B24, as Jepsen found it)."""
    refuse = ending._refuse_with_bumps

    def careless(known: TransactionMetadata, command: Any) -> Any:
        sender = command.producer
        late = sender.producer_id == known.producer_id and sender.epoch < known.producer_epoch
        if late and known.state is TransactionState.ONGOING:
            return None
        return refuse(known, command)

    with patch.object(ending, "_refuse_with_bumps", careless):
        yield


@contextmanager
def _late_marker_accepted() -> Iterator[None]:
    """A marker that arrives late ends whatever transaction its producer has open (B25)."""
    with patch.object(ProducerStates, "check_marker", lambda *_: None):
        yield


@contextmanager
def _refused_fencing_bumps() -> Iterator[None]:
    """Each try to fence a producer takes an epoch, whether the log takes the abort or not (B26)."""
    abort = TransactionShard._abort

    def burning(
        self: TransactionShard, now: Any, name: str, known: TransactionMetadata, out: Any
    ) -> None:
        abort(self, now, name, known, out)
        epoch = out.records[-1].metadata.producer_epoch
        self.transactions[name] = known._replace(producer_epoch=epoch)

    with patch.object(TransactionShard, "_abort", burning):
        yield


@contextmanager
def _later_batches_overtake() -> Iterator[None]:
    """A batch in flight behind one that could not be verified is written before it (B27)."""
    with (
        patch.object(Verifications, "_check_order", lambda *_: None),
        patch.object(Verifications, "_check_first", lambda *_: None),
    ):
        yield


@contextmanager
def _state_in_memory() -> Iterator[None]:
    """The next coordinator does not know which transactions are open (B40)."""
    replay_batch = ShardRuntime._replay_batch

    def forget_open(self: ShardRuntime[Any, Any], batch: memoryview, producer_id: int) -> None:
        replay_batch(self, batch, producer_id)
        if isinstance(self.shard, TransactionShard):
            known = self.shard.transactions
            for transactional_id, metadata in known.items():
                if metadata.state is TransactionState.ONGOING:
                    known[transactional_id] = metadata._replace(
                        state=TransactionState.EMPTY, partitions=frozenset()
                    )

    with patch.object(ShardRuntime, "_replay_batch", forget_open):
        yield


@contextmanager
def _markers_before_the_decision() -> Iterator[None]:
    """Markers are written before the prepare record is committed."""
    write = TransactionShard._write_markers

    def hasty(self: TransactionShard, name: str, prepared: TransactionMetadata, out: Any) -> None:
        ahead: Outcome[Any] = Outcome()
        write(self, name, prepared, ahead)
        for token, answer in ahead.replies:
            assert callable(token)
            token(answer)

    with patch.object(TransactionShard, "_write_markers", hasty):
        yield


@contextmanager
def _open_forgotten_by_new_leader() -> Iterator[None]:
    """A new leader does not know which transactions are open in its log."""
    become_leader = Replica.become_leader

    def forget(self: Replica, decided: LeaderAndIsr) -> None:
        if not self.is_leader:
            self.log.producers._transactions = OpenTransactions()
        become_leader(self, decided)

    with patch.object(Replica, "become_leader", forget):
        yield


@contextmanager
def _aborted_list_incomplete() -> Iterator[None]:
    """A fetch is told only of transactions that began in the range that it returns."""
    overlapping = AbortedIndex.overlapping

    def incomplete(
        self: AbortedIndex, start: int, end: int
    ) -> tuple[list[AbortedTransaction], bool]:
        found, more = overlapping(self, start, end)
        return [one for one in found if one.first_offset >= start], more

    with patch.object(AbortedIndex, "overlapping", incomplete):
        yield


@contextmanager
def _pending_offsets_lost() -> Iterator[None]:
    """The next coordinator of a group does not load the offsets of open transactions."""
    replay_batch = ShardRuntime._replay_batch

    def skip(self: ShardRuntime[Any, Any], batch: memoryview, producer_id: int) -> None:
        if producer_id < 0:
            replay_batch(self, batch, producer_id)

    with patch.object(ShardRuntime, "_replay_batch", skip):
        yield


@contextmanager
def _timeout_without_fence() -> Iterator[None]:
    """A transaction that timed out is aborted in its own epoch: its producer goes on writing."""

    def unfenced(
        self: TransactionMetadata, server_version: int, now_ms: int
    ) -> TransactionMetadata:
        return self.prepared(
            commit=False, version=0, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
        )

    with patch.object(TransactionMetadata, "fenced", unfenced):
        yield


@contextmanager
def _markers_not_resumed() -> Iterator[None]:
    """A coordinator does not write the markers that its predecessor left."""
    loaded = TransactionShard.loaded

    def idle(self: TransactionShard, now: Any) -> Any:
        with patch.object(TransactionShard, "_write_markers", lambda *_: None):
            return loaded(self, now)

    with patch.object(TransactionShard, "loaded", idle):
        yield


@contextmanager
def _removed_member_unnamed() -> Iterator[None]:
    """Offsets of a member that its group has removed are those of a consumer without membership."""

    def of_now(self: Commits) -> ConsumerGroupMetadata:
        who = self.member()
        return ConsumerGroupMetadata(self._group, who.generation, who.member_id, who.instance_id)

    with patch.object(Commits, "group_metadata", of_now):
        yield


_BUSY = MappingProxyType(
    {"transactors": 3, "transactions": 12, "transformers": 1, "records": 15, "recreated": False}
)
_GROUP = MappingProxyType({**_BUSY, "transactors": 1, "transformers": 3, "records": 60})
_LONG = MappingProxyType({**_BUSY, "transformers": 0})
_NEW = MappingProxyType({**_LONG, "old_protocol": 0.0})
_IMPATIENT = MappingProxyType(
    {
        **_NEW,
        "transactors": 8,
        "transactions": 3,
        "members": 0,
        "slowest_network_ms": 100,
        "pause_ms": 500,
        "settings": {"request.timeout.ms": "350"},
    }
)
"""Verifications time out often, while clients send."""
_COORDINATOR = ("coordinator",)
_MOVES = ("crash", "isolate", "leaders moved", "leaders swapped", "session expires")
_BEYOND_REQUESTS_MS = (2500, 3500, 5000)
"""Longer than clients wait for an answer."""

TRANSACTION_BUGS: dict[str, ClusterBug] = {
    "B24": ClusterBug(
        _late_writes_accepted, ("stalled streams",), lasts_ms=_BEYOND_REQUESTS_MS, plan=_NEW
    ),
    "B24e": ClusterBug(
        _late_end_accepted, ("stalled streams",), lasts_ms=_BEYOND_REQUESTS_MS, plan=_NEW
    ),
    "B25": ClusterBug(
        _late_marker_accepted,
        ("one-way cut", "one-way cut", "leaders swapped", "slow links of brokers"), _COORDINATOR,
        (3500, 5000), _BUSY,
    ),
    "B26": ClusterBug(
        _refused_fencing_bumps, ("chained crash", "second transactor", "transactor crash"),
        lasts_ms=(3500, 5000), plan={**_LONG, "min_insync": 2},
    ),
    "B27": ClusterBug(
        _later_batches_overtake, ("slow links of brokers",), lasts_ms=(2000, 3500),
        plan=_IMPATIENT, first=1,
    ),
    "B40": ClusterBug(_state_in_memory, _MOVES, _COORDINATOR, plan=_BUSY),
    "T1": ClusterBug(_markers_before_the_decision, ("isolate", "crash", "cut off from brokers"),
        _COORDINATOR, plan=_BUSY),
    "T2": ClusterBug(_open_forgotten_by_new_leader, ("leaders moved", "crash", "isolate"),
        plan=_BUSY),
    "T3": ClusterBug(_aborted_list_incomplete, ("crash", "restart"), plan=_BUSY),
    "T4": ClusterBug(_pending_offsets_lost, _MOVES, _COORDINATOR, plan=_BUSY),
    "T5": ClusterBug(_timeout_without_fence, ("client pause", "slow links"),
        lasts_ms=(3500, 5000), plan=_BUSY),
    "T6": ClusterBug(_markers_not_resumed, _MOVES, _COORDINATOR, plan=_BUSY),
    "T7": ClusterBug(_removed_member_unnamed, ("slow links",), plan=_GROUP),
}  # fmt: skip
