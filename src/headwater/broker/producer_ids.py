"""Allocates producer ids, each used once in the life of the cluster, in blocks of 1000.

A block is claimed in the store by compare-and-set, so that two brokers never own the same one; the
rest of a block is lost when its broker stops.
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
LAST_ID = (1 << 63) - 1

IdReply: TypeAlias = Callable[[int | KafkaError], None]


class ProducerIdBlocks:
    """This broker's current block. `reply` may be called at once while the block lasts."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._end = 0
        self._waiting: list[IdReply] = []

    def next(self, reply: IdReply) -> None:
        """Reply with an id that was never used, or with COORDINATOR_LOAD_IN_PROGRESS (try again)."""
        if not self._waiting and self._next < self._end:
            self._next += 1
            reply(self._next - 1)
            return
        self._waiting.append(reply)
        if len(self._waiting) == 1:
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
            self._next, self._end = block.first, block.last + 1
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
        waiting, self._waiting = self._waiting, []
        for reply in waiting:
            reply(refusal)
