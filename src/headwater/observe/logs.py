"""Log lines that people can act on: one event, one line, whatever a peer has put into it.

Three loggers have names that operators know from Kafka: server, controller and state-change.
Events that a peer can cause at will go through `RateLimitedLog` instead.
"""

import json
import logging
import logging.handlers
import os
import sys
from typing import TextIO

MAX_LINE = 4096
FILE_BYTES = 64 * 1024 * 1024
FILES_KEPT = 5
"""A log file is rotated at FILE_BYTES; FILES_KEPT older ones stay."""
_ROOT = "headwater"
_EVENT_LOOP = "asyncio"
_CUT = "...[cut]"


def set_up(level: str = "INFO", *, as_json: bool = False, stream: TextIO | None = None) -> None:
    """Send the broker's log to `stream` (stderr), as lines for people or as JSON objects."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else PlainFormatter())
    for name in (_ROOT, _EVENT_LOOP):  # the loop reports what no callback caught
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False


def add_files(directory: str, *, as_json: bool = False) -> None:
    """Write the logs to server.log, controller.log and state-change.log as well, with rotation.

    server.log has what belongs to neither of the others.
    """
    os.makedirs(directory, exist_ok=True)
    for name, belongs in (
        ("server", lambda record: not _belongs(record, _CONTROLLER, _STATE_CHANGE)),
        ("controller", lambda record: _belongs(record, _CONTROLLER)),
        ("state-change", lambda record: _belongs(record, _STATE_CHANGE)),
    ):
        handler = logging.handlers.RotatingFileHandler(
            os.path.join(directory, f"{name}.log"),
            maxBytes=FILE_BYTES,
            backupCount=FILES_KEPT,
            encoding="utf-8",
            delay=True,
        )
        handler.setFormatter(JsonFormatter() if as_json else PlainFormatter())
        handler.addFilter(belongs)
        for owner in (_ROOT, _EVENT_LOOP):
            logging.getLogger(owner).addHandler(handler)


_CONTROLLER = "headwater.controller"
_STATE_CHANGE = "headwater.state-change"


def _belongs(record: logging.LogRecord, *names: str) -> bool:
    return any(record.name == name or record.name.startswith(f"{name}.") for name in names)


def printable(text: str, limit: int = MAX_LINE) -> str:
    """`text` on one line, without control characters and not longer than `limit`."""
    if len(text) > limit:
        text = text[: limit - len(_CUT)] + _CUT
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class PlainFormatter(logging.Formatter):
    """`2026-01-31 12:00:00,123 WARNING server: what happened`; a traceback follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """The event as text."""
        line = f"{self.formatTime(record)} {record.levelname} {_name(record)}: {_message(record)}"
        return "\n    ".join([line, *_traceback(self, record)])


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for machines that collect logs."""

    def format(self, record: logging.LogRecord) -> str:
        """The event as a JSON object."""
        event = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": _name(record),
            "message": _message(record),
        }
        trace = _traceback(self, record)
        if trace:
            event["traceback"] = "\n".join(trace)
        return json.dumps(event)


def _name(record: logging.LogRecord) -> str:
    return record.name.removeprefix(_ROOT + ".")


def _message(record: logging.LogRecord) -> str:
    return printable(record.getMessage())


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    if not record.exc_info:
        return []
    return [printable(line) for line in formatter.formatException(record.exc_info).splitlines()]
