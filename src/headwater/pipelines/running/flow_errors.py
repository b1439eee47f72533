"""Reports errors of flows as one line each, with the place in the user's files if known."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headwater.errors import KafkaError
from headwater.pipelines.running.quality import ExpectationError
from headwater.pipelines.running.spark_errors import one_line, root_cause
from headwater.pipelines.tables.table import TableError

SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""What Spark raises in Python."""
# Their text is a whole sentence: the class name would only be noise.
_SELF_EXPLANATORY: Final = (KafkaError, ExpectationError, TableError)


class FlowError(Exception):
    """A flow cannot start or has failed; the message says why in one line."""

    def __init__(self, flow: str, text: str) -> None:
        super().__init__(f"{flow}: {text}")
        self.flow = flow
        self.text = text


def error_text(problem: BaseException) -> str:
    """Return an error's message as one line; for Spark's errors, that of their root cause."""
    text = str(problem)
    if isinstance(problem, SPARK_ERRORS):
        return root_cause(text)
    named = isinstance(problem, _SELF_EXPLANATORY)
    return one_line(text if named else f"{type(problem).__name__}: {text}")


@contextmanager
def as_flow_error(flow: str, place: str = "") -> Iterator[None]:
    """Turn any exception into a one-line FlowError that begins with `place`."""
    try:
        yield
    except FlowError:
        raise
    except Exception as problem:
        where = f"{place}: " if place else ""
        raise FlowError(flow, f"{where}{error_text(problem)}") from problem
