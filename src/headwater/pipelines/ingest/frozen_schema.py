"""Finds the columns of an ingest, in a file or in the first records, and freezes them.

The note beside the checkpoint keeps them. Later runs may add fields but never change a type.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from pyspark.sql.types import DataType, StructType

from headwater.client.consumer.blocking import Consumer
from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.declaring.sql_tokens import SqlError
from headwater.pipelines.ingest.ddl_types import columns
from headwater.pipelines.ingest.json_rows import type_name
from headwater.pipelines.schemas import schema as schemas
from headwater.pipelines.schemas.infer import infer_columns

SCHEMA: Final = "schema"
"""The key of the columns (DDL) in the note."""
_SAMPLE: Final = 1000
_PATIENCE_S: Final = 10.0


class IngestError(Exception):
    """An ingest that cannot run as requested, and what to do."""


def resolve_schema(
    wanted: str,
    topic: str,
    connection: ConnectionSettings,
    frozen: str | None,
    types: Mapping[str, str],
) -> str:
    """Return the schema as DDL: from a file, from earlier runs, or inferred from the first records.

    Writes nothing: the caller notes it once the session runs and the table exists.

    Args:
        wanted: A file, or `infer`.
        topic: The topic to infer from.
        connection: Its brokers, and how to connect to them.
        frozen: The columns of earlier runs, as DDL.
        types: Types by field that replace inferred ones.
    """
    if wanted != "infer":
        if types:
            raise IngestError("--type is for --schema infer: write the type into the schema file")
        ddl = from_file(Path(wanted))
        if frozen:
            check_change(columns(frozen), columns(ddl), wanted)
        return ddl
    if not frozen:
        return inferred(topic, connection, types)
    known = {field.name: field for field in columns(frozen).fields}
    for field, kind in types.items():
        if field not in known or known[field].dataType != _type_of(field, kind):
            raise IngestError(
                f"--type {field}={kind}: the columns are {frozen} since the first run; a column "
                "keeps its type: ingest into a new table"
            )
    return frozen


def from_file(path: Path) -> str:
    """Return the columns of a JSON Schema or an Avro-style record."""
    try:
        return schemas.to_ddl(schemas.load_schema(path.read_bytes()))
    except schemas.SchemaError as problem:
        raise IngestError(f"{path}: {problem}") from problem


def inferred(topic: str, connection: ConnectionSettings, types: Mapping[str, str]) -> str:
    """Infer the columns from the first records of a topic; `types` override."""
    values = list(islice(_values(topic, connection), _SAMPLE))
    if not values:
        raise IngestError(f"{topic} has no records to infer a schema from: give --schema FILE")
    try:
        found = {column.name: column for column in infer_columns(values)}
    except schemas.SchemaError as problem:
        raise IngestError(f"{topic}: {problem}; give --schema FILE") from problem
    for field, kind in types.items():
        _type_of(field, kind)
        found[field] = replace(found.get(field, schemas.DdlColumn(field, kind)), type=kind)
    return ", ".join(column.ddl() for column in found.values())


def _type_of(field: str, kind: str) -> DataType:
    try:
        return columns(schemas.DdlColumn(field, kind).ddl()).fields[0].dataType
    except SqlError as problem:
        raise IngestError(f"--type {field}={kind}: {problem.text}") from problem


def _values(topic: str, connection: ConnectionSettings) -> Iterable[bytes]:
    """Yield committed values from the beginning of each partition up to its current end."""
    with Consumer(
        **connection.client,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        places = [(topic, number) for number in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            records = consumer.poll(_PATIENCE_S)
            if not records:
                return
            yield from (record.value for record in records if record.value is not None)


def check_change(old: StructType, new: StructType, file: str) -> None:
    """Raise IngestError if a field changes its type; added and removed fields are fine."""
    before = {field.name: field for field in old.fields}
    for field in new.fields:
        known = before.get(field.name)
        if known is not None and known.dataType != field.dataType:
            raise IngestError(
                f"{file}: field {field.name} is {type_name(field.dataType)} and was "
                f"{type_name(known.dataType)}; a column "
                "keeps its type: give the new one another name, or ingest into a new table"
            )
