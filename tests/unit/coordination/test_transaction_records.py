"""The records of `__transaction_state` have the bytes that Kafka writes."""

import pytest

from headwater.coordination.transactions.metadata import TransactionMetadata
from headwater.coordination.transactions.records import TransactionRecord, decode, encode
from headwater.coordination.transactions.states import STATES, TransactionState
from headwater.model import TopicPartition
from headwater.wire.codec import WireError

KEY = bytes.fromhex("000000027431")
PLAIN = bytes.fromhex(
    "0000"  # version
    "0000000000000065"  # producer id
    "0003"  # epoch
    "0000ea60"  # timeout
    "01"  # ongoing
    "00000001" "0001" "61" "00000002" "00000000" "00000002"  # partitions 0 and 2 of a
    "0000018bcfe56801"  # last update
    "0000018bcfe56800"  # start
)  # fmt: skip
FLEXIBLE = bytes.fromhex(
    "0001"
    "0000000000000065"
    "7fff"
    "0000ea60"
    "02"  # prepare commit
    "02" "02" "61" "03" "00000000" "00000002" "00"
    "0000018bcfe56801"
    "0000018bcfe56800"
    "03"  # tags
    "00" "08" "0000000000000065"  # previous producer id
    "01" "08" "0000000000000066"  # next producer id
    "02" "02" "0002"  # client's transaction version
)  # fmt: skip
ONGOING = TransactionMetadata(
    101,
    3,
    60_000,
    TransactionState.ONGOING,
    frozenset({TopicPartition("a", 0), TopicPartition("a", 2)}),
    1_700_000_000_001,
    1_700_000_000_000,
)
LAST = ONGOING._replace(
    producer_epoch=32767,
    state=TransactionState.PREPARE_COMMIT,
    previous_producer_id=101,
    next_producer_id=102,
    client_version=2,
)


def test_a_record_of_an_older_broker_is_read():
    assert decode(KEY, PLAIN) == ("t1", ONGOING)


def test_a_record_with_everything_is_written_and_read():
    assert encode(TransactionRecord("t1", LAST)) == (KEY, FLEXIBLE)
    assert decode(KEY, FLEXIBLE) == ("t1", LAST)


def test_the_last_epoch_is_not_stored():
    record = TransactionRecord("t1", LAST._replace(last_producer_epoch=5))
    assert decode(*encode(record)) == ("t1", LAST)


@pytest.mark.parametrize("state", [state for state, row in STATES.items() if row.follows])
def test_every_state_comes_back(state):
    held = frozenset() if state is TransactionState.EMPTY else ONGOING.partitions
    record = TransactionRecord("t1", ONGOING._replace(state=state, partitions=held))
    assert decode(*encode(record)) == record


def test_a_null_value_deletes():
    assert encode(TransactionRecord("t1", None)) == (KEY, None)
    assert decode(KEY, None) == ("t1", None)


def test_keys_of_other_types_are_skipped():
    assert decode(b"\0\1\0\0", None) is None
    assert decode(b"\0", None) is None


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\0", b"\0\2" + PLAIN[2:], PLAIN[:-1], PLAIN[:16] + b"\6" + PLAIN[17:]],
    ids=["empty", "short", "version", "truncated", "state"],
)
def test_a_damaged_value_is_refused(damaged):
    with pytest.raises(WireError):
        decode(KEY, damaged)
