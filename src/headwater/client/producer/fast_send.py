"""Chooses the fast path of `send`: compiled or pure, as the record codec."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from headwater.client.producer.locking import Lock
from headwater.client.producer.pure_fast_send import SHARED, Send, pure_send
from headwater.client.producer.topic_queues import TopicQueues
from headwater.records.codec import NAME
from headwater.seams.clock import Clock, SystemClock


def fast_send(
    topics: dict[str, TopicQueues], otherwise: Send, clock: Clock, lock: Lock
) -> Callable[..., Any] | None:
    """Return a faster `send` over `topics`; None if only the codec is compiled.

    The compiled path requires the compiled codec: it works without a lock because an `append` is
    one C call. The system's clock may be read less often than clocks that tests control.
    """
    system_time = isinstance(clock, SystemClock)
    if NAME != "compiled":
        return pure_send(topics, otherwise, clock.wall_ms, lock, SHARED if system_time else 1)
    try:
        compiled = import_module("headwater.client.producer._fast_send")
    except ImportError:
        return None
    send: Send = compiled.FastSend(topics, otherwise, None if system_time else clock.wall_ms).send
    return send
