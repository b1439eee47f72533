"""The promises of one partition and of one committed offset, and what clients saw.

The numbers are those of the list of invariants in `invariants.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.model import TopicPartition

Complain = Callable[[str], None]


class Value(NamedTuple):
    """The content of one record: its producer, its number, and a payload."""

    producer: str
    number: int
    once: bool
    padding: bytes = b""

    def encode(self) -> bytes:
        """Return the value of the record."""
        head = f"{self.producer}/{self.number}/{int(self.once)}/".encode()
        return head + self.padding


@dataclass
class PartitionPromises:
    """One partition: what was acknowledged and read at each offset."""

    at: TopicPartition
    complain: Complain
    synced: bool
    """Whether an acknowledgment means that the record is synced."""
    sent: dict[bytes, Value] = field(default_factory=dict)
    may_hold: Callable[[bytes], bool] = lambda _: True
    """Returns whether a record can have been sent to this topic, not to another one of its name."""
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    stored: set[bytes] = field(default_factory=set)
    """Acknowledged records, at any offset."""
    read: dict[int, bytes] = field(default_factory=dict)
    high_watermark: int = 0
    may_start_at: int = 0
    """The highest offset at which the log may begin, after retention or DeleteRecords."""

    def acknowledge(self, base_offset: int, values: list[bytes]) -> None:
        """Note an acknowledgment with the batch's offset."""
        for offset, value in enumerate(values, base_offset):
            self._same(offset, value, "acknowledged")
            self.acknowledged[offset] = value

    def consumed(self, offset: int, value: bytes, high_watermark: int) -> None:
        """Note and check a record that a consumer got."""
        if offset >= high_watermark:
            self.complain(f"I4: {self.at} offset {offset} is read above {high_watermark}")
        if value not in self.sent:
            self.complain(f"I16: {self.at} offset {offset} holds what nobody sent: {value[:40]!r}")
        self._check_owner(offset, value)
        self._same(offset, value, "read")
        self.read[offset] = value

    def _check_owner(self, offset: int, value: bytes) -> None:
        if not self.may_hold(value):
            self.complain(
                f"I18: {self.at} offset {offset} holds {value[:24]!r}, "
                "which was sent to another topic of this name"
            )

    def marked(self, high_watermark: int) -> None:
        """Note and check a high watermark that a consumer got."""
        if high_watermark < self.high_watermark:
            self.complain(
                f"I4: {self.at} high watermark {high_watermark} after {self.high_watermark}"
            )
        self.high_watermark = max(self.high_watermark, high_watermark)

    def _same(self, offset: int, value: bytes, how: str) -> None:
        for what, known in (("acknowledged", self.acknowledged), ("read", self.read)):
            if known.get(offset, value) != value:
                self.complain(
                    f"I2: {self.at} offset {offset} {how} as {value[:24]!r}, "
                    f"{what} before as {known[offset][:24]!r}"
                )

    def audit(self, start: int, end: int, content: dict[int, bytes]) -> None:
        """Check that the whole content of the partition keeps all promises."""
        if start > self.may_start_at:
            self.complain(f"I1: {self.at} starts at {start}, nobody deleted that much")
        missing = [offset for offset in range(start, end) if offset not in content]
        if missing or len(content) != end - start:
            self.complain(f"I2: {self.at} has no {missing[:5]} between {start} and {end}")
        self.marked(end)
        for what, promised in (("acknowledged", self.acknowledged), ("read", self.read)):
            for offset, value in promised.items():
                if offset >= start and content.get(offset) != value:
                    self.complain(
                        f"I1: {self.at} offset {offset} was {what} as {value[:24]!r}, "
                        f"is {content.get(offset, b'nothing')[:24]!r}"
                    )
        if start == 0:
            for value in sorted(self.stored - set(content.values())):
                self.complain(f"I1: {self.at} lost {value[:24]!r}, which was acknowledged")
        self._audit_once(content)

    def _audit_once(self, content: dict[int, bytes]) -> None:
        last: dict[str, tuple[int, int]] = {}
        for offset in sorted(content):
            value = self.sent.get(content[offset])
            self._check_owner(offset, content[offset])
            if value is None:
                self.complain(f"I16: {self.at} offset {offset} holds what nobody sent")
            elif value.once:
                before, where = last.get(value.producer, (-1, -1))
                if value.number <= before:
                    self.complain(
                        f"I3: {self.at} offset {offset} holds {value.number} of {value.producer} "
                        f"after {before} at {where}"
                    )
                last[value.producer] = (value.number, offset)

    def forgive(self, end: int) -> None:
        """Drop promises from `end` on that were not synced, after a power failure."""
        if self.synced:
            return
        self.acknowledged = {o: value for o, value in self.acknowledged.items() if o < end}
        self.read = {o: value for o, value in self.read.items() if o < end}
        self.high_watermark = min(self.high_watermark, end)


@dataclass
class CommitPromises:
    """One group's committed offset of one partition, which only grows."""

    name: str
    complain: Complain
    synced: bool
    acknowledged: int = -1
    asked: int = -1

    def audit(self, found: int) -> None:
        """Check the offset that the broker returns."""
        if not self.acknowledged <= found <= self.asked:
            self.complain(
                f"I12: {self.name} has {found} committed, "
                f"not between {self.acknowledged} and {self.asked}"
            )

    def forgive(self) -> None:
        """Drop the promise after a power failure, unless it was synced."""
        if not self.synced:
            self.acknowledged = -1
