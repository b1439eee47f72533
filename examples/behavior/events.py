"""Made-up user behavior with the troubles of the real thing, the same for the same seed.

People visit a shop for three hours. Few people and few items make most of the traffic, and a
festival an hour in brings five times the visits. Some events come late, some twice, some broken.
`Truth` counts what was made, so that a reader of the events can check that all of it arrived.
"""

import json
import math
import random
from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from itertools import accumulate
from typing import Any, NamedTuple

BEHAVIORS = ("browse", "like", "favourite", "comment", "cart", "buy")
CATEGORIES = ("phones", "books", "shoes", "toys", "garden", "kitchen", "music", "sport")
LEVELS = ("basic", "plus", "premium")
CITIES = ("Hangzhou", "Chengdu", "Lisbon", "Nairobi", "Lima", "Oslo")

BEGINS = time(18, 0)  # UTC
HOURS = 3
FESTIVAL_MINUTES = range(60, 80)
FESTIVAL_FACTOR = 5.0
LATEST_MS = 30 * 60_000  # an event that comes later than this after it happened is set aside

LATEST_ARRIVAL = timedelta(hours=3)  # after the evening's end nothing arrives later than this

_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_AFTER_BROWSE = (("like", 0.10), ("favourite", 0.06), ("comment", 0.02))
_CART = 0.14
_BUY = 0.38
_BUY_AT_FESTIVAL = 0.60


class Arrival(NamedTuple):
    """A record on its way to the topic."""

    time_ms: int
    key: bytes | None
    value: bytes | None
    behavior: str = ""
    """What the sender says it is; the value itself may be broken."""


@dataclass
class Truth:
    """What was made: the pipeline must find exactly this."""

    good: Counter[str] = field(default_factory=Counter)  # behavior -> events that count
    repeated: int = 0  # sent a second time, word for word
    too_late: int = 0
    broken: Counter[str] = field(default_factory=Counter)  # what is wrong -> events
    cents: int = 0  # what all the good purchases cost

    @property
    def arrivals(self) -> int:
        """Records sent to the topic."""
        return self.good.total() + self.repeated + self.dead

    @property
    def dead(self) -> int:
        """Records that belong to the dead letters."""
        return self.too_late + self.broken.total()


class Shop:
    """People, items and prices of one seed."""

    def __init__(self, seed: int, *, users: int = 20_000, items: int = 2_000) -> None:
        self._chance = random.Random(seed)
        self._users = _skewed(users, offset=10)
        self._items = _skewed(items, offset=5)
        self._cents = [round(100 * self._chance.lognormvariate(3.2, 0.8)) for _ in range(items)]
        self._minutes = list(accumulate(_crowd(minute) for minute in range(HOURS * 60)))

    def arrivals(self, events: int, start_ms: int, truth: Truth) -> list[Arrival]:
        """About this many events (exactly, before some are repeated), in order of arrival."""
        made: list[Arrival] = []
        happened = self._happenings(start_ms)
        for number in range(events):
            event = next(happened)
            behavior = event["behavior"]
            sent = self._sent(event, number, truth)
            made.extend(arrival._replace(behavior=behavior) for arrival in sent)
        made.sort(key=lambda arrival: arrival.time_ms)
        return made

    def profiles(self, start_ms: int) -> Iterator[Arrival]:
        """Who the people are; every tenth has a newer profile, every hundredth was deleted."""
        for user in range(len(self._users)):
            name = f"u{user:05d}"
            yield Arrival(start_ms, name.encode(), self._profile(name))
            if user % 10 == 3:
                yield Arrival(start_ms + 1, name.encode(), self._profile(name))
            if user % 100 == 50:
                yield Arrival(start_ms + 2, name.encode(), None)

    def _profile(self, name: str) -> bytes:
        chance = self._chance
        level = chance.choices(LEVELS, (70, 22, 8))[0]
        return _json({"user_id": name, "level": level, "city": chance.choice(CITIES)})

    def _happenings(self, start_ms: int) -> Iterator[dict[str, Any]]:
        """Visit after visit, action after action."""
        chance = self._chance
        while True:
            user = f"u{_draw(chance, self._users):05d}"
            minute = _draw(chance, self._minutes)
            now = start_ms + minute * _MINUTE_MS + chance.randrange(_MINUTE_MS)
            device = chance.choice(("phone", "phone", "phone", "desktop", "tablet"))
            for _ in range(1 + int(chance.expovariate(1 / 5))):
                for action, item in self._interest(minute in FESTIVAL_MINUTES):
                    yield {
                        "user_id": user,
                        "behavior": action,
                        "item_id": f"i{item:04d}",
                        "category": CATEGORIES[item % len(CATEGORIES)],
                        "price": self._cents[item] / 100,
                        "device": device,
                        "time_ms": now,
                    }
                    now += 1000 + int(chance.expovariate(1 / 25_000))

    def _interest(self, festival: bool) -> Iterator[tuple[str, int]]:
        """What one person does about one item."""
        chance = self._chance
        item = _draw(chance, self._items)
        yield "browse", item
        for action, share in _AFTER_BROWSE:
            if chance.random() < share:
                yield action, item
        if chance.random() < _CART:
            yield "cart", item
            if chance.random() < (_BUY_AT_FESTIVAL if festival else _BUY):
                yield "buy", item

    def _sent(self, event: dict[str, Any], number: int, truth: Truth) -> Iterator[Arrival]:
        """An event as it reaches the topic: in time, late, twice or broken."""
        chance = self._chance
        happened = event.pop("time_ms")
        event = {"event_id": f"e{number:08d}", **event, "time": happened}
        arrived = happened + chance.randrange(3_000)
        luck = chance.random()
        if luck < 0.004:
            yield self._broken(event, arrived, truth)
            return
        if luck < 0.009:
            truth.too_late += 1
            arrived = happened + chance.randrange(40, 90) * _MINUTE_MS
            yield _arrival(event, arrived)
            return
        if luck < 0.029:
            arrived = happened + chance.randrange(1, 10) * _MINUTE_MS
        truth.good[event["behavior"]] += 1
        if event["behavior"] == "buy":
            truth.cents += round(event["price"] * 100)
        yield _arrival(event, arrived)
        if luck > 0.995:
            truth.repeated += 1
            yield _arrival(event, arrived + 2_000 + chance.randrange(10_000))

    def _broken(self, event: dict[str, Any], arrived: int, truth: Truth) -> Arrival:
        kind = self._chance.choice(("cut", "no user", "unknown behavior", "free", "wrong clock"))
        truth.broken[kind] += 1
        if kind == "cut":
            whole = _arrival(event, arrived)
            return whole._replace(value=(whole.value or b"")[:60])
        if kind == "no user":
            del event["user_id"]
        elif kind == "unknown behavior":
            event["behavior"] = "swipe"
        elif kind == "free":
            event["price"] = -event["price"]
        else:
            event["time"] += _DAY_MS
        return _arrival(event, arrived)


def _arrival(event: dict[str, Any], time_ms: int) -> Arrival:
    user = event.get("user_id")
    told = _json(event | {"time": _iso(event["time"])})
    return Arrival(time_ms, user.encode() if user else None, told)


def _iso(time_ms: int) -> str:
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _skewed(count: int, offset: int) -> list[float]:
    """Running sums of weights: the first few have most of it."""
    return list(accumulate(1 / (rank + offset) for rank in range(count)))


def _draw(chance: random.Random, sums: list[float]) -> int:
    return bisect(sums, chance.random() * sums[-1])


def _crowd(minute: int) -> float:
    """How many people come in a minute of the evening."""
    evening = 1 + 0.3 * math.sin(minute / (HOURS * 60) * math.pi)
    return evening * (FESTIVAL_FACTOR if minute in FESTIVAL_MINUTES else 1)
