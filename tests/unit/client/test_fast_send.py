"""Which records the fast path of `send` takes, as this build has it."""

import pytest

from headwater.client.producer.accumulator import Accumulator
from headwater.client.producer.fast_send import fast_send
from headwater.client.producer.locking import new_lock
from headwater.client.producer.topic_queues import TopicQueues
from headwater.records.codec import NAME
from headwater.seams.clock import SystemClock

OTHERWISE = object()


@pytest.fixture
def queues():
    """Two partitions, each with an open batch of one record."""
    accumulator = Accumulator(
        batch_size=10_000, linger_ms=5, buffer_memory=1 << 20, delivery_timeout_ms=1000
    )
    made = [accumulator.queue("t", number) for number in range(2)]
    for queue in made:
        batch = accumulator.begin(queue, 0, 0)
        batch.writer.append(0, None, b"first")
        accumulator.show(batch)
    return TopicQueues(made, accumulator, True, lambda _: 0, 0)


def test_the_chosen_partition_decides_whatever_the_key_is(queues):
    send = fast_send({"t": queues}, lambda *_: OTHERWISE, SystemClock(), new_lock())
    if NAME != "compiled":  # the general `send` handles partitions
        assert send("t", b"v", None, 1) is OTHERWISE
        return
    for number, queue in enumerate(queues.queues):
        for place, key in enumerate((None, b"k", b"another"), start=1):
            future, index, _ = send("t", b"v", key, number)
            assert (future, index) == (queue.open.future, place)


@pytest.mark.parametrize("partition", [2, -1, 2**31, True, "1", 1.0])
def test_any_other_partition_is_left_to_the_general_send(queues, partition):
    send = fast_send({"t": queues}, lambda *_: OTHERWISE, SystemClock(), new_lock())
    assert send("t", b"v", None, partition) is OTHERWISE
    assert [queue.open.writer.count for queue in queues.queues] == [1, 1]
