"""Names through rotations and restarts: every line once, by a clock that the test moves."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.collect.file_tracker import FileTracker
from headwater.collect.line_reader import CHUNK, FilePosition
from headwater.collect.log_files import OsLogFiles

LINGER_MS = 1000


class Log:
    """A log file, its writer, and who follows it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.log"
        self.now = 0
        self.position: FilePosition | None = None
        self.gaps = 0
        self._age = 0
        self.follower: FileTracker

    def write(self, text: str, path: Path | None = None) -> None:
        target = path or self.path
        with target.open("ab") as file:
            file.write(text.encode())
        self._touch(target)

    def rename(self, suffix: str = ".1") -> Path:
        old = self.path.with_name(self.path.name + suffix)
        self.path.rename(old)
        return old

    def copy_and_truncate(self, suffix: str = ".1") -> None:
        copy = self.path.with_name(self.path.name + suffix)
        shutil.copyfile(self.path, copy)
        self._touch(copy)
        os.truncate(self.path, 0)
        self._touch(self.path)

    def _touch(self, path: Path) -> None:
        """A clock of its own, so that no two writes seem to be at one time."""
        self._age += 1
        os.utime(path, ns=(self._age, self._age))

    def start(self, max_line: int = 100, from_end: bool = False) -> None:
        self.follower = FileTracker(
            str(self.path),
            OsLogFiles(),
            max_line=max_line,
            position=self.position,
            from_end=from_end,
            linger_ms=LINGER_MS,
        )

    def stop(self) -> None:
        self.position = self.follower.position()
        self.gaps += self.follower.gaps
        self.follower.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def poll(self, most: int = 10_000) -> list[str]:
        return [line.text.decode() for line in self.follower.poll(self.now, most)]

    def rest(self) -> list[str]:
        """All there is, with time for rotated files."""
        found: list[str] = []
        quiet, enough = (
            0,
            3 * len(list(self.path.parent.iterdir())),
        )  # an empty file has its turn too
        while quiet < enough:
            lines = self.poll()
            found += lines
            quiet = 0 if lines else quiet + 1
            self.now += LINGER_MS
        return found


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_lines_come_as_they_are_written(log: Log) -> None:
    log.write("one\ntwo\r\n\nfour\n")
    log.start()
    assert log.poll() == ["one", "two", "", "four"]
    assert log.poll() == []
    log.write("five\n")
    assert log.poll() == ["five"]


def test_a_partial_line_waits_for_its_newline(log: Log) -> None:
    log.start()
    assert log.poll() == []
    log.write("be")
    assert log.poll() == []
    log.write("gun")
    assert log.poll() == []
    log.write("\nnext")
    assert log.poll() == ["begun"]
    assert [line.text for line in log.follower.last_line()] == [b"next"]


def test_a_call_gives_no_more_than_was_asked_for(log: Log) -> None:
    log.write("a\nb\nc\npart")
    log.start()
    assert log.poll(2) == ["a", "b"]
    log.restart()
    assert log.poll(1) == ["c"]
    log.write("ial\n")
    assert log.poll(1) == ["partial"]


def test_a_line_past_the_limit_is_cut_and_the_next_is_whole(log: Log) -> None:
    log.write("x" * 100 + "\n" + "y" * (3 * CHUNK) + "\nshort\n")
    log.start()
    found = []
    for _ in range(6):
        found += log.follower.poll(log.now)
    assert [(line.text[:1], len(line.text), line.is_cut) for line in found] == [
        (b"x", 100, False),
        (b"y", 100, True),
        (b"s", 5, False),
    ]


def test_a_restart_within_a_long_line_cuts_it_again(log: Log) -> None:
    log.write("y" * (2 * CHUNK))
    log.start()
    assert log.poll() == []
    log.restart()
    log.write("\nnext\n")
    assert log.rest() == ["y" * 100, "next"]


def test_from_the_end_begins_after_the_last_newline(log: Log) -> None:
    log.write("old\nbegun")
    log.start(from_end=True)
    assert log.poll() == []
    log.restart()
    log.write(" later\n")
    assert log.poll() == ["begun later"]


def test_from_the_end_of_a_file_with_one_long_line_begins_at_its_start(log: Log) -> None:
    log.write("x" * (CHUNK + 10))
    log.start(from_end=True)
    assert log.follower.position() is not None
    assert log.follower.position().offset == 0  # type: ignore[union-attr]


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(log: Log) -> None:
    log.write("one\n")
    log.start()
    assert log.poll() == ["one"]
    log.write("two\n")
    old = log.rename()
    assert log.poll() == ["two"]
    log.write("four\n")
    log.now += LINGER_MS - 1
    assert log.poll() == []
    log.write("three\nunfinished", old)  # the writer has not noticed yet
    assert log.poll() == ["three"]
    log.now += LINGER_MS
    assert log.poll() == ["unfinished"]
    assert log.poll() == ["four"]


def test_a_name_that_is_gone_is_waited_for(log: Log) -> None:
    log.start()
    log.write("one\n")
    assert log.poll() == ["one"]
    old = log.rename()
    log.now += 10 * LINGER_MS
    log.write("two\n", old)
    assert log.poll() == ["two"]
    log.restart()
    assert log.poll() == []
    log.write("three\n")
    assert log.rest() == ["three"]


def test_rotations_during_a_stop_are_caught_up_in_their_order(log: Log) -> None:
    log.write("one\n")
    log.start()
    assert log.poll() == ["one"]
    log.stop()
    log.write("two\n")
    log.rename(".3")
    log.write("three\n")
    log.rename(".2")
    log.write("four\n")
    log.rename("-20260131")
    log.write("five\n")
    log.write("noise\n", log.path.with_name("app.log.old"))
    log.write("noise\n", log.path.with_name("app.log.1.gz"))
    log.start()
    assert log.rest() == ["two", "three", "four", "five"]
    log.stop()
    assert log.gaps == 0


def test_files_rotated_before_the_first_start_are_left_alone(log: Log) -> None:
    log.write("ancient\n")
    log.rename(".1")
    log.write("one\n")
    log.start()
    assert log.rest() == ["one"]
    log.rename(".0")
    log.write("two\n")
    assert log.rest() == ["two"]


def test_a_truncated_file_goes_on_in_its_copy_and_then_from_its_start(log: Log) -> None:
    log.write("one\n")
    log.start()
    assert log.poll() == ["one"]
    log.write("two\nthr")
    assert log.poll() == ["two"]
    log.write("ee\n")
    log.copy_and_truncate()
    log.write("four\n")
    assert log.rest() == ["three", "four"]
    assert log.follower.gaps == 0


def test_a_file_truncated_and_grown_past_the_position_is_noticed(log: Log) -> None:
    log.write("one\n")
    log.start()
    assert log.poll() == ["one"]
    log.copy_and_truncate()
    log.write("first of the new ones\nsecond\n")
    assert log.rest() == ["first of the new ones", "second"]


def test_copies_made_during_a_stop_are_caught_up(log: Log) -> None:
    log.write("one\n")
    log.start()
    assert log.poll() == ["one"]
    log.stop()
    log.write("two\n")
    log.copy_and_truncate(".2")
    log.write("three\n")
    log.copy_and_truncate(".1")
    log.write("four\n")
    log.start()
    assert log.rest() == ["two", "three", "four"]


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_copy_of_lines_that_nobody_had_read_is_read(log: Log, is_kept: bool) -> None:
    log.write("one\n")
    log.start()
    assert log.poll() == ["one"]
    old = log.rename(".3")
    log.write("")
    assert log.rest() == []
    log.stop()  # the new file is open, and empty
    if not is_kept:
        old.rename(old.with_name("app.log.3.gz"))
    log.write("one\ntwo\n")  # it begins like the old one
    log.copy_and_truncate(".2")
    log.write("three\n")
    log.start()
    assert log.rest() == ["one", "two", "three"]
    log.stop()
    assert log.gaps == 0


def test_a_begun_line_that_was_copied_away_is_not_mixed_with_another(log: Log) -> None:
    log.write("begun")
    log.start()
    assert log.poll() == []
    log.copy_and_truncate()
    log.write("whole\nnext\n")
    assert log.rest() == ["whole", "next"]


def test_a_last_line_that_was_taken_does_not_come_again(log: Log) -> None:
    log.write("one\n")
    log.start()
    assert log.poll() == ["one"]
    log.rename()
    log.write("two")
    assert log.rest() == []
    assert [line.text for line in log.follower.last_line()] == [b"two"]
    log.restart()
    log.write("three\n")
    assert log.rest() == ["three"]


def test_a_rest_that_is_nowhere_is_counted(log: Log) -> None:
    log.write("one\n")
    log.start()
    assert log.poll() == ["one"]
    log.write("lost\n")
    os.truncate(log.path, 0)
    log.write("new\n")
    assert log.rest() == ["new"]
    assert log.follower.gaps == 1


def test_another_file_under_the_same_inode_is_not_taken_for_the_old_one(log: Log) -> None:
    log.write("one\ntwo\n")
    log.start()
    assert log.poll() == ["one", "two"]
    log.stop()
    assert log.position is not None
    log.path.write_text("a file that is longer\n")  # in place: the inode stays
    log.start()
    assert log.rest() == ["a file that is longer"]


def test_a_folder_or_a_device_is_no_file(log: Log) -> None:
    log.path.mkdir()
    log.start()
    assert log.poll() == []
    assert log.follower.is_at_end


actions = st.lists(
    st.sampled_from(
        ["write", "partial", "rename", "copy", "poll", "one line", "restart", "wait", "rest"]
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(actions)
@example(["rename", "write", "wait", "poll", "copy", "write"])  # the new file: opened, not read
@example(["rename", "partial", "partial", "rest", "copy"])  # cut, and as long again as before
def test_whatever_happens_every_line_comes_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    log = Log(tmp_path_factory.mktemp("log"))
    log.write("first\n")
    log.start()
    written, found = "first\n", log.poll()
    for number, step in enumerate(steps):
        match step:
            case "write" | "partial":
                text = f"{number}\n" if step == "write" else f"{number},"
                log.write(text)
                written += text
            case "rename" | "copy" if log.path.exists():
                rotate = log.rename if step == "rename" else log.copy_and_truncate
                rotate(f".{1000 - number}")
                written += "" if written.endswith("\n") else "\n"  # the end of a file ends a line
            case "poll":
                found += log.poll()
            case "one line":
                found += log.poll(1)
            case "restart":
                log.restart()
            case "wait":
                log.now += LINGER_MS
            case "rest":
                found += log.rest()
    log.write("end\n")
    found += log.rest()
    log.stop()
    assert found == (written + "end\n").splitlines()
    assert log.gaps == 0
