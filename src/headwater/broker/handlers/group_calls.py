"""How a handler asks group shards and waits for their answers."""

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from headwater.broker.context import Context
from headwater.coordination.group_coordinator import GroupCommand
from headwater.errors import E, KafkaError

A = TypeVar("A")
C = TypeVar("C")


def call_shard(
    context: Context,
    group_id: str,
    command: GroupCommand[C],
    argument: C,
    refused: Callable[[E], A],
    done: Callable[[A], None],
) -> None:
    """Run a command on the shard of a group; `refused` makes the answer of a shard that cannot."""

    def reply(answer: object) -> None:
        if isinstance(answer, KafkaError):
            done(refused(answer.code))
        else:
            done(cast("A", answer))

    try:
        context.groups.submit(group_id, command, argument, reply)
    except KafkaError as refusal:
        done(refused(refusal.code))


class Gather(Generic[A]):
    """Waits for a fixed number of answers, and gives them on in the order of the questions."""

    def __init__(self, count: int, done: Callable[[list[A]], None]) -> None:
        self._answers: list[A | None] = [None] * count
        self._missing = count
        self._done = done
        if count == 0:
            done([])

    def slot(self, place: int) -> Callable[[A], None]:
        """Where the answer to one question goes; the last one ends the wait."""

        def put(answer: A) -> None:
            self._answers[place] = answer
            self._missing -= 1
            if not self._missing:
                self._done(cast("list[A]", self._answers))

        return put
