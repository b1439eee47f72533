"""Holds a history against what a cluster promises.

- An acknowledged record is stored where its acknowledgment said.
- A record of an idempotent producer is stored once. librdkafka may send one again under a new
  producer epoch, if requests for another partition were refused (its issue 4953): such copies are
  counted apart.
- The records of one client and key are stored in the order in which they were sent.
- What a member of a group read is what is stored, and each group reads everything that is stored.
- The committed offset of a group does not go back, and nobody commits below what was committed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tools.cluster_chaos.history import Event, Written

SHOWN = 5


class Place(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Findings:
    """What a history contains, and what is wrong with it."""

    acknowledged: dict[Place, Written] = field(default_factory=dict)
    stored: int = 0
    reads: int = 0
    commits: int = 0
    unsure: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    survived: set[str] = field(default_factory=set)
    """Kinds of faults during which writes went on."""
    lost: int = 0
    doubled: int = 0
    renumbered: int = 0
    """Copies that librdkafka sent under another producer epoch."""
    reordered: int = 0
    went_back: int = 0
    problems: list[str] = field(default_factory=list)


def check(
    events: Iterable[Event],
    *,
    whole: bool = True,
    producers: Mapping[tuple[str, int, int], tuple[int, int]] | None = None,
) -> Findings:
    """Everything that is wrong in a history; one that is not `whole` has no records read back.

    `producers` has the producer id and epoch of the record at a topic, a partition and an offset.
    """
    findings = Findings()
    records, reads, commits = _Records(), _Reads(), _Commits()
    for event in events:
        match event["what"]:
            case "client" | "ack" | "unsure" | "total" | "stored":
                records.add(event)
            case "group":
                reads.add_group(event["group"])
            case "read":
                reads.add(event)
            case "commit" | "committed":
                commits.add(event)
            case "fault":
                findings.faults[event["kind"]] += 1
            case "survived":
                findings.survived.add(event["kind"])
            case "problem":
                findings.problems.append(event["text"])
            case _:
                pass
    if whole:
        records.judge(findings, producers or {})
        reads.judge(findings, records.stored)
    commits.judge(findings)
    return findings


def _written(event: Event) -> Written:
    return Written(event["client"], event["key"], event["number"])


def _place(event: Event) -> Place:
    return Place(event["topic"], event["partition"], event["offset"])


def _shown(what: str, found: list[str]) -> Iterator[str]:
    yield from (f"{what}: {text}" for text in found[:SHOWN])
    if len(found) > SHOWN:
        yield f"{what}: {len(found) - SHOWN} more"


class _Records:
    """What was acknowledged against what is stored at the end."""

    def __init__(self) -> None:
        self.stored: dict[Place, Written] = {}
        self._acknowledged: dict[Place, Written] = {}
        # Acknowledged without an offset: the broker had the record already.
        self._somewhere: set[Written] = set()
        self._repeating: set[str] = set()
        self._renumbering: set[str] = set()
        self._totals: dict[tuple[str, str], int] = {}
        self._unsure = 0
        self._twice: list[str] = []

    def add(self, event: Event) -> None:
        match event["what"]:
            case "client":
                if event["repeats"]:
                    self._repeating.add(event["client"])
                if event.get("renumbers"):
                    self._renumbering.add(event["client"])
            case "ack" if event["offset"] < 0:
                self._somewhere.add(_written(event))
            case "ack":
                place, written = _place(event), _written(event)
                before = self._acknowledged.setdefault(place, written)
                if before != written:
                    self._twice.append(f"{place} was acknowledged for {before} and for {written}")
            case "stored":
                self.stored[_place(event)] = _written(event)
            case "total":
                self._totals[event["client"], event["key"]] = event["sent"]
            case _:
                self._unsure += 1

    def judge(
        self, findings: Findings, producers: Mapping[tuple[str, int, int], tuple[int, int]]
    ) -> None:
        findings.acknowledged = self._acknowledged
        findings.stored, findings.unsure = len(self.stored), self._unsure
        lost = [
            f"{written} was acknowledged at {place}; there is {self.stored.get(place)}"
            for place, written in self._acknowledged.items()
            if self.stored.get(place) != written
        ]
        there = set(self.stored.values())
        lost += [f"{one} was acknowledged" for one in sorted(self._somewhere) if one not in there]
        copies = self._renumbered(producers)
        findings.renumbered = len(copies)
        doubled, reordered = list(self._doubled(copies)), list(self._reordered(copies))
        findings.lost, findings.doubled = len(lost), len(doubled)
        findings.reordered = len(reordered)
        findings.problems += [
            *_shown("lost", lost),
            *_shown("doubled", doubled),
            *_shown("reordered", reordered),
            *_shown("one offset for two records", self._twice),
            *_shown("never sent", list(self._invented())),
        ]

    def _renumbered(self, producers: Mapping[tuple[str, int, int], tuple[int, int]]) -> set[Place]:
        """The later copies of records that a client sent again under another producer epoch."""
        first: dict[Written, Place] = {}
        copies = set()
        for place in sorted(self.stored):
            written = self.stored[place]
            before = first.setdefault(written, place)
            known = place in producers and before in producers
            if written.client in self._renumbering and known:
                copies.update([place] if producers[place] != producers[before] else [])
        return copies

    def _doubled(self, copies: set[Place]) -> Iterator[str]:
        first: dict[Written, Place] = {}
        for place in sorted(self.stored):
            written = self.stored[place]
            if written.client in self._repeating or place in copies:
                continue
            before = first.setdefault(written, place)
            if before != place:
                yield f"{written} is at {before} and at {place}"

    def _reordered(self, copies: set[Place]) -> Iterator[str]:
        acknowledged = self._somewhere.union(self._acknowledged.values())
        newest: dict[tuple[str, str], int] = {}
        for place in sorted(self.stored):
            written = self.stored[place]
            of = written.client, written.key
            before = newest.get(of, -1)
            repeats = written.client in self._repeating or place in copies
            if written.number < before and not repeats:
                yield f"{written} at {place} comes after number {before}"
            skipped = written._replace(number=before + 1)
            if written.number > before + 1 and skipped in acknowledged:
                yield f"{written} at {place} comes right after number {before}"
            newest[of] = max(before, written.number)

    def _invented(self) -> Iterator[str]:
        for place, written in self.stored.items():
            sent = self._totals.get((written.client, written.key), 0)
            if written.number >= sent:
                yield f"{written} at {place}; {sent} were sent"


class _Reads:
    """What groups read against what is stored at the end."""

    def __init__(self) -> None:
        self._read: dict[str, dict[Place, Written]] = defaultdict(dict)
        self._changed: list[str] = []
        self._count = 0

    def add_group(self, group: str) -> None:
        self._read.setdefault(group, {})

    def add(self, event: Event) -> None:
        self._count += 1
        place, written = _place(event), _written(event)
        before = self._read[event["group"]].setdefault(place, written)
        if before != written:
            self._changed.append(f"{place} was {before} first and {written} later")

    def judge(self, findings: Findings, stored: dict[Place, Written]) -> None:
        findings.reads = self._count
        for group, read in self._read.items():
            uncommitted = [
                f"group {group} read {written} at {place}; there is {stored.get(place)}"
                for place, written in read.items()
                if stored.get(place) != written
            ]
            missed = [
                f"group {group} never read {written} at {place}"
                for place, written in stored.items()
                if place not in read
            ]
            findings.problems += _shown("read what is not stored", uncommitted)
            findings.problems += _shown("missed", missed)
        findings.problems += _shown("changed under a reader", self._changed)


class _Commits:
    """Committed offsets against those that were acknowledged before."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, str, int], list[Event]] = defaultdict(list)

    def add(self, event: Event) -> None:
        self._events[event["group"], event["topic"], event["partition"]].append(event)

    def judge(self, findings: Findings) -> None:
        found = [text for of, events in self._events.items() for text in self._of(of, events)]
        findings.went_back = len(found)
        findings.commits = sum(
            event["what"] == "commit" for events in self._events.values() for event in events
        )
        findings.problems += _shown("went back", found)

    def _of(self, of: tuple[str, str, int], events: list[Event]) -> Iterator[str]:
        """An event that began after another had ended must not be below it."""
        ended = sorted(events, key=lambda event: int(event["t"]))
        done, highest = 0, -1
        for event in sorted(events, key=lambda event: int(event["began"])):
            while done < len(ended) and ended[done]["t"] < event["began"]:
                highest = max(highest, ended[done]["offset"])
                done += 1
            if event["offset"] < highest:
                group, topic, partition = of
                yield (
                    f"group {group}, {topic}-{partition}: {event['what']} {event['offset']} at "
                    f"{event['t']} us, {highest} was known before"
                )
