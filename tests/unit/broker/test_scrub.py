"""The scrubber finds damage that no reader has met, reports it once, and has it not served."""

import os

import pytest

from headwater.broker import scrub_loop
from headwater.errors import E, KafkaError
from headwater.log.scrubbing import SegmentScrub
from headwater.log.settings import LogSettings
from headwater.replication.upkeep import Upkeep
from headwater.seams.files import OsFiles
from tests.unit.broker.live import Live, until
from tests.unit.log.support import PARTITION, append, created, opened, stored

SETTINGS = LogSettings(segment_bytes=150_000)


def flip(path, place):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def scrubbed(log, segment, settings=SETTINGS):
    """The end of a scrub of a sealed segment."""
    log.configure(settings)
    expected = Upkeep(log, None).expected_headers(segment)
    scrub = SegmentScrub(OsFiles(), segment, expected)
    while scrub.step():
        pass
    return scrub


@pytest.mark.parametrize("with_checksums", [True, False])
@pytest.mark.parametrize("place", [7, 70_000])
def test_damage_to_a_sealed_segment_is_found_and_then_not_served(tmp_path, with_checksums, place):
    dirs, log = created(tmp_path, SETTINGS)
    for _ in range(30):
        append(log, 1, value=bytes(10_000))
    dirs.close({})
    if not with_checksums:
        for path in (tmp_path / "topic-0").glob("*.checksums"):
            path.unlink()
    dirs = opened(tmp_path, SETTINGS)
    log = dirs.logs[PARTITION]
    assert len(stored(log)) == 30
    first = log.segments[0]
    sound = scrubbed(log, first)
    assert (sound.damaged_at, sound.proven) == (None, not with_checksums)
    flip(first.path, place)
    found = scrubbed(log, first)
    assert found.damaged_at is not None
    assert found.damaged_at <= place
    with pytest.raises(KafkaError) as refused:
        stored(log)
    assert refused.value.code is E.CORRUPT_MESSAGE
    second = log.segments[1].base_offset
    assert len(stored(log, start=second)) == 30 - second
    dirs.abandon()


@pytest.mark.parametrize("compacted", [False, True])
def test_offsets_and_epochs_without_checksums_are_compared_with_what_else_is_known(
    tmp_path, compacted
):
    """No CRC covers them, and the checksums that a scrub makes would vouch for what is wrong."""
    policy = "compact" if compacted else "delete"
    settings = LogSettings(segment_bytes=150_000, cleanup_policy=policy)
    dirs, log = created(tmp_path, settings)
    for number in range(30):
        append(log, 1, leader=number // 5, value=bytes(10_000))
    first = log.segments[0]
    last = first.size - len(stored(log)[0][2])
    first.checksums.forget()
    assert scrubbed(log, first, settings).proven
    for place in (last + 4, last + 7, 15, last + 15):
        flip(first.path, place)
        first.checksums.forget()
        found = scrubbed(log, first, settings)
        assert found.damaged_at is not None
        assert found.damaged_at <= place
        assert not found.proven
        flip(first.path, place)
    dirs.abandon()


def test_a_broker_reports_damage_once_and_writes_missing_checksums(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(scrub_loop, "PAUSE_S", 0.05)
    with Live(tmp_path, {"log.scrub.bytes.per.second": str(1 << 30)}) as live:
        live.create("t")
        replica = live.replica("t")
        log = replica.log

        def fill():
            for _ in range(3):
                append(log, 1, value=bytes(1000))
                log.roll(0)
            replica.flushes.flush()

        live.on_loop(fill)
        paths = [f"{segment.stem}.checksums" for segment in list(log.segments)[:-1]]
        until(lambda: all(map(os.path.exists, paths)), "the checksums of the flush")

        def lose_one():
            os.unlink(paths[1])
            log.segments[1].checksums.forget()

        live.on_loop(lose_one)
        until(lambda: os.path.exists(paths[1]), "the checksums of the scrub")
        flip(log.segments[2].path, 80)
        counts = live.broker.parts.context.metrics
        until(lambda: counts.damaged_segments == 1, "the damage to be counted")
    assert counts.damaged_segments == 1
    assert caplog.text.count("is damaged near byte 0: these records are not served") == 1
