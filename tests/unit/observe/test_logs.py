import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.observe import logs

SERVER = logging.getLogger("headwater.server")
STATE_CHANGE = logging.getLogger("headwater.state-change")


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    loggers = [logging.getLogger("headwater"), logging.getLogger("asyncio")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    stream = io.StringIO()
    logs.set_up(stream=stream)
    yield stream
    for logger, state in zip(loggers, before, strict=True):
        logger.handlers[:], logger.level, logger.propagate = state


def test_an_event_is_one_line_with_level_and_logger(out: io.StringIO) -> None:
    SERVER.info("listening on %s", "127.0.0.1:9092")
    STATE_CHANGE.warning("no leader")
    lines = out.getvalue().splitlines()
    assert lines[0].endswith(" INFO server: listening on 127.0.0.1:9092")
    assert lines[1].endswith(" WARNING state-change: no leader")


def test_what_a_peer_sent_cannot_forge_lines_or_move_the_cursor(out: io.StringIO) -> None:
    SERVER.warning("client %s", "evil\n2026 INFO server: all is well\x1b[2J\u202e\r\x00")
    assert out.getvalue().count("\n") == 1
    assert "\x1b" not in out.getvalue()
    assert r"evil\n2026" in out.getvalue()
    assert r"\x1b[2J\u202e\r\x00" in out.getvalue()


def test_what_the_event_loop_reports_is_one_line_too(out: io.StringIO) -> None:
    logging.getLogger("asyncio").error("fatal error\nprotocol: x")
    assert out.getvalue().endswith("ERROR asyncio: fatal error\\nprotocol: x\n")


def test_a_long_text_is_cut(out: io.StringIO) -> None:
    SERVER.warning("x" * 1_000_000)
    assert len(out.getvalue()) < logs.MAX_LINE + 100
    assert out.getvalue().endswith("...[cut]\n")


def test_words_of_any_language_stay_readable() -> None:
    assert logs.printable("топик 話題 é") == "топик 話題 é"


def test_a_traceback_is_kept_and_indented(out: io.StringIO) -> None:
    try:
        ["\x1b"].index("")
    except ValueError as raised:
        raised.args = ("bad\x1b",)
        SERVER.exception("it broke")
    first, *rest = out.getvalue().splitlines()
    assert first.endswith("ERROR server: it broke")
    assert rest[-1] == r"    ValueError: bad\x1b"


def test_json_lines_can_be_read_back() -> None:
    stream = io.StringIO()
    record = logging.makeLogRecord(
        {"name": "headwater.controller", "levelname": "INFO", "msg": 'say "hi"\n'}
    )
    stream.write(logs.JsonFormatter().format(record))
    event = json.loads(stream.getvalue())
    assert event["logger"] == "controller"
    assert event["message"] == 'say "hi"\\n'


@pytest.mark.usefixtures("out")
def test_each_log_has_a_file_of_its_own(tmp_path: Path) -> None:
    logs.add_files(str(tmp_path / "logs"))
    SERVER.info("a server event")
    logging.getLogger("headwater.controller.controller_loop").info("a controller event")
    STATE_CHANGE.info("a state change")
    logging.getLogger("asyncio").error("an event of the loop")
    close_files()
    found = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert set(found) == {"server.log", "controller.log", "state-change.log"}
    assert "a server event" in found["server.log"]
    assert "an event of the loop" in found["server.log"]
    assert found["controller.log"].count("\n") == found["state-change.log"].count("\n") == 1
    assert "a controller event" in found["controller.log"]


def close_files() -> None:
    for handler in logging.getLogger("headwater").handlers:
        handler.close()


@pytest.mark.usefixtures("out")
def test_log_files_are_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 2_000)
    logs.add_files(str(tmp_path))
    for number in range(500):
        SERVER.info("event %d", number)
    close_files()
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["server.log", *[f"server.log.{n}" for n in range(1, logs.FILES_KEPT + 1)]]
    assert "event 499" in (tmp_path / "server.log").read_text()
