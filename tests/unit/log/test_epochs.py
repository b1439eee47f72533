import pytest

from headwater.log.epochs import EpochCache
from headwater.seams.files import OsFiles


@pytest.fixture
def epochs(tmp_path):
    cache = EpochCache(OsFiles(), str(tmp_path))
    for epoch, start in [(1, 0), (2, 10), (5, 25)]:
        cache.assign(epoch, start)
    return cache


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (5, (5, 40)),
        (6, (-1, -1)),
        (4, (2, 25)),
        (3, (2, 25)),
        (2, (2, 25)),
        (1, (1, 10)),
        (0, (0, 0)),
    ],
)
def test_the_end_of_an_epoch_is_the_start_of_the_next(epochs, asked, answer):
    assert epochs.end_offset(asked, 40) == answer


def test_an_empty_cache_knows_no_epoch(tmp_path):
    assert EpochCache(OsFiles(), str(tmp_path)).end_offset(0, 5) == (-1, -1)


def test_an_epoch_that_wrote_nothing_gives_way_to_the_next(epochs):
    epochs.assign(7, 40)
    epochs.assign(8, 40)
    assert epochs.epochs == [1, 2, 5, 8]


def test_an_older_epoch_changes_nothing(epochs):
    epochs.assign(4, 50)
    assert epochs.epochs == [1, 2, 5]


def test_truncation_at_either_end_keeps_what_is_left(epochs):
    epochs.truncate_end(25)
    assert (epochs.epochs, epochs.starts) == ([1, 2], [0, 10])
    epochs.truncate_start(12)
    assert (epochs.epochs, epochs.starts) == ([2], [12])


def test_the_file_has_kafkas_text_and_comes_back(epochs, tmp_path):
    epochs.save()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n1 0\n2 10\n5 25\n"
    again = EpochCache(OsFiles(), str(tmp_path))
    again.load()
    assert (again.epochs, again.starts, again.damaged) == ([1, 2, 5], [0, 10, 25], False)


@pytest.mark.parametrize(
    "text", ["", "0\n2\n1 0\n", "0\n2\n2 0\n1 5\n", "0\n2\n1 9\n2 5\n", "1\n0\n", "0\n1\n1 x\n"]
)
def test_a_file_that_makes_no_sense_is_damaged(tmp_path, text):
    (tmp_path / "leader-epoch-checkpoint").write_text(text)
    cache = EpochCache(OsFiles(), str(tmp_path))
    cache.load()
    assert cache.damaged
    assert cache.epochs == []


def test_every_flipped_bit_of_the_file_is_seen(epochs, tmp_path):
    epochs.save()
    path = tmp_path / "leader-epoch-checkpoint"
    content = path.read_bytes()
    for bit in range(len(content) * 8):
        broken = bytearray(content)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        epochs.load()
        assert epochs.damaged


def test_a_file_without_a_checksum_is_believed(epochs, tmp_path):
    epochs.save()
    (tmp_path / "leader-epoch-checkpoint.crc").unlink()
    epochs.load()
    assert epochs.epochs == [1, 2, 5]
