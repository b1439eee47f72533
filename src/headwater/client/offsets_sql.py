"""Stores offsets in the user's own database, in one transaction with the results.

After any failure, either both results and offsets are stored or neither: each record counts exactly
once. A consumer that was presumed dead and returns cannot overwrite its successor: its records must
begin at the offsets in the table.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headwater.client.consumer.listener import RebalanceListener
from headwater.client.consumer.record import ConsumerRecord
from headwater.client.errors import ClientError
from headwater.errors import E
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater.client.consumer.blocking import Consumer
    from headwater.client.consumer.consumer import Consumer as AsyncConsumer

Cursor: TypeAlias = Any
"""A DB-API cursor."""


class SqlConnection(Protocol):
    """A DB-API connection, as sqlite3 and psycopg make them and SQLAlchemy's `raw_connection()`."""

    def cursor(self) -> Cursor:
        """A cursor; statements open a transaction by themselves."""

    def commit(self) -> object:
        """Commit the transaction."""

    def rollback(self) -> object:
        """Undo the transaction."""


class StaleOffsetsError(ClientError):
    """Another consumer is ahead in the same partition; nothing was written."""

    CODE = E.ILLEGAL_GENERATION

    def __init__(self, message: str | None = None, partition: TopicPartition | None = None) -> None:
        super().__init__(message)
        self.partition = partition


class SkippedRecordsError(ClientError):
    """The records would skip those of a rolled back transaction; nothing was written."""

    CODE = E.INVALID_REQUEST


Spans: TypeAlias = dict[TopicPartition, tuple[int, int]]
"""The first offset and the one after the last, by partition."""

_PLACEHOLDERS: dict[str, Callable[[int], str]] = {
    "qmark": lambda number: "?",
    "format": lambda number: "%s",
    "pyformat": lambda number: "%s",
    "numeric": lambda number: f":{number}",
}


class SqlOffsets:
    """The offsets of one group in one table.

    ```python
    offsets = SqlOffsets(sqlite3.connect("results.db"), group="billing")
    with Consumer(bootstrap_servers=..., group_id="billing", enable_auto_commit=False) as consumer:
        consumer.subscribe(["orders"], listener=offsets.listener(consumer))
        while True:
            records = consumer.poll()
            with offsets.transaction(records) as cursor:
                for record in records:
                    cursor.execute("INSERT INTO results VALUES (?, ?)", (record.key, record.value))
    ```

    Args:
        connection: A DB-API connection that no other code uses.
        group: The name of the group; usually the consumer's group_id.
        table: The table for the offsets; created on first use if it does not exist.
        paramstyle: The driver's paramstyle, if it cannot be determined from the connection.
    """

    def __init__(
        self,
        connection: SqlConnection,
        group: str,
        *,
        table: str = "headwater_offsets",
        paramstyle: str | None = None,
    ) -> None:
        if not table.replace("_", "").replace(".", "").isalnum():
            raise ValueError(f"{table!r} cannot be the name of a table")
        self._connection = connection
        self._group = group
        self._table = table
        style = paramstyle or _paramstyle(connection)
        if style not in _PLACEHOLDERS:
            raise ValueError(f"paramstyle is one of {', '.join(_PLACEHOLDERS)}, not {style!r}")
        self._mark = _PLACEHOLDERS[style]
        self._consumer: Consumer | AsyncConsumer | None = None
        """The consumer of the records; it seeks back when a transaction fails."""
        self._undone: dict[TopicPartition, int] = {}
        """Where to continue in each partition whose transaction failed."""
        _refuse_autocommit(connection)
        self._create()

    def positions(
        self, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        """Return the next offset of each partition in the table."""
        sql = f"SELECT topic, partition_id, next_offset FROM {self._table} WHERE group_id = {{}}"
        cursor = self._connection.cursor()
        try:
            cursor.execute(self._filled(sql), (self._group,))
            rows = {TopicPartition(row[0], int(row[1])): int(row[2]) for row in cursor.fetchall()}
        finally:
            cursor.close()
            self._connection.rollback()  # a read must not hold a transaction open
        return {TopicPartition(*name): rows[name] for name in partitions if name in rows}

    def seek(
        self, consumer: "Consumer | AsyncConsumer", partitions: Iterable[TopicPartition]
    ) -> None:
        """Move `consumer` to the offsets in the table; other partitions keep their positions."""
        self._consumer = consumer
        for partition, offset in self.positions(partitions).items():
            consumer.seek(partition, offset)
            self._undone.pop(partition, None)

    def listener(self, consumer: "Consumer | AsyncConsumer") -> RebalanceListener:
        """Return a listener for `subscribe`: new partitions start at the offsets in the table."""
        self._consumer = consumer
        return _SeekToTable(self, consumer)

    @contextmanager
    def transaction(self, records: Iterable[ConsumerRecord]) -> Iterator[Cursor]:
        """Run the block and store the offsets of `records` in one database transaction.

        If the block raises, the transaction is rolled back and the consumer seeks back to the first
        of `records`: the next poll returns them again. Raises StaleOffsetsError, and writes
        nothing, if another consumer is ahead.
        """
        spans = _spans(records)
        _refuse_autocommit(self._connection)
        self._check_undone(spans)
        cursor = self._connection.cursor()
        try:
            for partition, (first, after) in spans.items():
                self._advance(cursor, partition, first, after)
            yield cursor
            self._connection.commit()
        except BaseException as problem:
            if isinstance(problem, StaleOffsetsError):
                spans = {
                    n: s for n, s in spans.items() if n != problem.partition
                }  # another consumer has processed those
            self._undone |= {partition: first for partition, (first, _) in spans.items()}
            try:
                self._connection.rollback()
            finally:
                self._go_back(spans)
            raise
        finally:
            cursor.close()

    def _check_undone(self, spans: "Spans") -> None:
        """Refuse to skip records whose transaction failed."""
        for partition, (first, _) in spans.items():
            undone = self._undone.get(partition)
            if undone is not None and first > undone:
                raise SkippedRecordsError(
                    f"{partition}: the transaction with offset {undone} was rolled back, and these "
                    f"records begin at {first}: seek() the consumer back to {undone}, or pass "
                    "listener(consumer) to subscribe(), which does this for you"
                )
        for partition in spans:
            self._undone.pop(partition, None)

    def _go_back(self, spans: "Spans") -> None:
        consumer = self._consumer
        if consumer is None:
            return
        for partition, (first, _) in spans.items():
            if partition in consumer.assignment():
                consumer.seek(partition, first)
            self._undone.pop(
                partition, None
            )  # the next owner of the partition starts from the table

    def _advance(self, cursor: Cursor, partition: TopicPartition, first: int, after: int) -> None:
        """Advance one offset, which also locks its row until the end of the transaction."""
        moved = (
            f"UPDATE {self._table} SET next_offset = {{}} WHERE group_id = {{}} AND topic = {{}} "
            "AND partition_id = {} AND next_offset <= {}"
        )
        cursor.execute(
            self._filled(moved), (after, self._group, partition.topic, partition.partition, first)
        )
        if cursor.rowcount == 1:
            return
        known = (
            f"SELECT next_offset FROM {self._table} WHERE group_id = {{}} AND topic = {{}} "
            "AND partition_id = {}"
        )
        cursor.execute(self._filled(known), (self._group, partition.topic, partition.partition))
        row = cursor.fetchone()
        if row is not None:
            raise StaleOffsetsError(
                f"{partition}: the table is at offset {row[0]} already, and these records begin at "
                f"{first}: another consumer has done them. Seek to {row[0]} and go on, or stop",
                partition,
            )
        added = f"INSERT INTO {self._table} VALUES ({{}}, {{}}, {{}}, {{}})"
        cursor.execute(
            self._filled(added), (self._group, partition.topic, partition.partition, after)
        )

    def _create(self) -> None:
        cursor = self._connection.cursor()
        try:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} (group_id VARCHAR(255) NOT NULL, "
                "topic VARCHAR(255) NOT NULL, partition_id INTEGER NOT NULL, "
                "next_offset BIGINT NOT NULL, PRIMARY KEY (group_id, topic, partition_id))"
            )
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            cursor.close()

    def _filled(self, sql: str) -> str:
        """Fill in the driver's placeholders."""
        marks = [self._mark(number) for number in range(1, sql.count("{}") + 1)]
        return sql.format(*marks)


class _SeekToTable(RebalanceListener):
    def __init__(self, offsets: SqlOffsets, consumer: "Consumer | AsyncConsumer") -> None:
        self._offsets = offsets
        self._consumer = consumer

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        self._offsets.seek(self._consumer, partitions)


def _spans(records: Iterable[ConsumerRecord]) -> Spans:
    """Return the spans of `records`, in a fixed order."""
    spans: Spans = {}
    for record in records:
        partition = record.topic_partition
        first, after = spans.get(partition, (record.offset, record.offset))
        spans[partition] = (min(first, record.offset), max(after, record.offset + 1))
    return dict(sorted(spans.items()))  # two consumers lock rows in the same order: no deadlock


def _paramstyle(connection: SqlConnection) -> str:
    """Return the paramstyle of the connection's module."""
    for kind in type(connection).__mro__:
        module = sys.modules.get(kind.__module__.split(".")[0])
        style = getattr(module, "paramstyle", None)
        if isinstance(style, str):
            return style
    inner = getattr(connection, "dbapi_connection", None)
    if inner is not None:
        return _paramstyle(inner)
    raise ValueError("say how the driver marks parameters: paramstyle='qmark', 'format', ...")


def _refuse_autocommit(connection: SqlConnection) -> None:
    """Raise ValueError for a connection in autocommit mode."""
    if _autocommits(getattr(connection, "dbapi_connection", None) or connection):
        raise ValueError(
            "the database connection is in autocommit mode, so results and offsets would not be "
            "stored together: open it with autocommit=False (sqlite3: without isolation_level=None)"
        )


def _autocommits(connection: Any) -> bool:
    flag = getattr(connection, "autocommit", None)
    if isinstance(flag, bool):
        return flag
    ask = getattr(connection, "get_autocommit", None)
    if callable(ask):
        return bool(ask())
    sqlite = type(connection).__mro__[-2].__module__ == "sqlite3"
    return sqlite and connection.isolation_level is None
