"""A sample of what `python -m tools.bit_flips` does with every bit."""

import logging
from collections import Counter

import pytest
from tools import bit_flips

from headwater.log.segment_checksums import SegmentChecksums


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_flipped_bits_of_a_segment_are_detected_and_never_served():
    report = Counter()
    bit_flips.flip_segment(211, report)
    assert bit_flips.problems_of(report) == []
    assert report["bits of the segment"] == report["detected"] > 39_000
    assert report["not covered by the CRCs of batches"] > 500
    assert report["reads refused"] > 0


def test_flipped_bits_of_other_files_change_no_answer():
    report = Counter()
    counts = bit_flips.flip_files(61, report)
    assert bit_flips.problems_of(report) == []
    assert {".index", ".timeindex", ".txnindex", ".snapshot", ".checksums"} <= set(counts)
    assert all(row["same answers"] + row["refused"] == row["flips"] for row in counts.values())


def test_flipped_bits_of_the_metadata_store_lose_nothing_that_it_answered():
    report = Counter()
    counts = bit_flips.flip_store(7, report) | bit_flips.flip_mark(1, report)
    assert bit_flips.problems_of(report) == []
    journal, snapshot, mark = counts.values()
    assert journal["refused"] > 700
    assert journal["same answers"] > 60, "those of the last transactions are corrected"
    assert snapshot["refused"] == snapshot["flips"] > 200
    assert mark["ignored with a warning"] > 200


def test_an_undetected_flip_would_be_seen(monkeypatch):
    monkeypatch.setattr(SegmentChecksums, "damage", lambda *_: None)
    monkeypatch.setattr(SegmentChecksums, "passed", lambda *_: True)
    report = Counter()
    bit_flips.flip_segment(90_001, report)
    assert any("undetected" in row for row in bit_flips.problems_of(report))
    assert any("wrong reads" in row for row in bit_flips.problems_of(report))
