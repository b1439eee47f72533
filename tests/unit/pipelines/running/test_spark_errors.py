"""The one line out of Spark's traces."""

from headwater.pipelines.running.spark_errors import one_line, root_cause

RAISED = """\
[STREAM_FAILED] Query [id = 7c3aa925, runId = b97b504e] terminated with exception: \
[USER_RAISED_EXCEPTION] boom SQLSTATE: P0001 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 7c3aa925, runId = b97b504e]
Current State: ACTIVE
"""

PYTHON = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Error while calling
Traceback (most recent call last):
  File "worker.py", line 10, in main
    process()
  File "source.py", line 42, in read
    raise KafkaError(...)
headwater.errors.KafkaError: events-0: offset 12 is gone: retention has removed it
 SQLSTATE: 38000
=== Streaming Query ===
"""

TASK = """\
Job aborted due to stage failure: Task 0 in stage 37.0 failed 1 times, most recent failure: \
Lost task 0.0 in stage 37.0 (TID 43) (127.0.0.1 executor driver): \
org.apache.spark.SparkRuntimeException: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.divideByZeroError(Query.scala:203)
Driver stacktrace:
"""


def test_a_failed_query_tells_its_cause_and_no_ids():
    assert root_cause(RAISED) == "boom"


def test_the_error_below_a_python_trace_is_the_cause():
    assert root_cause(PYTHON) == "events-0: offset 12 is gone: retention has removed it"


def test_of_several_python_traces_the_last_counts():
    text = PYTHON.replace("=== Streaming Query ===", "") + (
        '\nTraceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no number\n'
    )
    assert root_cause(text) == "ValueError: no number (a.py:1 in f)"


def test_an_error_of_a_udf_names_the_last_line_of_the_users_own_code():
    text = (
        "An exception was thrown from the Python worker.\n"
        "Traceback (most recent call last):\n"
        '  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 9, in main\n'
        '  File "/shop/tables.py", line 21, in price\n'
        '  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads\n'
        "KeyError: 'amount'\n\n\tat org.apache.spark.Thing\n"
    )
    assert root_cause(text) == "KeyError: 'amount' (tables.py:21 in price)"


def test_the_plan_of_a_query_is_left_out():
    text = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `prize` cannot be resolved. Did you "
        "mean one of the following? [`price`]. SQLSTATE: 42703; line 1 pos 7;\n"
        "'Project ['prize]\n+- SubqueryAlias bronze\n   +- Relation [price#1] parquet\n"
    )
    assert root_cause(text) == (
        "A column with name `prize` cannot be resolved. Did you mean one of the following? "
        "[`price`].; line 1 pos 7"
    )
    sort = (
        "Sorting is not supported on streaming DataFrames.;\n~Sort [id#1L ASC], true\n+- ~Project\n"
    )
    assert root_cause(sort) == "Sorting is not supported on streaming DataFrames."
    assert root_cause("expected one of a;\nb") == "expected one of a; b"


def test_a_failed_task_tells_its_message():
    assert root_cause(TASK) == "Division by zero."


def test_a_text_of_no_known_shape_is_one_line_of_bounded_length():
    assert root_cause("something\nodd") == "something odd"
    assert len(root_cause("x" * 5000)) == 500
    assert one_line("a\n  b") == "a b"


def test_nothing_at_all_says_so():
    assert root_cause("") == "Spark gave no reason"


def test_the_last_cause_of_a_java_trace_is_told():
    text = (
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: "
        "Lost task 0.0 in stage 3.0 (TID 4) (127.0.0.1 executor driver): "
        "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to x.\n"
        "\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailed(Query.scala:1)\n"
        "Caused by: java.io.IOException: Mkdirs failed to create file:/lake/t/k=xxx\n"
        "\tat org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:515)\n"
        "\t... 12 more\n\nDriver stacktrace:\n"
    )
    assert root_cause(text) == "Mkdirs failed to create file:/lake/t/k=xxx"


CRASHED = """\
An error occurred while calling o96.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 \
times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (127.0.0.1 executor driver): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.applyOrElse(PythonRunner.scala:9)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
"""


def test_an_exception_without_a_message_is_not_the_cause():
    assert root_cause(CRASHED) == "Python worker exited unexpectedly (crashed)"
    assert root_cause("x.Failed: \nCaused by: java.io.EOFException") == "java.io.EOFException"


def test_the_java_method_that_python_called_is_left_out():
    text = "An error occurred while calling o1.parquet.\n: java.io.IOException: No space left\n\tat a.B"
    assert root_cause(text) == "No space left"
