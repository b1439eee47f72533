"""Holds the history of a bank against what transactions promise.

- A transfer that was committed is visible whole, each leg once; one that was aborted is never visible,
  not even for a moment; one with an unknown outcome is one of the two.
- A request that was acknowledged is carried out once.
- The balances of all accounts always have the same sum: transfers of which a reader has seen a part
  are left out until it has seen the rest, and none may stay like that.
- What a reader got is what is there in the end, and it got all of that.
- After a fault is undone, open transactions end within their timeout and ten seconds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tools.bank_chaos.transfers import ACCOUNTS, OPENING_BALANCE, Leg
from tools.cluster_chaos.history import Event

SHOWN = 5
STUCK_LIMIT_S = 10.0
"""How long a transaction may stay open beyond its timeout."""

Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset."""


@dataclass(slots=True)
class BankFindings:
    """What a history contains, and what is wrong with it."""

    committed: int = 0
    """Transfers that are visible in the end."""
    transactions: Counter[str] = field(default_factory=Counter)
    """By outcome, as clients were told."""
    reads: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    fenced: int = 0
    hung: int = 0
    """Calls of librdkafka that did not return."""
    aborted_reads: int = 0
    torn: int = 0
    lost: int = 0
    doubled: int = 0
    wrong_sums: int = 0
    stuck: int = 0
    longest_open_s: float = 0.0
    """After a fault was undone."""
    problems: list[str] = field(default_factory=list)


def check_bank(events: Iterable[Event], *, timeout_s: float, whole: bool = True) -> BankFindings:
    """Everything that is wrong; a history that is not `whole` has nothing read back."""
    findings = BankFindings()
    book = _Book()
    for event in events:
        match event["what"]:
            case "ended":
                book.ended(event["transfers"], event["outcome"])
                findings.transactions[event["outcome"]] += 1
            case "requested":
                book.requested.add(event["transfer"])
            case "read":
                book.read(event["reader"], _place(event), Leg(*event["leg"]))
            case "stored":
                book.stored[_place(event)] = Leg(*event["leg"])
            case "stable":
                _judge_stable(findings, event["after_s"], timeout_s)
            case "fault":
                findings.faults[event["kind"]] += 1
            case "fenced":
                findings.fenced += 1
            case "hangs":
                findings.hung += 1
            case "problem":
                findings.problems.append(event["text"])
            case _:
                pass
    book.judge(findings, whole=whole)
    return findings


def _place(event: Event) -> Place:
    return event["topic"], event["partition"], event["offset"]


def _judge_stable(findings: BankFindings, after_s: float, timeout_s: float) -> None:
    findings.longest_open_s = max(findings.longest_open_s, after_s)
    if after_s > timeout_s + STUCK_LIMIT_S:
        findings.stuck += 1
        findings.problems.append(f"stuck: transactions were open {after_s:.1f} s after a fault")


def _shown(what: str, found: list[str]) -> Iterator[str]:
    yield from (f"{what}: {text}" for text in found[:SHOWN])
    if len(found) > SHOWN:
        yield f"{what}: {len(found) - SHOWN} more"


class _Book:
    """Outcomes of transfers, and what readers saw."""

    def __init__(self) -> None:
        self.stored: dict[Place, Leg] = {}
        self.requested: set[str] = set()
        self._outcomes: dict[str, str] = {}
        self._readers: dict[str, _Reader] = {}

    def ended(self, names: list[str], outcome: str) -> None:
        """Note what the client was told; requests are tried until one try commits."""
        self._outcomes.update(dict.fromkeys(names, outcome))

    def read(self, reader: str, place: Place, leg: Leg) -> None:
        self._readers.setdefault(reader, _Reader(reader)).add(place, leg)

    def judge(self, findings: BankFindings, *, whole: bool) -> None:
        readers = list(self._readers.values())
        findings.reads = sum(len(reader.seen) for reader in readers)
        aborted = [
            f"{reader.name} got {leg} at {place}, which was aborted"
            for reader in readers
            for place, leg in reader.seen.items()
            if self._outcomes.get(leg.transfer) == "aborted"
        ]
        sums = [text for reader in readers for text in reader.wrong_sums]
        if whole:
            aborted += self._judge_stored(findings)
            for reader in readers:
                findings.problems += _shown("read", list(reader.differs(self.stored)))
        findings.aborted_reads, findings.wrong_sums = len(aborted), len(sums)
        findings.problems += [*_shown("aborted read", aborted), *_shown("sum", sums)]

    def _judge_stored(self, findings: BankFindings) -> list[str]:
        visible: defaultdict[str, list[Leg]] = defaultdict(list)
        for leg in self.stored.values():
            visible[leg.transfer].append(leg)
        torn, doubled, aborted = [], [], []
        for name, legs in visible.items():
            numbers = Counter(leg.number for leg in legs)
            if max(numbers.values()) > 1:
                doubled.append(f"{name} has {legs}")
            if len(numbers) != legs[0].legs:
                torn.append(f"{name} has only {legs}")
            outcome = self._outcomes.get(name)
            if outcome == "aborted":
                aborted.append(f"{name} is stored, and was aborted")
            elif outcome is None and name not in self.requested and not _is_request(name):
                findings.problems.append(f"never sent: {name}")
        wanted = {name for name, outcome in self._outcomes.items() if outcome == "committed"}
        lost = [f"{name} was committed" for name in wanted | self.requested if name not in visible]
        total = sum(leg.amount for leg in self.stored.values())
        if total:
            findings.problems.append(f"sum: all accounts have {total} too much in the end")
        findings.committed = len(visible)
        findings.torn, findings.lost, findings.doubled = len(torn), len(lost), len(doubled)
        findings.problems += [
            *_shown("torn", torn), *_shown("lost", lost), *_shown("doubled", doubled)
        ]  # fmt: skip
        return aborted


def _is_request(name: str) -> bool:
    """A request whose acknowledgment was lost may be carried out."""
    return name.startswith("request")


class _Reader:
    """One reader: its balances after every transfer that it has seen whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: dict[Place, Leg] = {}
        self.wrong_sums: list[str] = []
        self._balances = [OPENING_BALANCE] * ACCOUNTS
        self._parts: dict[str, list[Leg]] = {}

    def add(self, place: Place, leg: Leg) -> None:
        if place in self.seen:
            if self.seen[place] != leg:
                self.wrong_sums.append(f"{self.name} got {self.seen[place]} and {leg} at {place}")
            return
        self.seen[place] = leg
        parts = self._parts.setdefault(leg.transfer, [])
        parts.append(leg)
        if len(parts) == leg.legs:
            del self._parts[leg.transfer]
            for part in parts:
                self._balances[part.account] += part.amount
            if sum(self._balances) != OPENING_BALANCE * ACCOUNTS:
                self.wrong_sums.append(f"{self.name} has {sum(self._balances)} after {parts}")
                self._balances = [OPENING_BALANCE] * ACCOUNTS

    def differs(self, stored: dict[Place, Leg]) -> Iterator[str]:
        for place, leg in self.seen.items():
            if stored.get(place) != leg:
                yield f"{self.name} got {leg} at {place}, there is {stored.get(place)}"
        for place, leg in stored.items():
            if place not in self.seen:
                yield f"{self.name} never got {leg} at {place}"
        for name, parts in self._parts.items():
            yield f"{self.name} has only {parts} of {name}"
