"""Rows for tables with the values at the edges of every type."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
EDGES = {
    "flag": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, 127]),
    "small": (pa.int16(), [-(1 << 15), (1 << 15) - 1]),
    "whole": (pa.int32(), [-(1 << 31), (1 << 31) - 1]),
    "long": (pa.int64(), [-(1 << 63), (1 << 63) - 1]),
    "real": (pa.float32(), [-1.5, 3.4028234663852886e38]),
    "double": (pa.float64(), [0.1, 1.7976931348623157e308, float("inf"), 5e-324]),
    "money": (pa.decimal128(12, 2), [Decimal("3.10"), Decimal("-9999999999.99")]),
    "huge": (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789")]),
    "text": (
        pa.string(),
        ["", "9c858901-8a57-4791-81fe-4c455b099bc9", "z" * 31 + "\ud7ff" * 9, "\U0010ffff" * 40],
    ),
    "raw": (pa.binary(), [b"", b"\xff" * 40]),
    "day": (pa.date32(), [date.min, date.max]),
    "at": (pa.timestamp("us", "UTC"), [FIRST.replace(tzinfo=UTC), LAST.replace(tzinfo=UTC)]),
    "local": (pa.timestamp("us"), [FIRST, LAST]),
}
ROWS = [(name, value) for name, (_, values) in EDGES.items() for value in [*values, None]]
SCHEMA = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in EDGES.items())])


def batches(size=3):
    """Every edge in a row of its own, nothing else in the row; a few rows to a file."""
    rows = [{"id": number, name: value} for number, (name, value) in enumerate(ROWS)]
    for start in range(0, len(rows), size):
        yield pa.Table.from_pylist(rows[start : start + size], SCHEMA)
