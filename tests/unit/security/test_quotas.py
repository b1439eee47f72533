"""Which quota applies to whom, and which values a quota may have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import KafkaError
from headwater.security.quota_buckets import (
    EXPIRY_US,
    MOST_BUCKETS,
    BucketOwner,
    QuotaBuckets,
)
from headwater.security.quotas import (
    DEFAULT,
    Limit,
    QuotaEntity,
    QuotaTable,
    quota_text,
    stored_quotas,
)

RATE = "producer_byte_rate"
ORDER = [
    (QuotaEntity("u", "c"), ("u", "c")),
    (QuotaEntity("u", DEFAULT), ("u", "c")),
    (QuotaEntity("u"), ("u", None)),
    (QuotaEntity(DEFAULT, "c"), ("u", "c")),
    (QuotaEntity(DEFAULT, DEFAULT), ("u", "c")),
    (QuotaEntity(DEFAULT), ("u", None)),
    (QuotaEntity(None, "c"), (None, "c")),
    (QuotaEntity(None, DEFAULT), (None, "c")),
]
"""Kafka's order, with who shares the quota."""


@given(st.sets(st.integers(0, len(ORDER) - 1)), st.sets(st.integers(0, len(ORDER) - 1)))
def test_the_most_specific_quota_of_a_key_applies(with_key, without_key):
    table = QuotaTable()
    for rank in without_key | with_key:
        quotas = {"consumer_byte_rate": 5.0} if rank in without_key else {}
        if rank in with_key:
            quotas[RATE] = 100.0 + rank
        assert table.set(ORDER[rank][0], quotas)
    expected = None
    if with_key:
        rank = min(with_key)
        expected = Limit(100.0 + rank, *ORDER[rank][1])
    assert table.limit(RATE, "u", "c") == expected
    assert table.limits_clients is bool(with_key | without_key)
    for rank in without_key | with_key:
        table.set(ORDER[rank][0], {})
    assert (table.limits_clients, table.entities) == (False, {})


def test_an_address_has_its_own_rate_or_the_default():
    table = QuotaTable()
    assert table.connection_rate("10.0.0.1") is None
    table.set(QuotaEntity(ip=DEFAULT), {"connection_creation_rate": 5})
    table.set(QuotaEntity(ip="10.0.0.1"), {"connection_creation_rate": 7})
    assert table.connection_rate("10.0.0.1") == 7
    assert table.connection_rate("10.0.0.2") == 5
    assert not table.limits_clients


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, "a quota is for a user"),
        ({"group": "g"}, "not a 'group'"),
        ({"user": ""}, "the name of the user is empty"),
        ({"user": "<default>"}, "leave the name out"),
        ({"client-id": "n" * 4097}, "has 4097 characters; at most 4096 fit"),
        ({"user": "u", "ip": "::1"}, "cannot be combined"),
        ({"ip": "some.host"}, "'some.host' is not an IP address"),
    ],
)
def test_an_entity_is_refused_with_a_reason(parts, said):
    with pytest.raises(KafkaError, match=said):
        QuotaEntity.of(parts)


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (QuotaEntity("u"), RATE, float("nan")),
        (QuotaEntity("u"), RATE, float("inf")),
        (QuotaEntity("u"), RATE, -1.0),
        (QuotaEntity("u"), RATE, 0.0),
        (QuotaEntity("u"), RATE, 1.5),
        (QuotaEntity("u"), RATE, 2.0**63),
        (QuotaEntity("u"), "connection_creation_rate", 1.0),
        (QuotaEntity("u"), "SCRAM-SHA-256", 1.0),
        (QuotaEntity(ip="::1"), RATE, 1.0),
        (QuotaEntity(ip="::1"), "connection_creation_rate", 2.0**31),
    ],
)
def test_a_value_that_no_broker_can_apply_is_refused_and_not_read(entity, key, value):
    with pytest.raises(KafkaError, match=key):
        entity.check(key, value)
    assert stored_quotas(entity, {key: repr(value), "request_percentage": "x"}) == {}


def test_what_is_stored_is_read_back():
    entity = QuotaEntity.of({"user": "u", "client-id": None})
    stored = {
        key: quota_text(key, value)
        for key, value in {RATE: 1e9, "request_percentage": 12.5}.items()
    }
    assert stored == {RATE: "1000000000", "request_percentage": "12.5"}
    secret = {"SCRAM-SHA-256": "salt=..."}
    assert stored_quotas(entity, {**stored, **secret}) == {RATE: 1e9, "request_percentage": 12.5}


# -- the table of buckets


def test_millions_of_names_take_no_more_memory_than_the_table():
    buckets = QuotaBuckets()
    busy = buckets.get(BucketOwner(RATE, "busy", None), 100, 0)
    for number in range(3 * MOST_BUCKETS):
        buckets.get(BucketOwner(RATE, None, str(number)), 100, number)
        busy.wait_us(number)
    assert len(buckets._by_owner) == MOST_BUCKETS
    assert buckets.get(BucketOwner(RATE, "busy", None), 100, number) is busy, "it is in use"


def test_made_up_names_give_no_client_a_second_bucket():
    buckets, owners = QuotaBuckets(100), [BucketOwner(RATE, str(n), None) for n in range(20)]
    held = [buckets.get(owner, 100, 0) for owner in owners]
    for number in range(1000):
        buckets.get(BucketOwner(RATE, None, str(number)), 100, number)
    held[0].spend(1000, 1000)
    assert all(buckets.get(one.owner, 100, 1000) is one for one in held)
    assert len(buckets._by_owner) == 100
    assert [one.owner for one in buckets.throttled()] == owners[:1]
    del held
    for number in range(1000):
        buckets.get(BucketOwner(RATE, None, f"later-{number}"), 100, number)
    assert len(buckets._in_use) == 100, "what no connection counts against is gone"


def test_a_bucket_that_is_not_used_for_an_hour_is_dropped():
    buckets = QuotaBuckets()
    for number in range(100):
        buckets.get(BucketOwner(RATE, None, str(number)), 100, 0)
    for number in range(100):
        buckets.get(BucketOwner(RATE, None, "new"), 100, EXPIRY_US + number)
        buckets.get(BucketOwner(RATE, None, f"new-{number}"), 100, EXPIRY_US + number)
    assert len(buckets._by_owner) == 101
