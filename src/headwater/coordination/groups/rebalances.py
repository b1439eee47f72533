"""Counts rebalances and logs each one, so that needless ones can be found."""

import logging

from headwater.coordination.groups.commands import RebalanceReason, RebalanceStarted

log = logging.getLogger(__name__)

COUNTED_ROWS = 1000
LONGEST_NAME = 249
"""Longer group ids are cut: a client may invent a thousand of 32,000 characters."""


class Rebalances:
    """How often groups rebalanced, by group and reason: at most COUNTED_ROWS, those counted last."""

    def __init__(self) -> None:
        self.by_group: dict[tuple[str, RebalanceReason], int] = {}

    def note(self, effect: object) -> None:
        """Count and log the effect if it is a RebalanceStarted."""
        if isinstance(effect, RebalanceStarted):
            self._count(effect)
            log.info(
                "group %r rebalances: %s (member %r, reason %r)",
                effect.group_id,
                effect.reason.value,
                effect.member_id,
                effect.client_reason,
            )

    def _count(self, started: RebalanceStarted) -> None:
        row = (started.group_id[:LONGEST_NAME], started.reason)
        self.by_group[row] = self.by_group.pop(row, 0) + 1
        if len(self.by_group) > COUNTED_ROWS:
            del self.by_group[next(iter(self.by_group))]
