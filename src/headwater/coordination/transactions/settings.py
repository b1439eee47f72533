"""The settings of the transaction coordinator, as plain numbers."""

from typing import NamedTuple

from headwater.config.broker import BrokerSettings
from headwater.model import TRANSACTION_VERSION


class TransactionSettings(NamedTuple):
    """Kafka's defaults."""

    max_timeout_ms: int = 900_000
    timeout_check_interval_ms: int = 10_000
    id_expiration_ms: int = 604_800_000
    id_expiration_check_interval_ms: int = 3_600_000
    server_version: int = TRANSACTION_VERSION
    """The transaction version of an end that no producer asked for."""

    @classmethod
    def of(cls, settings: BrokerSettings) -> "TransactionSettings":
        return cls(
            settings.transaction_max_timeout_ms,
            settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            settings.transactional_id_expiration_ms,
            settings.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
