"""Counts rebalances and logs each one, so that needless ones can be found."""

import logging
from collections import Counter

from headwater.coordination.groups.commands import RebalanceReason, RebalanceStarted

log = logging.getLogger(__name__)

COUNTED_ROWS = 10_000


class Rebalances:
    """How often groups rebalanced: by reason, and by group, reason and member."""

    def __init__(self) -> None:
        self.by_reason: Counter[RebalanceReason] = Counter()
        # The rows counted last, at most COUNTED_ROWS of them.
        self.by_member: dict[tuple[str, RebalanceReason, str], int] = {}

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
        self.by_reason[started.reason] += 1
        row = (started.group_id, started.reason, started.member_id)
        self.by_member[row] = self.by_member.pop(row, 0) + 1
        if len(self.by_member) > COUNTED_ROWS:
            del self.by_member[next(iter(self.by_member))]

    def of_group(self, group_id: str) -> Counter[RebalanceReason]:
        """How often one group rebalanced, by reason."""
        found: Counter[RebalanceReason] = Counter()
        for (group, reason, _), count in self.by_member.items():
            if group == group_id:
                found[reason] += count
        return found
