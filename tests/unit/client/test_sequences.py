"""The numbers of an idempotent producer: what proves a batch stored, and what it may be sent as."""

import pytest

from headwater.client.producer.accumulator import Accumulator, ProducerBatch
from headwater.client.producer.sequences import MAX_UNACKED, Sequences
from headwater.errors import E


class Partition:
    """One queue whose batches hold one record each."""

    def __init__(self, producer_id: int = 7, epoch: int = 0) -> None:
        self.accumulator = Accumulator(
            batch_size=1, linger_ms=0, buffer_memory=1 << 20, delivery_timeout_ms=10
        )
        self.queue = self.accumulator.queue("t", 0)
        self.topic_id = bytes(15) + b"1"
        self.sequences = Sequences()
        self.sequences.identified(producer_id, epoch)

    def fill(self, batches: int) -> None:
        for _ in range(batches):
            batch = self.accumulator.begin(self.queue, 0, 0)
            assert batch is not None
            batch.append(0, None, b"v")
            self.accumulator.show(batch)

    def send(self) -> ProducerBatch | None:
        batch = self.sequences.choose(self.queue, self.topic_id)
        if batch is not None:
            self.accumulator.mark_in_flight(batch, topic_id=self.topic_id)
            self.sequences.number(batch)
        return batch

    def send_all(self) -> list[ProducerBatch]:
        return list(iter(self.send, None))

    def acknowledge(self, batch: ProducerBatch) -> None:
        batch.in_flight = batch.uncertain = False
        self.sequences.acknowledged(batch)
        self.sequences.end_reset_if_due(batch)

    def put_back(self, batch: ProducerBatch, *, uncertain: bool) -> None:
        batch.uncertain = uncertain
        self.accumulator.put_back(batch, 0)
        self.sequences.end_reset_if_due(batch)


@pytest.fixture
def proven() -> Partition:
    """A partition whose broker has stored something."""
    partition = Partition()
    partition.fill(12)
    first = partition.send()
    assert first is not None
    assert partition.send() is None
    partition.acknowledge(first)
    return partition


def test_no_more_batches_are_numbered_than_a_broker_remembers(proven: Partition) -> None:
    sent = proven.send_all()
    assert len(sent) == MAX_UNACKED
    for batch in sent[1:]:
        proven.acknowledge(batch)
    assert proven.send() is None
    proven.acknowledge(sent[0])
    assert len(proven.send_all()) == MAX_UNACKED


def test_a_repetition_goes_alone(proven: Partition) -> None:
    first, *rest = proven.send_all()
    for batch in rest:
        proven.acknowledge(batch)
    proven.put_back(first, uncertain=True)
    assert proven.send_all() == [first]
    proven.acknowledge(first)
    second, third = proven.send(), proven.send()
    assert second is not None
    assert third is not None
    proven.acknowledge(third)
    proven.put_back(second, uncertain=True)
    assert proven.send_all() == [second]  # although the broker would remember three more
    proven.acknowledge(second)
    assert len(proven.send_all()) > 1


def test_the_acknowledgement_of_a_higher_number_proves_a_batch_stored(proven: Partition) -> None:
    first, second, *_ = proven.send_all()
    assert not proven.sequences.proves_stored(first)
    proven.acknowledge(second)
    assert proven.sequences.proves_stored(first)
    proven.acknowledge(first)
    assert not proven.sequences.proves_stored(first)


def test_proof_works_where_numbers_start_again_from_zero(proven: Partition) -> None:
    numbers = proven.sequences._partitions[proven.queue.key]
    numbers.next, numbers.acked_end = (1 << 31) - 1, (1 << 31) - 1
    last, first, *_ = proven.send_all()
    assert (last.base_sequence, first.base_sequence) == ((1 << 31) - 1, 0)
    proven.acknowledge(first)
    assert proven.sequences.proves_stored(last)


@pytest.mark.parametrize("error", [E.UNKNOWN_PRODUCER_ID, E.INVALID_PRODUCER_EPOCH])
def test_a_batch_that_may_be_stored_gets_no_new_number_from_a_broker_that_forgot(
    proven: Partition, error: E
) -> None:
    first, second, *_ = proven.send_all()
    first.uncertain = True
    assert not proven.sequences.refused(first, error)
    assert proven.sequences.refused(second, error)


def test_out_of_order_settles_the_fate_of_the_first_batch_alone(proven: Partition) -> None:
    first, second, *_ = proven.send_all()
    first.uncertain = second.uncertain = True
    assert proven.sequences.refused(second, E.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert second.uncertain
    assert proven.sequences.refused(first, E.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert not first.uncertain


def test_an_exhausted_epoch_asks_for_a_new_id_and_goes_on() -> None:
    partition = Partition(epoch=32_766)
    partition.fill(3)
    first = partition.send()
    assert first is not None
    partition.acknowledge(first)
    lost, last = partition.send_all()
    lost.in_flight = False
    partition.sequences.given_up(lost)
    partition.put_back(last, uncertain=False)
    assert not partition.sequences.ready
    partition.sequences.identified(8, 0)
    partition.sequences.end_resets()
    assert partition.send() is last
    assert (last.producer_id, last.epoch, last.base_sequence) == (8, 0, 0)


def test_a_recreated_topic_gets_one_batch_at_a_time_until_it_has_stored_one(
    proven: Partition,
) -> None:
    in_flight = proven.send_all()
    proven.topic_id = bytes(15) + b"2"
    assert proven.send() is None
    for batch in in_flight[:-1]:
        proven.acknowledge(batch)  # by the old topic
    assert proven.send() is None
    proven.put_back(in_flight[-1], uncertain=True)
    assert proven.send_all() == in_flight[-1:]
    proven.acknowledge(in_flight[-1])
    assert len(proven.send_all()) == 5
