"""The fast path of `send` in plain Python: a record of bytes without a key costs one list append.

The batch is checked once for many records: up to index `stop`, values of up to `widest` bytes may
be appended without another check. Everything is done under the producer's lock.

The clock is not read for each record either: one reading serves at most `SHARED` records, until the
sender's next turn. That comes when the batch has lingered; while brokers do not answer, within a
tenth of a second. So a timestamp is at most that late, and never ahead.

All other records go to `otherwise`, the general `send`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from headwater.client.producer.accumulator import ProducerBatch
from headwater.client.producer.futures import OnDelivery, SendFuture
from headwater.client.producer.locking import Lock
from headwater.client.producer.topic_queues import TopicQueues

SHARED = 64

Send = Callable[..., SendFuture]


def pure_send(
    topics: dict[str, TopicQueues],
    otherwise: Send,
    wall_ms: Callable[[], int],
    lock: Lock,
    shared: int = SHARED,
) -> Send:
    """Return a faster `send` over `topics`; `shared` records may share one reading of the clock."""
    owns_lock, acquire, release = lock._is_owned, lock.acquire, lock.release

    def send(
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> SendFuture:
        if (
            key is None
            and type(value) is bytes
            and partition is None
            and timestamp is None
            and on_delivery is None
            and not headers
            and topic in topics
            and not owns_lock()  # in a signal handler that interrupted this function
        ):
            try:
                acquire()  # see locking.py
                batch = topics[topic].sticky.open
                if batch is not None:
                    values = batch.values
                    index = len(values)
                    if index < batch.stop and len(value) <= batch.widest:
                        values.append(value)
                        return SendFuture((batch.future, index, batch.stamp))
                    if _ask(batch, len(value), wall_ms(), shared):
                        index = len(batch.values)
                        batch.values.append(value)
                        return SendFuture((batch.future, index, batch.stamp))
            except KeyError:
                pass  # the topic was dropped in the meantime
            finally:
                try:  # noqa: SIM105 - suppress() is a call more
                    release()
                except RuntimeError:
                    pass  # Ctrl-C ended the wait for it
        return otherwise(topic, value, key, partition, headers, timestamp, on_delivery)

    return send


def _ask(batch: ProducerBatch, size: int, now: int, shared: int) -> bool:
    """Update `stop` and `widest` of the batch; return False if it is full."""
    writer = batch.writer
    batch.stop = 0
    if writer is None:
        return False
    widest = max(size, batch.widest)
    room = writer.room_for(now, widest)
    if not room:
        widest, room = size, writer.room_for(now, size)
    batch.values, batch.widest, batch.stamp = writer.values, widest, now
    batch.stop = len(writer.values) + min(room, shared) if room else 0
    return bool(room)
