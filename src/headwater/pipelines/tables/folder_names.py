"""Checks which partition values can name a folder."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf

from headwater.pipelines.tables.staging import NULL_FOLDER

if TYPE_CHECKING:
    from pyspark.sql import Column

_LONGEST_NAME: Final = 255
"""The most bytes of a file name on common file systems."""
_ESCAPED: Final = r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]"""
"""Characters that Spark escapes with three characters in the name of a folder."""


def is_null_folder(value: "Column") -> "Column":
    """Return whether a string would be read back as NULL."""
    return value == NULL_FOLDER


def is_too_long(value: "Column", column: str) -> "Column":
    """Return whether `column=value` is too long for a folder's name."""
    escaped = sf.regexp_replace(value, _ESCAPED, "%00")
    return sf.octet_length(escaped) + len(f"{column}=".encode()) > _LONGEST_NAME


def fits_folder(column: str) -> str:
    """Return SQL that is true if a column's value can name a partition's folder; NULL can."""
    text = f"CAST(`{column.replace('`', '``')}` AS STRING)"
    pattern = _ESCAPED.replace("\\", "\\\\").replace("'", "\\'")
    size = f"octet_length(regexp_replace({text}, '{pattern}', '%00'))"
    room = _LONGEST_NAME - len(f"{column}=".encode())
    return f"coalesce({text} <> '{NULL_FOLDER}' AND {size} <= {room}, true)"
