"""Calls from handlers to the shards of coordinators."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from headwater.broker.context import Context
from headwater.coordination.group_coordinator import GroupCommand
from headwater.coordination.runtime_loop import Command, CoordinatorRuntime
from headwater.coordination.shard import Shard
from headwater.errors import E, KafkaError

A = TypeVar("A")
C = TypeVar("C")
R = TypeVar("R")
S = TypeVar("S", bound=Shard[Any])


def call_shard(
    context: Context,
    group_id: str,
    command: GroupCommand[C],
    argument: C,
    refused: Callable[[E], A],
    done: Callable[[A], None],
) -> None:
    """Run a command on the shard of a group; `refused` builds the answer if the shard cannot."""
    call_coordinator(context.groups, group_id, command, argument, refused, done)


def call_coordinator(
    coordinator: CoordinatorRuntime[S, R],
    key: str,
    command: Command[S, C, R],
    argument: C,
    refused: Callable[[E], A],
    done: Callable[[A], None],
) -> None:
    """Run a command on the shard of `key`; `refused` builds the answer if the shard cannot."""

    def reply(answer: object) -> None:
        if isinstance(answer, KafkaError):
            done(refused(answer.code))
        else:
            done(cast("A", answer))

    try:
        coordinator.submit(key, command, argument, reply)
    except KafkaError as refusal:
        done(refused(refusal.code))


class Gather(Generic[A]):
    """Collects a fixed number of answers and passes them on in the order of the calls."""

    def __init__(self, count: int, done: Callable[[list[A]], None]) -> None:
        self._answers: list[A | None] = [None] * count
        self._missing = count
        self._done = done
        if count == 0:
            done([])

    def slot(self, place: int) -> Callable[[A], None]:
        """Return the callback for one answer; the last answer completes the collection."""

        def put(answer: A) -> None:
            self._answers[place] = answer
            self._missing -= 1
            if not self._missing:
                self._done(cast("list[A]", self._answers))

        return put
