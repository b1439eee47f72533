"""A key that can be changed while the broker runs is looked at again, every one of them."""

import asyncio

import pytest

from headwater.broker.handlers.configs import ConfigResourceKind
from headwater.config.broker import BrokerSettings
from headwater.config.broker_keys.tls import BrokerTlsKeys
from headwater.config.keys import Mode
from headwater.model import TopicPartition
from headwater.replication.replica_host import TransactionalWrite
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.broker.live import WAIT_S, Live, batch, until

SET, DELETE = 0, 1
DYNAMIC = [
    row.name
    for row in BrokerSettings.KEYS.values()
    if row.mode is not Mode.READ_ONLY and not row.idle and row.name not in BrokerTlsKeys.KEYS
]
"""Key stores change for one listener at a time: tests/integration/test_tls.py."""


def limits(live):
    return live.context.connection_quotas.limits


def rules(live):
    return live.replica("t").policy.rules


def log(live):
    return live.replica("t").log.settings


def cleaner(live):
    return live.broker.parts.cleaner


def producers_left(live) -> int:
    run = asyncio.run_coroutine_threadsafe
    run(live.broker.parts.housekeeping._expire_producers(), live._loop).result(WAIT_S)
    return len(live.replica("t").log.producers)


def verifies(live) -> bool:
    """Whether a coordinator is asked: there is none, so the answer would be a refusal."""
    answers: list[object] = []
    write = TransactionalWrite("none", adds_partitions=False, knows_abortable=False)
    where = TopicPartition("t", 0)
    live.on_loop(lambda: live.context.verifier.verify(where, 7, 0, write, answers.append))
    until(lambda: answers)
    return answers[0] is not None


IN_USE = {
    "num.replica.fetchers": ("3", lambda live: live.context.settings.num_replica_fetchers, 3),
    "max.connections": ("50", lambda live: limits(live).total, 50),
    "max.connection.creation.rate": ("60", lambda live: limits(live).rate, 60),
    "max.connections.per.ip": ("40", lambda live: limits(live).allowed_from("a"), 40),
    "max.connections.per.ip.overrides": ("a:7", lambda live: limits(live).allowed_from("a"), 7),
    "log.cleanup.policy": ("compact", lambda live: rules(live).keys_required, True),
    "compression.type": ("gzip", lambda live: rules(live).codec, 1),
    "compression.gzip.level": ("3", lambda live: rules(live).level, 3),
    "compression.lz4.level": ("2", lambda live: rules(live).level, 2),
    "compression.zstd.level": ("5", lambda live: rules(live).level, 5),
    "log.cleaner.delete.retention.ms": ("31", lambda live: log(live).delete_retention_ms, 31),
    "log.cleaner.max.compaction.lag.ms": ("32", lambda live: log(live).max_compaction_lag_ms, 32),
    "log.cleaner.min.compaction.lag.ms": ("33", lambda live: log(live).min_compaction_lag_ms, 33),
    "log.cleaner.min.cleanable.ratio": (
        "0.25",
        lambda live: log(live).min_cleanable_dirty_ratio,
        0.25,
    ),
    "log.cleaner.threads": ("3", lambda live: cleaner(live)._threads, 3),
    "log.cleaner.backoff.ms": ("70000", lambda live: cleaner(live)._pause_s, 70.0),
    "log.cleaner.dedupe.buffer.size": ("240", lambda live: cleaner(live)._limits().map_bytes, 240),
    "log.cleaner.io.buffer.size": ("99", lambda live: cleaner(live)._limits().piece_bytes, 99),
    "log.cleaner.io.buffer.load.factor": (
        "0.5",
        lambda live: cleaner(live)._limits().load_factor,
        0.5,
    ),
    "log.cleaner.io.max.bytes.per.second": ("1000", lambda live: cleaner(live)._rate(), 1000.0),
    "log.flush.interval.messages": ("1", lambda live: live.replica("t").policy.sync_acks, True),
    "log.index.interval.bytes": ("999", lambda live: log(live).index_interval_bytes, 999),
    "log.index.size.max.bytes": ("4096", lambda live: log(live).segment_index_bytes, 4096),
    "log.message.timestamp.after.max.ms": ("5", lambda live: rules(live).after_ms, 5),
    "log.message.timestamp.before.max.ms": ("6", lambda live: rules(live).before_ms, 6),
    "log.message.timestamp.type": (
        "LogAppendTime",
        lambda live: rules(live).log_append_time,
        True,
    ),
    "log.retention.bytes": ("777", lambda live: log(live).retention_bytes, 777),
    "log.retention.ms": ("888", lambda live: log(live).retention_ms, 888),
    "log.segment.bytes": ("2000000", lambda live: log(live).segment_bytes, 2000000),
    "log.segment.delete.delay.ms": ("12", lambda live: log(live).file_delete_delay_ms, 12),
    "log.roll.ms": ("123", lambda live: log(live).segment_ms, 123),
    "log.roll.jitter.ms": ("11", lambda live: log(live).segment_jitter_ms, 11),
    "log.flush.interval.ms": ("22", lambda live: log(live).flush_ms, 22),
    "message.max.bytes": ("5000", lambda live: rules(live).max_message_bytes, 5000),
    "min.insync.replicas": ("2", lambda live: live.replica("t").partition.min_insync, 2),
    "unclean.leader.election.enable": (
        "true",
        lambda live: live.context.controller._controller._settings.unclean_leader_election,
        True,
    ),
    "log.validate.records": ("true", lambda live: rules(live).validate_records, True),
    "producer.id.expiration.ms": ("1", producers_left, 0),
    "transaction.partition.verification.enable": ("false", verifies, False),
    "leader.replication.throttled.rate": (
        "1000",
        lambda live: live.context.throttles.leader.limit,
        1000,
    ),
    "replica.alter.log.dirs.io.max.bytes.per.second": (
        "3000",
        lambda live: live.context.throttles.log_dirs.limit,
        3000,
    ),
    "follower.replication.throttled.rate": (
        "2000",
        lambda live: live.context.throttles.follower.limit,
        2000,
    ),
}
"""Key, a value for it, and how to see at its place of use that it is in force."""
NEEDS = {f"compression.{codec}.level": codec for codec in ("gzip", "lz4", "zstd")}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with Live(tmp_path_factory.mktemp("dynamic")) as broker, broker.client() as client:
        broker.create("t")
        client.produce("t", batch(producer_id=7, producer_epoch=0, base_sequence=0))
        yield broker


def alter(live, operation: int, **changes: str | None) -> None:
    with live.client() as client:
        ask_to_alter(client, operation, changes)


def ask_to_alter(client, operation: int, changes: dict[str, str | None]) -> None:
    rows = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=name, config_operation=operation, value=value
        )
        for name, value in changes.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=ConfigResourceKind.BROKER, resource_name="", configs=rows
    )
    answer = client.ask(
        IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, 1
    )
    assert answer.responses[0].error_code == 0, answer


def test_every_key_that_can_be_changed_is_looked_at_here():
    assert sorted(IN_USE) == sorted(DYNAMIC)


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_changed_value_is_in_force_and_so_is_the_default_after_it(live, name):
    value, look, expected = IN_USE[name]
    if name in NEEDS:
        alter(live, SET, **{"compression.type": NEEDS[name]})
    before = look(live)
    assert before != expected
    alter(live, SET, **{name: value})
    until(lambda: look(live) == expected, f"for {name}={value}")
    alter(live, DELETE, **{name: None})
    if name != "producer.id.expiration.ms":  # what has expired does not come back
        until(lambda: look(live) == before, f"for {name} without a value")
    if name in NEEDS:
        alter(live, DELETE, **{"compression.type": None})


def test_a_lower_limit_of_connections_turns_new_ones_away(live):
    with live.client() as inside:
        assert inside.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
        alter(live, SET, **{"max.connections.per.ip": "2"})
        until(lambda: limits(live).per_host == 2)
        until(lambda: live.on_loop(lambda: len(live.context.connection_quotas.open)) == 2)
        with live.client() as one_too_many:
            assert one_too_many.is_closed()
        assert inside.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
        ask_to_alter(inside, DELETE, {"max.connections.per.ip": None})
