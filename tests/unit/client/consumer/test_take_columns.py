"""Columns of what was fetched: one reader serves all polls of a consumer."""

import asyncio

import pytest

from headwater.client.consumer.consumer_core import ConsumerCore
from headwater.client.consumer.fetching.completed_fetch import CompletedFetch
from headwater.client.consumer.partition_state import PartitionState
from headwater.model import TopicPartition
from headwater.records import codec
from headwater.records.builder import build_batch
from headwater.records.record import Record


def consuming(*batches: list[bytes]) -> ConsumerCore:
    """One to whom each batch came in an answer of its own."""
    core = ConsumerCore({"bootstrap_servers": "127.0.0.1:1"})
    asyncio.run(started(core))
    state, first = PartitionState(TopicPartition("t", 0)), 0
    state.seek(0)
    for values in batches:
        rows = [Record(offset=n, value=value) for n, value in enumerate(values, start=first)]
        data = bytes(build_batch(rows, base_offset=first, leader_epoch=0, now=0))
        came = CompletedFetch(state, memoryview(data), aborted=None, check_crcs=True)
        state.fetched += came.size
        core._fetcher.ready.append(came)
        first = state.fetch_offset = came.end_offset
    return core


def test_each_poll_has_its_own_rows_and_the_buffer_is_empty_in_the_end() -> None:
    core = consuming([b"a", b"b"], [b"c"])
    state = core._fetcher.ready[0].state
    assert core.ready.take_columns(1)["value"].to_pylist() == [b"a", b"b"]
    assert core.ready.take_columns(1)["value"].to_pylist() == [b"c"]
    assert (state.position, state.buffered, len(core._fetcher.ready)) == (3, 0, 0)
    assert core.ready.take_columns(1) is None


@pytest.mark.skipif(codec.NAME != "compiled", reason="of the compiled reader")
def test_a_poll_that_is_interrupted_while_it_finishes_can_be_repeated(monkeypatch) -> None:
    from headwater.records import _codec

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    core = consuming([b"a"], [b"b"])
    state, data = core._fetcher.ready[0].state, core._fetcher.ready[0]._buf
    with monkeypatch.context() as patched:
        patched.setattr(_codec, "Columns", interrupted)
        with pytest.raises(KeyboardInterrupt):
            core.ready.take_columns(1)
    core.handover.begin()
    assert not core.nothing_due
    asyncio.run(undone(core))
    assert state.position == state.fetch_offset == 0
    again = CompletedFetch(state, memoryview(data), aborted=None, check_crcs=True)
    core._fetcher.ready.append(again)
    assert core.ready.take_columns(1)["value"].to_pylist() == [b"a"]


async def started(core: ConsumerCore) -> None:
    core.start()


async def undone(core: ConsumerCore) -> None:
    core._undo_interrupted()


def test_what_is_paused_stays_in_its_place() -> None:
    core = consuming([b"a"], [b"b"])
    state = core._fetcher.ready[0].state
    state.paused = True
    assert core.ready.take_records(10) == []
    assert core.ready.take_columns(10) is None
    assert len(core._fetcher.ready) == 2
    state.paused = False
    assert [record.value for record in core.ready.take_records(10)] == [b"a", b"b"]
