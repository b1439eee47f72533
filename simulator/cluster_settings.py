"""The settings of simulated brokers of a cluster, beside those of the plan."""

from simulator.cluster_plan import LAG_LIMIT_MS

SETTINGS = {
    "replica.lag.time.max.ms": str(LAG_LIMIT_MS),
    "replica.high.watermark.checkpoint.interval.ms": "1500",
    "log.retention.check.interval.ms": "5000",
    "log.retention.ms": "-1",  # markers of a broker whose clock is behind look old
    "log.segment.delete.delay.ms": "300",
    "log.index.interval.bytes": "500",
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
    "group.min.session.timeout.ms": "1000",
    "leader.imbalance.per.broker.percentage": "0",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
IDLE_SETTINGS = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
}
REPLICATED = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "default.replication.factor",
)
