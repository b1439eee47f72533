"""The shape every coordinator shard has: a command gives an Outcome, replay changes what is stored.

A shard never waits and never writes. It returns records to append, replies for tokens and effects;
the loop appends first, replays, and hands out the replies once the high watermark covers them.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

R = TypeVar("R")

Token: TypeAlias = object
"""A waiting requester. Opaque here; answered exactly once."""


@dataclass(slots=True)
class Outcome(Generic[R]):
    """What a command wants done, in this order: records, then effects, then replies."""

    records: list[R] = field(default_factory=list)
    replies: list[tuple[Token, object]] = field(default_factory=list)
    effects: list[object] = field(default_factory=list)

    def reply(self, token: Token, answer: object) -> None:
        """Answer `token` once the records of this outcome are safe."""
        self.replies.append((token, answer))
