"""Transactional batches wait until the coordinator of their transaction knows the partition."""

import pytest

from headwater.errors import E, KafkaError
from headwater.records.batch import batches
from headwater.records.control import Marker, build_marker
from headwater.replication.replica_host import TransactionalWrite
from tests.unit.broker.live import batch as timed
from tests.unit.replication.replica_under_test import NOW, Pending, ReplicaUnderTest

ADDED_BY_CLIENT = TransactionalWrite("t", adds_partitions=False, knows_abortable=False)
ADDED_BY_BROKER = TransactionalWrite("t", adds_partitions=True, knows_abortable=True)


class InTransaction(Pending):
    """A batch of a request that names a transaction."""

    def __init__(self, write=ADDED_BY_CLIENT):
        super().__init__()
        self.transaction = write


@pytest.fixture
def leader(tmp_path):
    return ReplicaUnderTest(tmp_path)


def batch(producer=7, sequence=0, epoch=0, transactional=True, **kind):
    return timed(
        now=NOW,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        **kind,
    )


def append(leader, data, write=ADDED_BY_CLIENT):
    pending = leader.append(data, -1, InTransaction(write))
    leader.host.end_tick()
    return pending


def answer(leader, error=None, rank=0):
    *_, done = leader.host.questions.pop(rank)
    done(None if error is None else KafkaError(error))
    leader.host.end_tick()


def end(leader, producer=7, epoch=0, *, commit=True, version=0):
    marker = build_marker(Marker(producer, epoch, commit, 0), now=NOW)
    leader.replica.built.append_marker(marker, Pending(), version)
    leader.host.end_tick()


def refused(call) -> E:
    with pytest.raises(KafkaError) as failure:
        call()
    return failure.value.code


def sequences(leader):
    return [(header.producer_id, header.base_sequence) for _, header in batches(leader.stored())]


def test_the_first_batch_waits_for_the_coordinator_and_the_next_do_not(leader):
    first, second = append(leader, batch()), append(leader, batch(sequence=1))
    assert [question[:3] for question in leader.host.questions] == [(7, 0, ADDED_BY_CLIENT)]
    assert leader.stored() == b""
    assert first.held > 0
    answer(leader)
    assert first.ends == second.ends == ["done"]
    assert first.held == second.held == 0
    third = append(leader, batch(sequence=2))
    assert third.ends == ["done"]
    assert leader.host.questions == []
    assert sequences(leader) == [(7, 0), (7, 1), (7, 2)]


def test_other_producers_do_not_wait(leader):
    append(leader, batch())
    append(leader, batch(producer=8))
    plain = append(leader, batch(producer=-1, epoch=-1, sequence=-1, transactional=False), None)
    assert plain.ends == ["done"]
    answer(leader, rank=1)
    assert sequences(leader) == [(-1, -1), (8, 0)]


@pytest.mark.parametrize(
    ("write", "said", "told"),
    [
        (ADDED_BY_CLIENT, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (ADDED_BY_BROKER, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (ADDED_BY_CLIENT, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
        (ADDED_BY_CLIENT, E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS),
        (ADDED_BY_BROKER, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (ADDED_BY_BROKER, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_ENOUGH_REPLICAS),
        (ADDED_BY_CLIENT, E.NETWORK_EXCEPTION, E.NOT_ENOUGH_REPLICAS),
        (ADDED_BY_CLIENT, E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS),
    ],
)
def test_a_refusal_reaches_all_that_wait_and_writes_nothing(leader, write, said, told):
    waiting = [append(leader, batch(sequence=number), write) for number in range(2)]
    answer(leader, said)
    assert [pending.ends for pending in waiting] == [[told], [told]]
    assert leader.stored() == b""
    assert leader.replica.log.producers.get(7) is None
    append(leader, batch(), write)
    answer(leader)
    assert sequences(leader) == [(7, 0)]


def test_a_batch_does_not_overtake_another_that_could_not_be_verified(leader):
    for sequence in (4, 5):
        append(leader, batch(sequence=sequence))
    answer(leader, E.NOT_COORDINATOR)
    early = append(leader, batch(sequence=5))
    answer(leader)
    assert early.ends == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    for sequence in (4, 5):
        append(leader, batch(sequence=sequence))
    answer(leader)
    assert sequences(leader) == [(7, 4), (7, 5)]


def test_a_refused_epoch_fences_nobody(leader):
    append(leader, batch(epoch=9))
    answer(leader, E.INVALID_PRODUCER_EPOCH)
    append(leader, batch(epoch=8))
    answer(leader, E.COORDINATOR_LOAD_IN_PROGRESS)
    append(leader, batch(epoch=1))
    answer(leader)
    assert sequences(leader) == [(7, 0)]


def test_an_answer_about_a_transaction_that_ended_meanwhile_is_ignored(leader):
    late = append(leader, batch())
    end(leader, commit=False)
    assert late.ends == [E.INVALID_TXN_STATE]
    *_, done = leader.host.questions.pop()
    again = append(leader, batch(sequence=1))
    done(None)
    leader.host.end_tick()
    assert again.ends == []
    assert leader.replica.last_stable_offset == leader.replica.high_watermark == 1


def test_a_marker_refuses_batches_of_its_transaction_that_a_thread_prepares(tmp_path):
    leader = ReplicaUnderTest(tmp_path, compression_type="zstd")
    append(leader, batch())
    answer(leader)
    while leader.host.off:
        leader.host.run_off()
        leader.host.end_tick()
    large = append(leader, timed(b"x" * 300_000, now=NOW, producer_id=7, producer_epoch=0,
                                 base_sequence=1, transactional=True))  # fmt: skip
    assert leader.host.off
    end(leader, commit=False)
    leader.host.run_off()
    leader.host.end_tick()
    assert large.ends == [E.INVALID_TXN_STATE]
    assert leader.replica.last_stable_offset == leader.replica.log_end_offset


def test_an_older_epoch_is_refused_while_a_newer_one_waits(leader):
    old = append(leader, batch(epoch=1))
    new = append(leader, batch(epoch=2))
    assert old.ends == [E.INVALID_PRODUCER_EPOCH]
    assert refused(lambda: append(leader, batch(epoch=1))) is E.INVALID_PRODUCER_EPOCH
    answer(leader, rank=1)
    assert new.ends == ["done"]
    answer(leader)
    assert sequences(leader) == [(7, 0)]


def test_a_newer_epoch_is_verified_although_an_older_transaction_is_open(leader):
    append(leader, batch())
    answer(leader)
    append(leader, batch(epoch=1))
    assert [question[1] for question in leader.host.questions] == [1]


def test_a_batch_without_a_right_to_its_transaction_is_refused_even_if_it_is_open(leader):
    append(leader, batch())
    answer(leader)
    assert refused(lambda: append(leader, batch(sequence=1), None)) is (
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )


def test_an_unknown_producer_begins_at_sequence_0_if_the_broker_adds_the_partition(leader):
    assert refused(lambda: append(leader, batch(sequence=3), ADDED_BY_BROKER)) is (
        E.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert leader.host.questions == []
    append(leader, batch(producer=8, sequence=3), ADDED_BY_CLIENT)
    answer(leader)
    assert sequences(leader) == [(8, 3)]


def test_batches_that_are_verified_before_the_epoch_is_saved_keep_their_order(tmp_path):
    leader = ReplicaUnderTest(tmp_path)
    leader.replica.log.epochs.assign(1, 0)
    leader.replica.partition.led(0, 1, 1, (1,), (1,), 0)
    leader.host.saves_epochs = False
    first, second = (append(leader, batch(sequence=at), ADDED_BY_BROKER) for at in (0, 1))
    answer(leader)
    third = append(leader, batch(sequence=2), ADDED_BY_BROKER)
    answer(leader)
    assert leader.stored() == b""
    while leader.host.off:
        leader.host.run_off()
    leader.host.end_tick()
    assert [pending.ends for pending in (first, second, third)] == [["done"]] * 3
    assert sequences(leader) == [(7, 0), (7, 1), (7, 2)]


def test_a_plain_batch_in_an_open_transaction_is_refused(leader):
    append(leader, batch())
    answer(leader)
    plain = batch(sequence=1, transactional=False)
    assert refused(lambda: append(leader, plain, None)) is E.INVALID_TXN_STATE
    end(leader)
    assert append(leader, plain, None).ends == ["done"]


def test_what_waits_fails_when_the_replica_stops(leader):
    waiting = append(leader, batch())
    leader.replica.stop()
    assert waiting.ends == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert waiting.held == 0
    answer(leader)
    assert waiting.ends == [E.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_late_marker_does_not_end_the_next_transaction(leader):
    append(leader, batch(), ADDED_BY_BROKER)
    answer(leader)
    end(leader, epoch=1, version=2)
    end(leader, epoch=1, version=2)  # a repetition changes nothing
    append(leader, batch(epoch=1), ADDED_BY_BROKER)
    answer(leader)
    assert refused(lambda: end(leader, epoch=1, version=2)) is E.INVALID_PRODUCER_EPOCH
    assert leader.replica.last_stable_offset == 3
    end(leader, epoch=2, version=2)
    assert leader.replica.last_stable_offset == 5


def test_the_next_transaction_waits_while_the_marker_of_the_last_one_is_written(leader):
    """Since version 2 the marker has the epoch that the producer already writes with."""
    append(leader, batch(), ADDED_BY_BROKER)
    answer(leader)
    following = append(leader, batch(epoch=1), ADDED_BY_BROKER)
    end(leader, epoch=1, version=2)
    assert following.ends == []
    answer(leader)
    assert following.ends == ["done"]
    late = append(leader, batch(epoch=2), ADDED_BY_BROKER)
    end(leader, epoch=3, version=2)
    assert late.ends == [E.INVALID_TXN_STATE]


def test_the_marker_of_the_last_transaction_keeps_the_order_of_the_next_one(leader):
    append(leader, batch(), ADDED_BY_BROKER)
    answer(leader)
    append(leader, batch(epoch=1), ADDED_BY_BROKER)
    answer(leader, E.CONCURRENT_TRANSACTIONS)
    end(leader, epoch=1, version=2)
    early = append(leader, batch(epoch=1, sequence=1), ADDED_BY_BROKER)
    answer(leader)
    assert early.ends == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
