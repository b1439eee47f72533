"""What a guarded writer raises when its batch fails in Java."""

import traceback

import pytest
from py4j.protocol import Py4JJavaError

from headwater.pipelines.running.guarded_writers import GuardedWriters
from headwater.pipelines.running.java_errors import JavaError

SEARCHED = "py4j.protocol.Py4JJavaError: An error occurred while calling"
"""What Spark searches for when a query is stopped, to find out whether the batch was interrupted."""
LONGEST = 600
"""Spark's search overflows the stack of the query's thread from one or two thousand characters."""
TRACE = "".join(f"\tat org.apache.spark.Frame.call(Frame.scala:{line})\n" for line in range(300))


class JavaFailure(Py4JJavaError):
    def __init__(self):
        Exception.__init__(self)

    def __str__(self):
        return (
            f"An error occurred while calling o9.parquet.\n: org.apache.spark.SparkException: {'x' * 999}\n"
            f"{TRACE}Caused by: org.apache.spark.SparkException: first\n{TRACE}"
            f"Caused by: a.B: second\n{TRACE}Caused by: java.lang.InterruptedException\n{TRACE}"
        )


def fail(batch, batch_id):
    raise JavaFailure


def fail_in_a_chain(batch, batch_id):
    try:
        fail(batch, batch_id)
    except Py4JJavaError as problem:
        raise ValueError("the table refuses the batch") from problem


@pytest.mark.parametrize("write", [fail, fail_in_a_chain])
def test_a_java_error_reaches_spark_without_its_trace(write):
    writers = GuardedWriters()
    with pytest.raises(JavaError) as raised:
        writers.guard("orders", write)(None, 0)
    text = "".join(traceback.format_exception(raised.value))
    _, found, searched = text.partition(SEARCHED)
    assert found
    assert len(searched) < LONGEST
    assert "java.lang.InterruptedException" in searched
    kept = writers.failure("orders")
    assert isinstance(kept, JavaFailure) or isinstance(kept.__cause__, JavaFailure)


def test_other_errors_pass_unchanged():
    problem = ValueError("no number")

    def refuse(batch, batch_id):
        raise problem

    with pytest.raises(ValueError, match="no number") as raised:
        GuardedWriters().guard("orders", refuse)(None, 0)
    assert raised.value is problem
