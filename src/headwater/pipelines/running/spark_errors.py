"""Finds the message that matters in Spark's long traces.

A failed query wraps its cause in Python, Py4J and Java traces of hundreds of lines. The innermost
message is found by the formats that Spark 4 writes. Pure; never raises: a text of unknown format is
returned as one line.
"""

import re
from typing import Final

_LONGEST: Final = 500
_TRACEBACK: Final = "Traceback (most recent call last):"
_ERROR_LINE: Final = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w*): ?(.*)$")
_STREAM_FAILED: Final = re.compile(r"terminated with exception: ?")
_CAUSED_BY: Final = re.compile(r"\n\s*Caused by: ")
_TASK_FAILED: Final = re.compile(r"^Job aborted due to stage failure.*?\): ?", re.DOTALL)
_CALLING: Final = re.compile(r"^An error occurred while calling \S+\s*: ")
_CLASS_ALONE: Final = re.compile(r"(?:[a-z]\w*\.)+[A-Z][\w$]*")
_JAVA_CLASS: Final = re.compile(r"^(?:[a-z]\w*\.)+[A-Z][\w$]*: ?")
_CONDITION: Final = re.compile(r"^\[[A-Z][A-Z0-9_.]+\] ?")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}\.?")
_PLAN: Final = re.compile(r";\s*\n['~]?[A-Z]\w*[^\n]*(?:\n[ :|]*\+- .*)?\Z", re.DOTALL)
"""The query's plan, which Spark appends to the message."""
_FRAME: Final = re.compile(r'^  File "([^"<]+)", line (\d+), in (\S+)', re.MULTILINE)
_PACKAGE: Final = __file__.replace("\\", "/").rpartition("/pipelines/")[0] + "/"
_NOT_OWN: Final = (_PACKAGE, "site-packages/", "/pyspark/", "/lib/python")
_ENDS: Final = ("\n\tat ", "\n=== Streaming Query ===", "\nDriver stacktrace", "\nJVM stacktrace")


def root_cause(text: str) -> str:
    """Return the innermost message of a Spark error as one line."""
    return one_line(_from_python(text) or _from_java(text))


def one_line(text: str, longest: int = _LONGEST) -> str:
    """Return the text as one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _from_python(text: str) -> str:
    """Return the error below the last Python traceback; it may have several lines."""
    _, found, trace = text.rpartition(_TRACEBACK)
    if not found:
        return ""
    lines = trace.splitlines()
    for number, line in enumerate(lines):
        match = _ERROR_LINE.match(line)
        if match:
            name, message = match.groups()
            text = f"{_class_prefix(name)}{message} {_more(lines[number + 1 :])}".strip()
            return f"{text}{_place(trace)}" if _class_prefix(name) else text
    return ""


def _place(trace: str) -> str:
    """Return the line of the user's own code, such as a UDF, if it raised the error."""
    for path, line, function in reversed(_FRAME.findall(trace)):
        place = path.replace("\\", "/")
        if not any(part in place for part in _NOT_OWN):
            return f" ({place.rpartition('/')[2]}:{line} in {function})"
    return ""


def _class_prefix(name: str) -> str:
    """Return the class name as a prefix, unless the error's text is a whole sentence."""
    return "" if name in {"KafkaError", "RuntimeError", "PySparkRuntimeError"} else f"{name}: "


def _more(lines: list[str]) -> str:
    """Return the rest of a multi-line message, up to the Java trace."""
    rest = []
    for line in lines:
        if not line.strip() or line.startswith(("\tat ", "\t", "===")):
            break
        rest.append(line)
    return _STATE.sub("", " ".join(rest))


def _from_java(text: str) -> str:
    """Return the message of the innermost exception that has one."""
    causes = _CAUSED_BY.split(_STREAM_FAILED.split(text)[-1])
    messages = [_message(cause) for cause in reversed(causes)]
    told = (message for message in messages if message and not _CLASS_ALONE.fullmatch(message))
    return next(told, messages[0]) or "Spark gave no reason"


def _message(cause: str) -> str:
    for end in _ENDS:
        cause = cause.split(end, 1)[0]
    cause = _PLAN.sub("", cause)
    cause = _CALLING.sub("", cause.strip())
    cause = _JAVA_CLASS.sub("", cause)
    cause = _TASK_FAILED.sub("", cause)
    cause = _JAVA_CLASS.sub("", cause)
    cause = _CONDITION.sub("", cause)
    return _STATE.sub("", cause).strip()
