"""Batches and their memory, without a clock or a broker."""

import pytest

from headwater.client.producer.accumulator import (
    Accumulator,
    PartitionQueue,
    ProducerBatch,
    record_bound,
)
from headwater.client.producer.topic_queues import TopicQueues
from headwater.records.codec import BatchWriter


def accumulator(**changes: int) -> Accumulator:
    options = {"batch_size": 200, "linger_ms": 5, "buffer_memory": 1000, "delivery_timeout_ms": 100}
    return Accumulator(**{**options, **changes})


def begun(made: Accumulator, queue: PartitionQueue, *values: bytes, now: int = 0) -> ProducerBatch:
    batch = made.begin(queue, 0, now)
    assert batch is not None
    for value in values or (b"v",):
        batch.append(1, None, value)
    made.show(batch)
    return batch


def test_a_batch_waits_for_linger_unless_it_is_full_or_wanted() -> None:
    made = accumulator()
    queue = made.queue("t", 0)
    batch = begun(made, queue, now=10)
    assert made.due_ms(queue, batch) == 15
    made.flushing.add(1)
    assert made.due_ms(queue, batch) == 0
    made.flushing.clear()
    made.starved[print] = 1
    assert made.due_ms(queue, batch) == 0
    made.starved.clear()
    begun(made, queue, now=11)
    assert queue.head() is batch
    assert made.due_ms(queue, batch) == 0


def test_batches_leave_in_the_order_in_which_they_were_begun() -> None:
    made = accumulator()
    queue = made.queue("t", 0)
    batches = [begun(made, queue) for _ in range(3)]
    for batch in batches:
        assert queue.head() is batch
        made.mark_in_flight(batch)
    assert queue not in made.waiting


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_batches_put_back_find_their_place_whatever_the_order(order) -> None:
    made = accumulator(buffer_memory=10_000)
    queue = made.queue("t", 0)
    batches = [begun(made, queue) for _ in range(4)]
    for batch in batches[:3]:
        made.mark_in_flight(batch)
    for place in order:
        made.put_back(batches[place], 50)
    assert list(queue.sealed) == batches[:3]
    assert queue.open is batches[3]
    assert made.due_ms(queue, batches[0]) == 50


def test_memory_is_reserved_by_the_batch_and_free_once_it_is_done() -> None:
    made = accumulator()
    queue = made.queue("t", 0)
    batches = [begun(made, queue) for _ in range(5)]
    assert made.used == 1000
    assert made.begin(queue, 0, 0) is None
    made.mark_in_flight(batches[0])
    made.complete(batches[0])
    made.complete(batches[0])
    assert made.used == 800
    assert made.begin(queue, 201, 0) is None
    assert made.begin(queue, 200, 0) is not None


def test_a_record_larger_than_the_buffer_goes_alone() -> None:
    made = accumulator()
    made.show(made.begin(made.queue("t", 0), 5000, 0))
    assert made.begin(made.queue("t", 0), 1, 0) is None


def test_batches_that_wait_behind_others_may_grow() -> None:
    made = accumulator(buffer_memory=100_000, largest_batch=1000)
    queue = made.queue("t", 0)
    reserved = [begun(made, queue).reserved for _ in range(5)]
    assert reserved == [200, 400, 800, 1000, 1000]


def test_with_many_partitions_at_work_batches_grow_less() -> None:
    made = accumulator(buffer_memory=4000, largest_batch=1000)
    for number in range(4):
        begun(made, made.queue("t", number))
    queue = made.queue("t", 0)
    assert [begun(made, queue).reserved for _ in range(3)] == [400, 400, 400]


def test_a_split_takes_the_place_of_the_whole_and_no_record_is_lost() -> None:
    made = accumulator(batch_size=10_000, buffer_memory=100_000)
    queue = made.queue("t", 0)
    told: list[tuple[int, int]] = []
    whole = begun(made, queue, *[bytes(100)] * 10)
    whole.callbacks = [(lambda m, e, n=n: told.append((n, m.offset)), n, 1) for n in range(10)]
    later = begun(made, queue)
    made.mark_in_flight(whole)
    whole.encoded(0, None)
    first, *rest = made.split(whole, 400)
    assert list(queue.sealed) == [first, *rest]
    assert queue.open is later
    made.mark_in_flight(first)
    first.encoded(0, None)
    halves = made.split(first, 200)
    assert list(queue.sealed) == [*halves, *rest]
    offset = 0
    for part in [*halves, *rest]:
        made.mark_in_flight(part)
        part.future.succeed(offset, -1)
        part.finish(lambda call, metadata, error: call(metadata, error))
        made.complete(part)
        offset += part.count
    assert told == [(n, n) for n in range(10)]
    assert [whole.future.final_batch(n)[0].base_offset for n in range(10)] == sorted(
        whole.future.final_batch(n)[0].base_offset for n in range(10)
    )
    assert made.used == later.reserved
    assert begun(made, queue).reserved == 200


def test_what_is_past_its_time_leaves_the_queue() -> None:
    made = accumulator()
    queue = made.queue("t", 0)
    early, late = begun(made, queue, now=0), begun(made, queue, now=50)
    assert made.expired(99) == []
    assert made.expired(100) == [early]
    made.complete(early)
    assert made.expired(150) == [late]
    assert queue not in made.waiting


def test_the_bound_of_a_record_holds_for_any_record() -> None:
    for headers in ((), (("name", b"v" * 300), ("ä" * 70, None))):
        for key in (None, b"k" * 200):
            writer = BatchWriter(1)
            writer.append(1 << 60, key, b"v" * 1000, headers)
            assert writer.size <= record_bound(key, b"v" * 1000, headers)


def test_records_without_a_key_move_on_after_a_batch_of_bytes() -> None:
    made = accumulator(buffer_memory=100_000)
    draws = iter([0, 1, 2])
    queues = [made.queue("t", number) for number in range(3)]
    topic = TopicQueues(queues, made, False, lambda _: next(draws), 0)
    assert topic.sticky is queues[0]
    for _ in range(2):  # 61 + 7 + 60 bytes each: two of them make up batch.size
        assert topic.rotate(full=False) is queues[0]
        batch = begun(made, queues[0], bytes(60))
        topic.began(batch, 0)
        made.mark_in_flight(batch)
    assert topic.rotate(full=False) is queues[1]
    assert topic.rotate(full=True) is queues[2]


def test_partitions_without_a_leader_get_no_records_without_a_key() -> None:
    made = accumulator()
    queues = [made.queue("t", number) for number in range(3)]
    topic = TopicQueues(queues, made, False, lambda limit: limit - 1, 0)
    topic.led([0, 1])
    assert topic.rotate(full=True) is queues[1]
    topic.led([])
    assert topic.rotate(full=True) is queues[2]
