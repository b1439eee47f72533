"""What a broker notes of its metadata store, and how it recognizes an older copy of it."""

import json

import pytest

from headwater.broker.registration import Registration, prepare_store
from headwater.broker.store_mark import FILE_NAME, PAUSE_S, StoreMark, read_mark, read_noted_mark
from headwater.controller.store.znodes import BrokerEndpoint, BrokerNode, store_mark_path
from headwater.log.log_dir import LogDir
from headwater.seams.tasks import Lane
from tests.unit.controller.fake_loop import FakeLoop, MemoryFiles, embedded

NODE = BrokerNode(0, (BrokerEndpoint("PLAINTEXT", "h", 1, "PLAINTEXT"),))
DIRS = ("/a", "/b")


class Setting:
    """A store, and the log dirs of one broker."""

    def __init__(self) -> None:
        self.loop, self.files = FakeLoop(), MemoryFiles()
        self.disk = MemoryFiles()
        self.writes = 0
        self.store = embedded(self.loop, self.files)
        prepare_store(self.store, "c", lambda _: None)
        self.loop.run()

    def broker(self) -> StoreMark:
        dirs = [LogDir(self.disk, path) for path in DIRS]
        call_later = self.loop.call_later
        return StoreMark(self.store, 0, self.disk, dirs, self.off_loop, call_later)

    def off_loop(self, call, done, lane=Lane.READ):
        assert lane is Lane.FILES
        self.writes += 1
        self.loop.off_loop(call, lambda failure: done(None, failure))

    def stored(self) -> int:
        found: list[int] = []
        read_mark(self.store, 0, found.append)
        self.loop.run()
        return found[0]

    def noted(self) -> int:
        return read_noted_mark(self.disk, DIRS)

    def restore(self, content: dict[str, bytearray]) -> None:
        self.files = MemoryFiles()
        self.files.content = {path: bytearray(data) for path, data in content.items()}
        self.store = embedded(self.loop, self.files)


@pytest.fixture
def setting():
    return Setting()


def copy_of(files: MemoryFiles) -> dict[str, bytearray]:
    return {path: bytearray(data) for path, data in files.content.items()}


def test_a_mark_is_noted_in_all_log_dirs_and_the_next_start_knows_it(setting):
    assert (setting.stored(), setting.noted()) == (0, 0)
    setting.broker().renew()
    setting.loop.run()
    assert setting.stored() == setting.noted() > 0
    for path in DIRS:
        note = json.loads(setting.disk.content[f"{path}/{FILE_NAME}"])
        assert (note["version"], note["zxid"]) == (0, setting.stored())
    assert setting.broker().zxid == setting.stored()


def test_a_reply_of_the_store_after_the_stop_is_not_noted(setting):
    mark = setting.broker()
    mark.renew()
    mark.stop()
    setting.loop.run()
    assert (setting.writes, setting.noted()) == (0, 0)
    assert mark.zxid == setting.stored() > 0


def test_many_control_requests_make_few_marks(setting):
    mark = setting.broker()
    for _ in range(100):
        mark.renew()
        setting.loop.run()
    assert setting.writes == 1
    first = setting.noted()
    setting.loop.sleep(int(PAUSE_S * 1000))
    assert setting.writes == 2, "the last request is not forgotten"
    assert setting.noted() > first
    setting.loop.sleep(int(PAUSE_S * 1000))
    assert setting.writes == 2


def test_the_highest_note_counts_and_a_damaged_one_is_ignored(setting, caplog):
    setting.disk.content[f"/a/{FILE_NAME}"] = bytearray(b"{")
    setting.disk.content[f"/b/{FILE_NAME}"] = bytearray(b'{"version": 0, "zxid": 7}')
    assert setting.noted() == 7
    assert "/a/headwater-store-mark is damaged and ignored" in caplog.text
    setting.disk.content[f"/a/{FILE_NAME}"] = bytearray(b'{"version": 0, "zxid": 9}')
    assert setting.noted() == 9


def test_an_older_copy_is_neither_marked_nor_joined_even_after_many_transactions(setting, caplog):
    mark = setting.broker()
    mark.renew()
    setting.loop.run()
    older = copy_of(setting.files)
    mark.mark(mark.note)
    setting.loop.run()
    newest = copy_of(setting.files)
    setting.restore(older)
    for number in range(50):
        setting.store.create(f"/{number}", b"", lambda _: None)
    again, epochs = setting.broker(), []
    again.renew()
    setting.loop.run()
    assert setting.stored() < setting.noted()

    def register(mark: StoreMark) -> None:
        later = setting.loop.call_later
        Registration(setting.store, NODE, "c", epochs.append, later, lambda: mark.zxid)
        setting.loop.run()

    register(again)
    assert epochs == []
    assert "restored from an older copy: this broker marked it" in caplog.text

    setting.restore(newest)
    register(setting.broker())
    assert len(epochs) == 1


def test_a_removed_note_accepts_the_older_copy(setting):
    mark = setting.broker()
    mark.renew()
    setting.loop.run()
    older = copy_of(setting.files)
    mark.mark(mark.note)
    setting.loop.run()
    setting.restore(older)
    setting.disk.content.clear()
    before = setting.stored()
    setting.broker().renew()
    setting.loop.run()
    assert setting.noted() == setting.stored() > before


def test_a_mark_that_was_removed_by_hand_is_missed(setting):
    mark = setting.broker()
    mark.renew()
    setting.loop.run()
    setting.store.delete(store_mark_path(0), -1, lambda _: None)
    mark.mark(lambda: None)
    setting.loop.run()
    assert setting.stored() == 0 < setting.noted()
