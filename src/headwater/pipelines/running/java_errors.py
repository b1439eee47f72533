"""Shortens Java errors that leave a `foreachBatch`, so that stopping a query stays quiet.

When a query is stopped within a batch, Spark searches the text of the error for the names of
interruptions, with a regular expression that recurses for each character. Beyond one or two thousand
characters, less than any Java trace has, the thread of the query ends with a StackOverflowError, and
the JVM prints a thousand lines.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

_MOST_LINES: Final = 4
_LONGEST_LINE: Final = 100
_FRAME: Final = "\t"
_SEARCHED: Final = f"{Py4JJavaError.__module__}.{Py4JJavaError.__name__}"


class JavaError(Exception):
    """A batch failed in Java; the message names the exceptions without their frames."""


@contextmanager
def short_java_errors() -> Iterator[None]:
    """Raise JavaError in place of an error that Java caused; others pass unchanged."""
    try:
        yield
    except Exception as problem:
        java = _java_cause(problem)
        if java is None:
            raise
        raise JavaError(summary(str(java))) from None


def summary(text: str) -> str:
    """Return the first and last exceptions of a trace, with what Spark searches for."""
    lines = [line[:_LONGEST_LINE] for line in text.splitlines() if not line.startswith(_FRAME)]
    if len(lines) > _MOST_LINES:
        half = _MOST_LINES // 2
        lines = [*lines[:half], *lines[-half:]]
    return f"{_SEARCHED}: " + "\n".join(lines)


def _java_cause(problem: BaseException) -> Py4JJavaError | None:
    """Return the Java error that the problem is, or that its traceback would show."""
    chain: BaseException | None = problem
    while chain is not None and not isinstance(chain, Py4JJavaError):
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    return chain
