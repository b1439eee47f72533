"""Events and profiles into their topics, with a bar that shows how far it is."""

from collections.abc import Iterable, Sequence

from examples.behavior.events import BEHAVIORS, Arrival
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headwater import Admin, NewTopic, Producer

EVENTS = "behavior"
"""All behaviors, or the prefix of one topic for each: `behavior.browse`, `behavior.buy`, ..."""
PROFILES = "user-profile"
DEAD = "behavior.dead"
PURCHASES = "behavior-purchases"

_SHOWN_EVERY = 2_000


def topics_of_events(per_behavior: bool) -> list[str]:
    """Where events go: one topic for all behaviors, or one for each."""
    return [f"{EVENTS}.{name}" for name in BEHAVIORS] if per_behavior else [EVENTS]


def create_topics(bootstrap: str, partitions: int = 3, *, per_behavior: bool = False) -> None:
    """The topics of the pipeline; profiles are kept by key forever."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics(
            [
                *(NewTopic(name, partitions) for name in topics_of_events(per_behavior)),
                NewTopic(PROFILES, 1, configs={"cleanup.policy": "compact"}),
                NewTopic(DEAD, 1),
                NewTopic(PURCHASES, partitions),
            ]
        )


def produce(
    bootstrap: str,
    topic: str,
    arrivals: Sequence[Arrival],
    console: Console,
    *,
    per_behavior: bool = False,
) -> None:
    """Send all of them, keyed by user and stamped with the time they came; returns when acknowledged."""
    failures: list[Exception] = []

    def note(stored: object, failure: Exception | None) -> None:
        if failure is not None:
            failures.append(failure)

    with Producer(bootstrap_servers=bootstrap, profile="throughput") as producer:
        for each in _shown(arrivals, topic, console):
            target = f"{topic}.{each.behavior}" if per_behavior else topic
            producer.send(
                target, each.value, key=each.key, timestamp=each.time_ms, on_delivery=note
            )
        producer.flush()
    if failures:
        raise failures[0]


def _shown(arrivals: Sequence[Arrival], topic: str, console: Console) -> Iterable[Arrival]:
    bar = Progress(
        TextColumn("{task.description:<14}"),
        BarColumn(40),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(topic, total=len(arrivals))
        for number, arrival in enumerate(arrivals):
            if number % _SHOWN_EVERY == 0:
                bar.update(task, completed=number)
            yield arrival
