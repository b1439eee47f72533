"""The transaction coordinator and its topic."""

from headwater.config.keys import BOOLEAN, CLUSTER_WIDE, INT, SHORT, SettingsBase, key


class TransactionKeys(SettingsBase):
    """Transactions and their state."""

    # fmt: off
    transaction_max_timeout_ms: int = key(
        "transaction.max.timeout.ms", INT, default=900_000, at_least=1,
        doc="The maximum timeout that a transactional producer may ask for.",
    )
    transactional_id_expiration_ms: int = key(
        "transactional.id.expiration.ms", INT, default=604_800_000, at_least=1,
        doc="How long a transactional id is kept after its last transaction.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, default=10_000,
        at_least=1,
        doc="How long after a failed attempt to abort a transaction that has timed out the next one "
        "follows. The first one is made at the timeout.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        "transaction.remove.expired.transaction.cleanup.interval.ms", INT, default=3_600_000,
        at_least=1,
        doc="How often expired transactional ids are removed.",
    )
    transaction_state_log_num_partitions: int = key(
        "transaction.state.log.num.partitions", INT, default=50, at_least=1,
        doc="The number of partitions of __transaction_state. Never change it once transactions "
            "exist.",
    )
    transaction_state_log_replication_factor: int = key(
        "transaction.state.log.replication.factor", SHORT, default=3, at_least=1,
        doc="The replication factor of __transaction_state.",
        differs="If it is not set, the topic is created with min(3, live brokers) replicas, so that "
                "a single broker serves transactions; Kafka waits for three brokers. A value that "
                "is set is obeyed.",
    )
    transaction_state_log_min_isr: int = key(
        "transaction.state.log.min.isr", INT, default=2, at_least=1,
        doc="The min.insync.replicas of __transaction_state; a topic with fewer replicas needs all of "
            "them.",
    )
    transaction_state_log_segment_bytes: int = key(
        "transaction.state.log.segment.bytes", INT, default=104_857_600, at_least=1,
        doc="The segment size of __transaction_state; small segments load and compact faster.",
    )
    transaction_state_log_load_buffer_size: int = key(
        "transaction.state.log.load.buffer.size", INT, default=5_242_880, at_least=1,
        doc="How many bytes of its topic a coordinator reads at a time when it loads transactions.",
        idle="transactions load in small steps, so that other requests are served in between",
    )
    transaction_partition_verification_enable: bool = key(
        "transaction.partition.verification.enable", BOOLEAN, default=True, mode=CLUSTER_WIDE,
        doc="Whether the coordinator confirms that a partition belongs to a transaction before the "
            "first batch of the transaction is written to it.",
    )
    # fmt: on
