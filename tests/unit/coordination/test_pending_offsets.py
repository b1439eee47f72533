"""Pending offsets of many transactions: one commit costs the same beside 10 or 500 of them."""

import sys

import pytest

from headwater.coordination.groups import pending_offsets
from headwater.coordination.groups.pending_offsets import PendingOffsets
from headwater.coordination.groups.records import CommittedOffset, OffsetRecord


def record(partition: int) -> OffsetRecord:
    return OffsetRecord("g", "t", partition, CommittedOffset(1))


def beside(open_transactions: int) -> PendingOffsets:
    """One transaction with an offset of partition 0, and others with one of their own."""
    pending = PendingOffsets()
    for number in range(open_transactions):
        pending.add(number, record(number))
    return pending


def lines_of(call) -> int:
    """How many lines of the module a call runs; what the garbage collector runs does not count."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line" and frame.f_code.co_filename == pending_offsets.__file__
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "call",
    [
        lambda pending: pending.overwrite(record(0)),
        lambda pending: pending.overwrite(OffsetRecord("g", "t", 0, None)),
        lambda pending: pending.has("g", "t", 0),
        lambda pending: pending.has("g", "t", 1_000_000),
        lambda pending: pending.end(0, commit=True),
        lambda pending: pending.end(0, commit=False),
    ],
)
def test_a_commit_takes_no_longer_beside_many_transactions(call):
    few, many = beside(10), beside(500)
    assert lines_of(lambda: call(few)) == lines_of(lambda: call(many))
