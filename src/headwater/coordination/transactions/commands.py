"""Commands and answers of transactions: plain values without wire versions."""

from typing import NamedTuple

from headwater.coordination.transactions.states import TransactionState
from headwater.errors import E
from headwater.model import NO_EPOCH, NO_PRODUCER_ID, TopicPartition


class ProducerIdentity(NamedTuple):
    """The identity under which a producer writes."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


NO_PRODUCER = ProducerIdentity()


class InitProducer(NamedTuple):
    """A producer starts, or asks for the next epoch of the identity it `expected` to have.

    `new_producer_id` is an id that nobody used. Without it, the answer says if one is necessary.
    """

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None = None
    new_producer_id: int = NO_PRODUCER_ID


class AddPartitions(NamedTuple):
    """A transaction is about to write to partitions. Answered with an error code."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]
    client_version: int = 0


class VerifyPartitions(NamedTuple):
    """A leader asks whether partitions are in the transaction. Answered with their error codes."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]


class EndTransaction(NamedTuple):
    """A producer commits or aborts. Since `client_version` 2 this bumps the epoch."""

    transactional_id: str
    producer: ProducerIdentity
    commit: bool
    client_version: int = 0
    new_producer_id: int = NO_PRODUCER_ID


class ProducerAnswer(NamedTuple):
    """The answer to InitProducer and EndTransaction: who the producer is from now on."""

    error: E = E.NONE
    producer: ProducerIdentity = NO_PRODUCER
    needs_producer_id: bool = False
    """Whether to repeat the command with a new producer id; nothing has changed."""


class PreparedTransaction(NamedTuple):
    """A transaction whose outcome is committed and whose markers are to be written."""

    transactional_id: str
    producer: ProducerIdentity
    commit: bool
    partitions: frozenset[TopicPartition]
    coordinator_epoch: int
    transaction_version: int


class ListTransactions(NamedTuple):
    """List transactional ids; empty filters match everything."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: TransactionState
