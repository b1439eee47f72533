"""The loop of `headwater collect tail`: read lines, wait for acknowledgements, save positions.

Rounds follow each other; each reads at most one chunk per file. A crash repeats at most the round
that was acknowledged and not yet saved, and loses no line.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.client.errors import (
    NetworkError,
    RecordTooLargeError,
    TimedOutError,
    UnknownTopicOrPartitionError,
)
from headwater.client.producer.futures import SendFuture
from headwater.client.producer.producer import Producer
from headwater.collect.events import RefusedEvent
from headwater.collect.file_positions import FilePositions
from headwater.collect.file_tracker import FileTracker
from headwater.collect.line_formats import LineFormat
from headwater.collect.line_reader import LogLine
from headwater.collect.rate_limits import TokenBucket
from headwater.config.keys import INT32_MAX, ConfigError
from headwater.seams.clock import Clock

log = logging.getLogger(__name__)

STOP_S = 5.0
MOST_LINES = 10_000
DEAD_LETTER_BYTES = 65_536
ENDLESS: dict[str, object] = {"delivery_timeout_ms": INT32_MAX, "max_block_ms": 10_000}
"""A line waits for its broker without limit: giving up would only mean sending it again."""


@dataclass(frozen=True)
class TailOptions:
    """Where lines go and how fast."""

    topic: str
    dead_letter: str | None = None
    rate: float | None = None
    poll_s: float = 0.25
    once: bool = False


@dataclass
class TailCounts:
    """How many lines were sent and refused."""

    sent: int = 0
    refused: int = 0


class _Letter(NamedTuple):
    """A record in flight, or a refused line."""

    path: str
    line: LogLine
    sent: SendFuture | None
    reason: str = ""


class TailCollector:
    """Sends the lines of followed files until it is stopped."""

    def __init__(
        self,
        options: TailOptions,
        followers: Sequence[FileTracker],
        positions: FilePositions,
        shape: LineFormat,
        clock: Clock,
        settings: dict[str, Any],
    ) -> None:
        self.counts = TailCounts()
        self._options = options
        self._followers = followers
        self._positions = positions
        self._shape = shape
        self._clock = clock
        self._bucket = TokenBucket(options.rate, clock.monotonic_ms()) if options.rate else None
        self._producer = Producer(**{**ENDLESS, **settings})
        if self._producer.settings.acks == "0":
            raise ConfigError("acks=0 gives no acknowledgement: set acks to 1 or all")

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, or with `once` until everything is read."""
        rounds = asyncio.ensure_future(self._rounds(stop))
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({rounds, stopped}, return_when=asyncio.FIRST_COMPLETED)
            # The current round may finish; without a broker it is repeated after a restart.
            await asyncio.wait({rounds}, timeout=STOP_S)
            if rounds.done():
                rounds.result()
        finally:
            rounds.cancel()
            stopped.cancel()
            await asyncio.wait({rounds, stopped})
            await self._producer.close(0)

    async def _rounds(self, stop: asyncio.Event) -> None:
        await self._find_topics()
        while not stop.is_set():
            found = self._next_lines()
            await self._round(found)
            if found:
                await _wait(stop, self._pause_s())
            elif self._options.once and all(one.is_at_end for one in self._followers):
                await self._round([(one.path, one.last_line()) for one in self._followers])
                return
            else:
                await _wait(stop, self._options.poll_s)

    def _next_lines(self) -> list[tuple[str, list[LogLine]]]:
        """Return a chunk of each file; with a rate, at most one second of it."""
        now = self._clock.monotonic_ms()
        most = MOST_LINES if self._options.rate is None else max(1, int(self._options.rate))
        found = [(one.path, one.poll(now, most)) for one in self._followers]
        return [(path, lines) for path, lines in found if lines]

    def _pause_s(self) -> float:
        return self._bucket.wait_ms(self._clock.monotonic_ms()) / 1000 if self._bucket else 0

    async def _find_topics(self) -> None:
        """Wait for the broker; a topic that does not exist is an error."""
        for topic in (self._options.topic, self._options.dead_letter):
            while topic is not None:
                try:
                    await self._producer.partitions_for(topic)
                    break
                except UnknownTopicOrPartitionError:
                    raise
                except (TimedOutError, NetworkError) as away:
                    log.warning("the broker is unavailable, retrying: %s", away.message)

    # -- a round

    async def _round(self, found: list[tuple[str, list[LogLine]]]) -> None:
        """Send lines, wait for all acknowledgements, then save positions."""
        letters = [
            await self._post(path, line) for path, lines in found for line in lines if line.text
        ]
        refused = [letter for letter in letters if not await _is_stored(letter)]
        await self._refuse(refused)
        self.counts.sent += len(letters) - len(refused)
        if self._bucket is not None:
            self._bucket.spend(len(letters))
        positions = {one.path: one.position() for one in self._followers}
        self._positions.store({path: position for path, position in positions.items() if position})

    async def _post(self, path: str, line: LogLine) -> _Letter:
        try:
            record = self._shape.record(line)
            sent = await self._send(self._options.topic, record.key, record.value, ())
        except RefusedEvent as refused:
            return _Letter(path, line, None, str(refused))
        except RecordTooLargeError:
            return _Letter(path, line, None, "is larger than the topic takes")
        return _Letter(path, line, sent, "is larger than the topic takes")

    async def _refuse(self, letters: list[_Letter]) -> None:
        for letter in letters:
            if not self.counts.refused:
                log.warning(
                    "%s: a line %s (later ones are only counted)", letter.path, letter.reason
                )
            self.counts.refused += 1
        if self._options.dead_letter is not None:
            sent = [await self._bury(self._options.dead_letter, letter) for letter in letters]
            for future in sent:
                await future

    async def _bury(self, topic: str, letter: _Letter) -> SendFuture:
        headers = (
            ("dead-letter.error-message", letter.reason.encode()),
            ("dead-letter.file", letter.path.encode(errors="surrogateescape")),
        )
        return await self._send(topic, None, letter.line.text[:DEAD_LETTER_BYTES], headers)

    async def _send(
        self, topic: str, key: bytes | None, value: bytes, headers: Sequence[tuple[str, bytes]]
    ) -> SendFuture:
        while True:
            try:
                return await self._producer.send(topic, value, key, headers=headers)
            except (TimedOutError, NetworkError) as away:  # the buffer is full: nothing was sent
                log.warning("the broker is unavailable, retrying: %s", away.message)


async def _is_stored(letter: _Letter) -> bool:
    if letter.sent is None:
        return False
    try:
        await letter.sent
    except RecordTooLargeError:
        return False
    return True


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    if seconds > 0:
        try:
            async with asyncio.timeout(seconds):
                await stop.wait()
        except TimeoutError:
            return
    else:
        await asyncio.sleep(0)
