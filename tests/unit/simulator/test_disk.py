"""What a power cut may take, and what it must leave."""

import pytest

from simulator.disk import SECTOR, Disk, File, Folder
from simulator.randomness import stream

CUTS = range(60)


def _file(disk: Disk, name: str) -> File:
    file = File()
    disk.root.link(name, file)
    return file


def _after_cut(make, seed: int) -> Disk:
    disk = make()
    disk.lose_power(stream(seed, "cut"))
    return disk


def test_synced_bytes_under_a_synced_name_survive_every_cut():
    def make() -> Disk:
        disk = Disk()
        file = _file(disk, "a")
        file.write(0, b"kept")
        file.sync()
        disk.root.sync()
        file.write(4, b"lost?")
        return disk

    found = {bytes(_after_cut(make, seed).find("/a").data) for seed in CUTS}
    assert all(data.startswith(b"kept") for data in found)
    assert {b"kept", b"keptlost?"} <= found


def test_an_unsynced_name_may_be_lost_with_all_its_synced_bytes():
    def make() -> Disk:
        disk = Disk()
        _file(disk, "a").sync()
        return disk

    found = {_after_cut(make, seed).find("/a") is None for seed in CUTS}
    assert found == {True, False}


def test_a_rename_is_there_or_not_but_one_of_the_names_is():
    def make() -> Disk:
        disk = Disk()
        _file(disk, "old")
        disk.root.sync()
        disk.root.rename("old", "new")
        return disk

    names = {tuple(_after_cut(make, seed).root.entries) for seed in CUTS}
    assert names == {("old",), ("new",)}


def test_a_torn_write_loses_whole_sectors_only():
    def make() -> Disk:
        disk = Disk()
        file = _file(disk, "a")
        disk.root.sync()
        file.write(100, b"x" * (3 * SECTOR))
        return disk

    for seed in CUTS:
        data = bytes(_after_cut(make, seed).find("/a").data)
        for start in range(0, len(data), SECTOR):
            sector = data[max(start, 100) : start + SECTOR]
            assert len(set(sector)) <= 1, f"seed {seed}: half a sector at {start}"


def test_some_cuts_leave_a_hole_before_what_they_keep():
    def make() -> Disk:
        disk = Disk()
        file = _file(disk, "a")
        disk.root.sync()
        file.write(0, b"x" * (3 * SECTOR))
        return disk

    found = [bytes(_after_cut(make, seed).find("/a").data) for seed in CUTS]
    assert any(data.startswith(bytes(SECTOR)) and data.endswith(b"x") for data in found)


def test_a_cut_shorter_and_a_write_are_kept_or_lost_in_their_order_after_a_sync():
    file = File()
    file.write(0, b"abcdef")
    file.truncate(2)
    file.write(4, b"z")
    assert bytes(file.data) == b"ab\0\0z"
    file.sync()
    assert file.durable == file.data
    assert file.pending == []


def test_folders_are_made_with_their_parents_and_walked_in_order():
    disk = Disk()
    disk.make_folders("/b/c")
    disk.make_folders("/a")
    assert [path for path, _ in disk.walk()] == ["/a", "/b", "/b/c"]
    assert isinstance(disk.find("/b/c"), Folder)
    with pytest.raises(FileNotFoundError):
        disk.folder_of("/nowhere/file")
