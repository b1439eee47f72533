"""One tick of the loop: writes staged batches once, then sends the responses.

Requests of all connections that arrive in one round of the event loop share the writes: each dirty
partition is written once, the readers it wakes are checked once, each connection sends once. The tick
releases a replica's slices of receive buffers, so a connection that needs its buffer ends it early.
"""

import asyncio
import logging
from itertools import islice
from typing import Protocol

from headwater.errors import E, KafkaError
from headwater.replication.replica import Replica

log = logging.getLogger("headwater.server")

RECHECKS_A_TICK = 200
"""The most woken readers checked in one tick: one record may wake thousands of them."""


class WokenReader(Protocol):
    """A parked fetch that was woken in this tick."""

    def recheck(self) -> None:
        """Reply if there is enough now."""


class ResponseSender(Protocol):
    """A connection with responses to send."""

    def send_answers(self) -> None:
        """Pass them to the transport."""


class Tick:
    """Collects the work of a tick and does it at its end."""

    def __init__(self) -> None:
        self.number = 0
        self.written: dict[Replica, None] = {}
        """Replicas written since the last check for flushes."""
        self.dirty: list[Replica] = []
        """Replicas with staged batches, which may be slices of receive buffers."""
        self._woken: dict[WokenReader, None] = {}
        self._senders: dict[ResponseSender, None] = {}
        self._scheduled = False
        self._flushing = False

    def write_soon(self, replica: Replica) -> None:
        """Write the replica's staged batches at the end of the tick."""
        self.dirty.append(replica)
        if not self._scheduled:
            self._schedule()

    def recheck_soon(self, reader: WokenReader) -> None:
        """Check the reader at the end of the tick."""
        self._woken[reader] = None
        if not self._scheduled:
            self._schedule()

    def send_soon(self, sender: ResponseSender) -> None:
        """Send the connection's responses at the end of the tick."""
        self._senders[sender] = None
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        if self._flushing:
            return
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._end_of_tick)

    def _end_of_tick(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Write, wake, send. A call during a flush does nothing.

        All dirty replicas are written; some of the woken readers may have to wait for the next tick.
        """
        if self._flushing:
            return
        self._flushing = True
        try:
            self.number += 1
            left = RECHECKS_A_TICK
            while self.dirty or (self._woken and left > 0):
                self._write()
                left -= self._recheck_woken(left)
            self._send()
        finally:
            self._flushing = False
            if self._woken and not self._scheduled:
                self._schedule()

    # An unexpected failure of one must not stop the others of the tick.

    def _write(self) -> None:
        dirty, self.dirty = self.dirty, []
        for replica in dirty:
            try:
                replica.write()
            except Exception:
                log.exception("writing to %s failed", replica.topic_partition)
                replica.fail_waiters(KafkaError(E.UNKNOWN_SERVER_ERROR))
            self.written[replica] = None

    def _recheck_woken(self, most: int) -> int:
        """Check up to `most` readers, leave the others for the next tick; return how many."""
        woken = self._woken
        if len(woken) <= most:
            self._woken = {}
        else:
            woken = dict.fromkeys(islice(woken, max(most, 0)))
            for reader in woken:
                del self._woken[reader]
        for reader in woken:
            try:
                reader.recheck()
            except Exception:
                log.exception("a waiting request failed")
        return len(woken)

    def _send(self) -> None:
        senders, self._senders = self._senders, {}
        for sender in senders:
            try:
                sender.send_answers()
            except Exception:
                log.exception("sending answers failed")
