"""Counts events independently of the generator, to compare with its own counts."""

import json
from collections.abc import Iterable
from datetime import datetime

from examples.behavior.events import BEHAVIORS, LATEST_MS, Arrival, Truth

CLOCK_ERROR_MS = 60_000


def recount(arrivals: Iterable[Arrival]) -> Truth:
    """The truth as the records alone tell it."""
    truth, seen = Truth(), set()
    for arrival in arrivals:
        try:
            event = json.loads(arrival.value)
        except ValueError:
            truth.broken["cut"] += 1
            continue
        if problem := _problem(event, arrival.time_ms):
            truth.broken[problem] += 1
        elif _time_ms(event) < arrival.time_ms - LATEST_MS:
            truth.too_late += 1
        elif event["event_id"] in seen:
            truth.repeated += 1
        else:
            seen.add(event["event_id"])
            truth.good[event["behavior"]] += 1
            truth.cents += round(event["price"] * 100) * (event["behavior"] == "buy")
    return truth


def _problem(event: dict, arrived_ms: int) -> str | None:
    if "user_id" not in event:
        return "no user"
    if event["behavior"] not in BEHAVIORS:
        return "unknown behavior"
    if event["price"] <= 0:
        return "free"
    return "wrong clock" if _time_ms(event) > arrived_ms + CLOCK_ERROR_MS else None


def _time_ms(event: dict) -> float:
    return datetime.fromisoformat(event["time"]).timestamp() * 1000
