"""The effects of a partition, to be carried out in order."""

from typing import NamedTuple, TypeAlias


class AdvanceHW(NamedTuple):
    """Everything below `high_watermark` is committed: complete the requests that wait for it."""

    high_watermark: int


class ProposeIsr(NamedTuple):
    """Ask the controller to store another in-sync set; it takes effect once stored.

    `keeps_records` is set if this replica leaves the set and its disk has what was written to it.
    """

    isr: frozenset[int]
    leader_epoch: int
    partition_epoch: int
    keeps_records: bool = False


Effect: TypeAlias = AdvanceHW | ProposeIsr
NOTHING: tuple[Effect, ...] = ()
