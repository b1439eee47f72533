"""Allocates producer ids, each used once in the life of the cluster, in blocks of 1000.

A block is claimed in the store by compare-and-set, so that two brokers never own the same one; the
rest of a block is lost when its broker stops. The next block is claimed before the current one is used
up, so that new producers get their ids also while the store is away.
"""

from collections.abc import Callable
from typing import TypeAlias

from headwater.controller.store.metadata_store import (
    MetadataStore,
    Stat,
    StoreError,
    StoreFailure,
    Znode,
)
from headwater.controller.store.znodes import PRODUCER_ID_BLOCK, ProducerIdBlock
from headwater.errors import E, KafkaError

BLOCK_SIZE = 1000
REFILL_BELOW = 500
"""With fewer ids left than this, the next block is claimed."""
LAST_ID = (1 << 63) - 1

IdReply: TypeAlias = Callable[[int | KafkaError], None]


class ProducerIdBlocks:
    """This broker's current block. `reply` may be called at once while the block lasts."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._end = 0
        self._spare: range | None = None
        self._claiming = False
        self._waiting: list[IdReply] = []

    def next(self, reply: IdReply) -> None:
        """Reply with an id that was never used, or with COORDINATOR_LOAD_IN_PROGRESS (try again)."""
        if not self._left and self._spare is not None:
            self._next, self._end, self._spare = self._spare.start, self._spare.stop, None
        if self._left and not self._waiting:
            self._next += 1
            reply(self._next - 1)
        else:
            self._waiting.append(reply)
        if self._left < REFILL_BELOW:
            self.claim_ahead()

    @property
    def _left(self) -> int:
        return self._end - self._next

    def claim_ahead(self) -> None:
        """Claim a block that is not needed yet."""
        if self._spare is None and not self._claiming:
            self._claiming = True
            self._claim()

    def _claim(self) -> None:
        self._store.get(PRODUCER_ID_BLOCK, self._read)

    def _read(self, node: Znode | StoreError) -> None:
        if isinstance(node, StoreError):
            self._fail(node)
            return
        latest = ProducerIdBlock.decode(node.data)
        first = latest.last + 1 if latest else 0
        if first > LAST_ID - BLOCK_SIZE:
            self._answer(KafkaError(E.UNKNOWN_SERVER_ERROR, "all producer ids are used up"))
            return
        block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
        self._store.set(
            PRODUCER_ID_BLOCK,
            block.encode(),
            node.stat.version,
            lambda result: self._claimed(block, result),
        )

    def _claimed(self, block: ProducerIdBlock, result: Stat | StoreError) -> None:
        if isinstance(result, Stat):
            self._claiming = False
            self._spare = range(block.first, block.last + 1)
            waiting, self._waiting = self._waiting, []
            for reply in waiting:
                self.next(reply)
        elif result.kind is StoreFailure.BAD_VERSION:
            self._claim()
        else:
            self._fail(result)

    def _fail(self, failure: StoreError) -> None:
        self._answer(KafkaError(E.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids now: {failure}"))

    def _answer(self, refusal: KafkaError) -> None:
        self._claiming = False
        waiting, self._waiting = self._waiting, []
        for reply in waiting:
            reply(refusal)
