"""The settings of the group coordinator, as plain numbers."""

from typing import NamedTuple

from headwater.config.broker import BrokerSettings

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""How long a first join may stay parked; without a limit, retried joins pile up (KAFKA-7610)."""


class GroupSettings(NamedTuple):
    """Kafka's defaults."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_check_interval_ms: int = 600_000

    @classmethod
    def of(cls, settings: BrokerSettings) -> "GroupSettings":
        return cls(
            settings.group_initial_rebalance_delay_ms,
            settings.group_min_session_timeout_ms,
            settings.group_max_session_timeout_ms,
            settings.group_max_size,
            settings.offset_metadata_max_bytes,
            settings.offsets_retention_minutes * 60_000,
            settings.offsets_retention_check_interval_ms,
        )
