import pytest

from headwater.errors import E, KafkaError
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.records.stored import check_stored

NOW = 1_700_000_000_000


def stored(base_offset: int = 100, epoch: int = 5) -> bytearray:
    records = [Record(value=b"some value"), Record(key=b"k")]
    return build_batch(records, now=NOW, base_offset=base_offset, leader_epoch=epoch)


def test_an_undamaged_batch_gives_its_header_wherever_it_stands_in_the_buffer():
    header = check_stored(b"before" + stored() + b"after", 6, 100, 5, 5)
    assert (header[0], header[2], header[12]) == (100, 5, 2)


def test_every_flipped_bit_is_found_where_offset_and_epoch_are_known():
    batch = stored()
    for bit in range(len(batch) * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(KafkaError) as found:
            check_stored(damaged, 0, 100, 5, 5)
        assert found.value.code is E.CORRUPT_MESSAGE, bit


def test_every_cut_is_found():
    batch = stored()
    for size in range(len(batch)):
        with pytest.raises(KafkaError):
            check_stored(batch[:size], 0, 100, 5, 5)


def test_a_compacted_log_may_have_gaps_but_never_goes_back():
    assert check_stored(stored(), 0, 90, 5, 5, gaps=True)[0] == 100
    with pytest.raises(KafkaError, match="does not follow 90"):
        check_stored(stored(), 0, 90, 5, 5)
    with pytest.raises(KafkaError, match="does not follow 101"):
        check_stored(stored(), 0, 101, 5, 5, gaps=True)


@pytest.mark.parametrize(("floor", "ceiling"), [(6, 9), (0, 4)])
def test_an_epoch_that_the_log_cannot_have_there_is_found(floor, ceiling):
    with pytest.raises(KafkaError, match="leader epoch 5"):
        check_stored(stored(), 0, 100, floor, ceiling)
