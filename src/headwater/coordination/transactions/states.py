"""The states of a transaction: their names, their codes in the log, and which may follow which."""

from enum import Enum
from typing import NamedTuple


class TransactionState(Enum):
    """Kafka's names, as DescribeTransactions and ListTransactions show them."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


_S = TransactionState
_BETWEEN = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})


class StateRow(NamedTuple):
    """One state: its code in the log, and the states it may follow."""

    code: int
    follows: frozenset[TransactionState]


STATES = {
    _S.EMPTY: StateRow(0, _BETWEEN),
    _S.ONGOING: StateRow(1, _BETWEEN | {_S.ONGOING}),
    _S.PREPARE_COMMIT: StateRow(2, frozenset({_S.ONGOING})),
    _S.PREPARE_ABORT: StateRow(3, _BETWEEN | {_S.ONGOING}),
    _S.COMPLETE_COMMIT: StateRow(4, frozenset({_S.PREPARE_COMMIT})),
    _S.COMPLETE_ABORT: StateRow(5, frozenset({_S.PREPARE_ABORT})),
    _S.DEAD: StateRow(6, frozenset()),
    _S.PREPARE_EPOCH_FENCE: StateRow(7, frozenset()),
}
"""Every state. The last two are Kafka's words for moments of its own; no transaction enters them."""

BETWEEN_TRANSACTIONS = _BETWEEN
PREPARED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
STATE_OF_CODE = {row.code: state for state, row in STATES.items() if row.follows}
