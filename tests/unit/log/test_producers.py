import pytest

from headwater.errors import E, KafkaError
from headwater.log import snapshots
from headwater.log.producers import ProducerStateEntry, ProducerStates
from tests.unit.log.support import append, batch, created, flush, opened, reopened, stage


def refusal(log, data):
    with pytest.raises(KafkaError) as refused:
        stage(log, data)
    return refused.value.code


def test_a_retry_of_any_of_the_last_five_batches_gets_its_first_offsets(tmp_path):
    _, log = created(tmp_path)
    offsets = [append(log, 2, producer=1, sequence=2 * n) for n in range(6)]
    for number in range(1, 6):
        assert append(log, 2, producer=1, sequence=2 * number) == offsets[number]
    assert log.log_end_offset == 12
    assert refusal(log, batch(2, producer=1, sequence=0)) is E.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_retry_of_a_batch_that_is_only_staged_gets_its_offsets(tmp_path):
    _, log = created(tmp_path)
    assert stage(log, batch(2, producer=1, sequence=0)) == (0, 1)
    assert stage(log, batch(2, producer=1, sequence=0)) == (0, 1)
    assert stage(log, batch(2, producer=1, sequence=2)) == (2, 3)
    log.write_staged()
    assert log.log_end_offset == 4


def test_same_first_sequence_with_another_length_is_no_duplicate(tmp_path):
    _, log = created(tmp_path)
    append(log, 3, producer=1, sequence=0)
    assert refusal(log, batch(2, producer=1, sequence=0)) is E.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_an_old_epoch_and_a_late_start_of_an_epoch_are_refused(tmp_path):
    _, log = created(tmp_path)
    append(log, 1, producer=1, epoch=3, sequence=0)
    assert refusal(log, batch(1, producer=1, epoch=3, sequence=2)) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, batch(1, producer=1, epoch=2, sequence=1)) is E.INVALID_PRODUCER_EPOCH
    assert refusal(log, batch(1, producer=1, epoch=4, sequence=1)) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, 1, producer=1, epoch=4, sequence=0) == (1, 1)
    assert refusal(log, batch(1, producer=1, epoch=3, sequence=1)) is E.INVALID_PRODUCER_EPOCH


def test_a_producer_without_state_may_begin_anywhere(tmp_path):
    _, log = created(tmp_path)
    assert append(log, 1, producer=1, sequence=77) == (0, 0)


def test_sequences_wrap_from_the_greatest_int_to_zero(tmp_path):
    _, log = created(tmp_path)
    top = (1 << 31) - 1
    append(log, 1, producer=1, sequence=top - 2)
    assert append(log, 4, producer=1, sequence=top - 1) == (1, 4)
    assert log.producers.get(1).last_sequence == 1
    assert append(log, 4, producer=1, sequence=top - 1) == (1, 4)
    assert append(log, 1, producer=1, sequence=2) == (5, 5)


@pytest.mark.parametrize("clean", [True, False])
def test_all_five_batches_are_known_after_a_restart(tmp_path, clean):
    dirs, log = created(tmp_path)
    offsets = [append(log, 2, producer=1, sequence=2 * n) for n in range(7)]
    _, log = reopened(dirs, tmp_path, clean=clean)
    for number in range(2, 7):
        assert append(log, 2, producer=1, sequence=2 * number) == offsets[number]
    assert append(log, 2, producer=1, sequence=14) == (14, 15)


def test_after_a_crash_the_batches_since_the_flush_are_known_too(tmp_path):
    dirs, log = created(tmp_path)
    offsets = [append(log, 2, producer=1, sequence=2 * n) for n in range(3)]
    flush(log, dirs)
    offsets += [append(log, 2, producer=1, sequence=2 * n) for n in range(3, 5)]
    dirs, log = reopened(dirs, tmp_path)
    for number in range(5):
        assert append(log, 2, producer=1, sequence=2 * number) == offsets[number]


def test_a_damaged_window_costs_only_the_older_batches(tmp_path):
    dirs, log = created(tmp_path)
    offsets = [append(log, 2, producer=1, sequence=2 * n) for n in range(3)]
    dirs.close({})
    (window,) = (tmp_path / "topic-0").glob("*.window")
    content = bytearray(window.read_bytes())
    content[-1] ^= 1
    window.write_bytes(content)
    log = opened(tmp_path).logs[log.topic_partition]
    assert append(log, 2, producer=1, sequence=4) == offsets[2]
    assert refusal(log, batch(2, producer=1, sequence=2)) is E.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_every_flipped_bit_of_a_snapshot_is_seen():
    content, _ = snapshots.encode([ProducerStateEntry(1, 2, 3, ((3, 3, 9, 9),), 5, -1, -1)])
    for bit in range(len(content) * 8):
        broken = bytearray(content)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(snapshots.DamagedSnapshot):
            snapshots.decode(bytes(broken))
    for size in range(len(content)):
        with pytest.raises(snapshots.DamagedSnapshot):
            snapshots.decode(content[:size])


def test_a_snapshot_has_kafkas_layout():
    content, window = snapshots.encode([ProducerStateEntry(1, 2, 6, ((5, 6, 9, 10),), 8, 4, 7)])
    assert content.hex() == (
        "0001" + content[2:6].hex() + "00000001"
        "0000000000000001" "0002" "00000006" "000000000000000a" "00000001"
        "0000000000000008" "00000004" "0000000000000007"
    )  # fmt: skip
    assert window == b""


def test_b20_silent_producers_are_forgotten_but_not_in_the_middle_of_a_transaction(tmp_path):
    _, log = created(tmp_path)
    append(log, 1, producer=1, sequence=0)
    append(log, 1, producer=2, sequence=0, transactional=True)
    assert log.producers.expire(1 << 60) == 1
    assert log.producers.get(1) is None
    assert log.producers.get(2).transaction_start == 1


def test_undo_takes_back_exactly_what_was_staged_since_keep():
    states = ProducerStates()
    header = (0, 49, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 1)
    states.admit(header, 0, 5)
    states.commit_staged()
    before = list(states)
    states.admit((*header[:11], 1, 1), 1, 6)
    states.admit((*header[:9], 2, 0, 0, 1), 2, 6)
    assert states.written_states() == {row.producer_id: row[1:] for row in before}
    states.rollback_staged(1)
    assert [row for row in states if row.producer_id == 1] == before


def test_the_second_batch_of_a_producer_is_refused_while_the_first_was_lost_by_a_failed_write():
    states = ProducerStates()
    first, second = (
        (0, 49, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 1),
        (0, 49, 0, 2, 0, 0, 0, 0, 0, 1, 0, 1, 1),
    )
    states.admit(first, 0, 5)
    states.rollback_staged(0)
    with pytest.raises(KafkaError) as refused:
        states.admit(second, 0, 6)
    assert refused.value.code is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.admit(first, 0, 7) is None
    assert states.admit(second, 1, 7) is None
    states.commit_staged()
    assert states.get(1).last_sequence == 1


def test_a_producer_whose_only_batch_was_lost_survives_a_snapshot():
    states = ProducerStates()
    states.admit((0, 49, 0, 2, 0, 0, 0, 0, 0, 1, 3, 0, 1), 0, 5)
    states.rollback_staged(0)
    (found,) = snapshots.decode(*snapshots.encode_states(states.written_states()))
    assert (found.producer_id, found.epoch, found.last_sequence, found.window) == (1, 3, -1, ())
