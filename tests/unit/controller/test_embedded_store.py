"""The embedded store's disk: group commit, failures, snapshots, damage."""

from typing import Any

import pytest

from headwater.controller.store import journal
from headwater.controller.store.journal import StoreDamaged
from headwater.controller.store.metadata_store import (
    SessionState,
    StoreError,
    StoreFailure,
    WatchEvent,
)
from tests.unit.controller.fake_loop import FakeLoop, MemoryFiles, embedded

JOURNAL = "/store/journal"


@pytest.fixture
def loop():
    return FakeLoop()


@pytest.fixture
def files():
    return MemoryFiles()


def names(loop: FakeLoop, store: Any) -> list[str]:
    answers: list[Any] = []
    store.children("/", answers.append)
    loop.run()
    return answers[0]


def test_the_writes_of_one_tick_share_one_sync(loop, files):
    store = embedded(loop, files)
    before = files.syncs
    for number in range(50):
        store.create(f"/n{number}", b"", lambda _: None)
    loop.run()
    assert files.syncs == before + 1


def test_reads_need_no_sync(loop, files):
    store = embedded(loop, files)
    before = files.syncs
    names(loop, store)
    assert files.syncs == before


def test_a_write_is_not_answered_before_it_is_synced(loop, files):
    store = embedded(loop, files)
    before = files.syncs
    seen: list[int] = []
    store.create("/a", b"", lambda _: seen.append(files.syncs))
    loop.run()
    assert seen == [before + 1]


def test_a_full_disk_refuses_the_round_and_the_store_lives_on(loop, files):
    store = embedded(loop, files)
    store.create("/kept", b"", lambda _: None)
    loop.run()
    woken: list[WatchEvent] = []
    store.exists("/lost", lambda _: None, lambda change, _: woken.append(change))
    loop.run()
    files.full = True
    answers: list[Any] = []
    store.create("/lost", b"", answers.append)
    store.children("/", answers.append)
    loop.run()
    refused, read = answers
    assert refused.kind is StoreFailure.CONNECTION_LOSS
    assert read == ["kept"], "a read is done again on what was promised"
    files.full = False
    assert names(loop, store) == ["kept"]
    assert woken == []
    store.create("/lost", b"", answers.append)
    loop.run()
    assert woken == [WatchEvent.CREATED]
    assert names(loop, embedded(loop, files)) == ["kept", "lost"]


def test_ephemerals_of_the_session_outlive_a_full_disk(loop, files):
    store = embedded(loop, files)
    store.create("/e", b"", lambda _: None, ephemeral=True)
    loop.run()
    files.full = True
    store.create("/lost", b"", lambda _: None)
    loop.run()
    files.full = False
    assert names(loop, store) == ["e"]


def test_after_a_failed_sync_the_session_is_over(loop, files):
    store = embedded(loop, files)
    sessions: list[SessionState] = []
    store.on_session(sessions.append)
    files.broken_sync = True
    answers: list[Any] = []
    store.create("/a", b"", answers.append)
    loop.run()
    files.broken_sync = False
    store.create("/b", b"", answers.append)
    loop.run()
    assert [answer.kind for answer in answers] == [
        StoreFailure.CONNECTION_LOSS,
        StoreFailure.SESSION_EXPIRED,
    ]
    assert sessions == [SessionState.EXPIRED]


def test_a_snapshot_replaces_the_journal_and_loses_nothing(loop, files, monkeypatch):
    monkeypatch.setattr(journal, "SNAPSHOT_FROM_BYTES", 500)
    store = embedded(loop, files)
    for number in range(60):
        store.create(f"/n{number:02}", b"x" * 20, lambda _: None)
        loop.run()
    assert len(files.content[JOURNAL]) < 60 * 63, "each of the 60 entries has 63 bytes"
    assert "/store/snapshot" in files.content
    reopened = embedded(loop, files)
    assert names(loop, reopened) == [f"n{number:02}" for number in range(60)]


def test_a_crash_between_snapshot_and_truncation_repeats_nothing(loop, files, monkeypatch):
    store = embedded(loop, files)
    store.create("/s", b"", lambda _: None)
    loop.run()
    for _ in range(3):
        store.create("/s/n_", b"", lambda _: None, sequential=True)
        loop.run()
    old_journal = bytes(files.content[JOURNAL])
    monkeypatch.setattr(journal, "SNAPSHOT_FROM_BYTES", 1)
    store = embedded(loop, files)
    store.create("/s/n_", b"", lambda _: None, sequential=True)
    loop.run()
    assert files.content[JOURNAL] == b""
    files.content[JOURNAL][:] = old_journal
    answers: list[Any] = []
    reopened = embedded(loop, files)
    reopened.get("/s", answers.append)
    loop.run()
    assert answers[0].stat.num_children == answers[0].stat.cversion == 4


def test_damage_before_the_tail_stops_the_start_instead_of_losing_what_was_promised(loop, files):
    store = embedded(loop, files)
    for name in ("/a", "/b", "/c"):
        store.create(name, b"data", lambda _: None)
        loop.run()
    files.content[JOURNAL][20] ^= 1
    with pytest.raises(StoreDamaged, match="damaged at byte 0"):
        embedded(loop, files)


def test_a_damaged_snapshot_stops_the_start(loop, files):
    files.content["/store/snapshot"] = bytearray(b"not a snapshot")
    with pytest.raises(StoreDamaged, match="snapshot"):
        embedded(loop, files)


def test_a_reply_that_raises_does_not_stop_the_others(loop, files, caplog):
    store = embedded(loop, files)
    answers: list[Any] = []

    def broken(_: object) -> None:
        raise RuntimeError("not taken")

    store.create("/a", b"", broken)
    store.create("/a", b"", answers.append)
    loop.run()
    assert isinstance(answers[0], StoreError)
    assert "not taken" in caplog.text
