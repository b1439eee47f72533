"""What a partition asks of its surroundings, in the order it must happen."""

from typing import NamedTuple, TypeAlias


class AdvanceHW(NamedTuple):
    """Everything below `high_watermark` is committed: release who waits for it."""

    high_watermark: int


class ProposeIsr(NamedTuple):
    """Ask the controller to store another in-sync set; it counts only once stored."""

    isr: frozenset[int]
    leader_epoch: int
    partition_epoch: int


Effect: TypeAlias = AdvanceHW | ProposeIsr
NOTHING: tuple[Effect, ...] = ()
