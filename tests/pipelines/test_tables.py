"""Spark into tables and back: types, partitions, columns that come later, streams of new rows."""

from collections import defaultdict
from functools import reduce

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headwater.pipelines.tables.folder_names import fits_folder, is_null_folder, is_too_long
from headwater.pipelines.tables.reading import read_table
from headwater.pipelines.tables.staging import NULL_FOLDER
from headwater.pipelines.tables.table import TableError, open_table
from headwater.pipelines.tables.writing import TableSink, overwrite, write_stream
from tests.unit.pipelines.edges import ROWS, batches
from tests.unit.pipelines.lake import append

KINDS = ("delta", "iceberg", "parquet")

EVERYTHING = """
    select id, cast(id as string) text, cast(id as tinyint) tiny, cast(id as smallint) small,
        cast(id as int) whole, cast(id as float) single, cast(id as double) real, id % 2 = 0 even,
        timestamp_micros(id * 1000000 + 123456) at, cast(timestamp_micros(id) as timestamp_ntz) local,
        cast(id as decimal(20, 3)) price, named_struct('a', id, 'b', array(1, null)) inner,
        map('k', id) pairs, cast('ab' as binary) raw, if(id % 2 = 0, null, id) gap,
        date_add(date'2024-01-01', cast(id % 2 as int)) day,
        case id when 1 then '__HIVE_DEFAULT_PARTITION__' when 3 then null when 4 then 'ü%:/= x'
            when 5 then '' else 'plain' end sort
    from range(6)
"""
IN_THE_FOLDER_OF_NULL = (1, 3, 5)


@pytest.fixture(params=KINDS)
def target(request, tmp_path):
    return f"{request.param}:{tmp_path}/a table [1] {{a,b}} 100%/table"


def sorted_rows(frame):
    return [row.asDict(recursive=True) for row in frame.orderBy("id").collect()]


def follow(spark, target, checkpoint, **options):
    """Runs a stream over the table to its end; gives the ids of each batch that had rows."""
    seen = []

    def note(batch, _):
        if ids := sorted(row.id for row in batch.select("id").collect()):
            seen.append(ids)

    reader = spark.readStream.format("headwater-table").options(path=target, **options)
    query = (
        reader.load()
        .writeStream.foreachBatch(note)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return seen


def test_every_type_and_partition_reads_back_by_the_jvm_and_by_the_source(spark, target):
    frame = spark.sql(EVERYTHING)
    overwrite(frame, target, partition_by=["day", "sort"])
    wanted = sorted_rows(frame)
    for number in IN_THE_FOLDER_OF_NULL:
        wanted[number]["sort"] = None
    assert sorted_rows(read_table(spark, target)) == wanted
    source = spark.read.format("headwater-table").option("path", target).load()
    assert source.columns == frame.columns
    assert sorted_rows(source) == wanted
    one_day = read_table(spark, target).where("day = date'2024-01-01'")
    assert one_day.count() == 3
    assert "PartitionFilters: [isnotnull(day" in one_day._jdf.queryExecution().toString()
    open_table(target).compact(1 << 20)
    assert sorted_rows(read_table(spark, target)) == wanted
    if target.startswith("iceberg:"):
        table = StaticTable.from_metadata(target.removeprefix("iceberg:"))
        found = table.scan(row_filter="sort is null").to_arrow()
        assert sorted(found["id"].to_pylist()) == [*IN_THE_FOLDER_OF_NULL]


def test_spark_finds_each_row_by_its_value_at_the_edges_of_every_type(spark, target):
    for number, batch in enumerate(batches(12)):
        append(target, batch, number)
    open_table(target).compact(1 << 20)
    rows, found = read_table(spark, target), []
    for number, (name, value) in enumerate(ROWS):
        plain = value if isinstance(value, str | bytes) else str(value)
        wanted = sf.lit(plain).cast(rows.schema[name].dataType)
        is_it = sf.col(name).isNull() if value is None else sf.col(name) == wanted
        found.append(rows.where(is_it).select(sf.lit(number).alias("row"), "id"))
    seen = defaultdict(set)
    for row in reduce(DataFrame.union, found).collect():
        seen[row.row].add(row.id)
    everyone = set(range(len(ROWS)))
    assert dict(seen) == {
        number: {number} if value is not None else everyone - with_value(name)
        for number, (name, value) in enumerate(ROWS)
    }


def with_value(column):
    """The ids of the rows that have a value in a column."""
    return {id for id, (name, value) in enumerate(ROWS) if name == column and value is not None}


def test_a_sink_writes_each_batch_once_adds_columns_and_refuses_changed_ones(spark, target):
    sink = TableSink(target, app="test")
    frame = spark.range(3)
    sink(frame.where("id < 0"), 0)
    assert read_table(spark, target).count() == 0
    for _ in range(2):
        sink(frame, 1)
    sink(frame.selectExpr("id", "1 AS more", "named_struct('x', 1) AS s"), 2)
    with pytest.raises(TableError, match="Cast the column to int64 in the query"):
        sink(frame.select(sf.col("id").cast("string")), 3)
    rows = read_table(spark, target)
    assert sorted(row.more or 0 for row in rows.collect()) == [0, 0, 0, 1, 1, 1]
    assert open_table(target).last_batch("test") == 2
    wide = "2" if target.startswith("delta:") else "1L << 40"
    grown = frame.limit(1).selectExpr("7L AS id", f"{wide} AS more", "named_struct('y', 'b') AS s")
    sink(grown, 3)
    sink(frame.limit(1).selectExpr("8L AS id", "CAST(3 AS TINYINT) AS more"), 4)
    found = {row.id: row for row in read_table(spark, target).where("more IS NOT NULL").collect()}
    assert [found[id].more for id in (1, 7, 8)] == [1, 2 if wide == "2" else 1 << 40, 3]
    assert [found[id].s for id in (1, 7, 8)] == [(1, None), (None, "b"), None]


def test_a_stream_of_new_rows_knows_compactions_from_data_and_stops_at_a_replacement(
    spark, target, tmp_path
):
    sink = TableSink(target, app="test", compact_after_files=0)
    for number in range(3):
        sink(spark.range(number, number + 1), number)
    checkpoint = tmp_path / "checkpoint"
    assert follow(spark, target, checkpoint, maxFilesPerTrigger=1) == [[0], [1], [2]]
    open_table(target).compact(1 << 20)
    sink(spark.range(3, 4), 3)
    assert follow(spark, target, checkpoint, maxFilesPerTrigger=1) == [[3]]
    overwrite(spark.range(9, 10), target)
    with pytest.raises(Exception, match="a stream can only follow appends"):
        follow(spark, target, checkpoint)
    assert follow(spark, target, tmp_path / "again") == [[9]]


def test_small_files_of_a_stream_are_merged_on_the_way(spark, target, tmp_path):
    for number in range(5):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"id": {number}}}')
    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
    query = write_stream(
        stream.json(str(tmp_path / "in")),
        target,
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
        compact_after_files=3,
    )
    query.awaitTermination()
    assert sorted(row.id for row in read_table(spark, target).collect()) == [0, 1, 2, 3, 4]
    assert len(open_table(target).files()) == 2
    assert open_table(target).last_batch(query.id) == 4


def test_a_batch_that_is_in_the_table_still_settles_the_state_of_its_query(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 1}')
    counts = spark.readStream.schema("id long").json(str(tmp_path / "in")).groupBy("id").count()
    target = f"parquet:{tmp_path}/table"
    TableSink(target, app="counts")(spark.sql("select 1L id, 1L count"), 0)
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(TableSink(target, app="counts"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert read_table(spark, target).count() == 1


def test_a_partition_value_that_is_too_long_for_a_folder_is_told_with_its_column(spark, tmp_path):
    sink = TableSink(f"delta:{tmp_path}/long", app="a", partition_by=["day"])
    rows = spark.createDataFrame([(1, "x" * 300)], "id INT, day STRING")
    with pytest.raises(TableError, match=r"partition columns \(day\) is too long to name a folder"):
        sink(rows, 0)


def test_sql_and_columns_agree_on_what_can_name_a_folder(spark):
    values = ["ok", None, "", "/" * 83, "/" * 84, "x" * 251, "x" * 252, "\u00fc" * 126, NULL_FOLDER]
    values += ["'" * 84, "\\" * 84, "]" * 84, "\x01" * 84]
    rows = spark.createDataFrame([(value,) for value in values], "day STRING").select(
        sf.expr(fits_folder("day")).alias("fits"),
        sf.coalesce(
            ~(is_null_folder(sf.col("day")) | is_too_long(sf.col("day"), "day")), sf.lit(True)
        ).alias("expected"),
    )
    found = rows.collect()
    assert [row["fits"] for row in found] == [row["expected"] for row in found]
    assert [row["fits"] for row in found].count(False) == 8


def test_options_of_the_source_are_checked(spark, tmp_path):
    target = f"parquet:{tmp_path}/table"
    TableSink(target, app="test")(spark.range(1), 0)
    with pytest.raises(Exception, match="did you mean maxFilesPerTrigger"):
        follow(spark, target, tmp_path / "checkpoint", maxFilesPerTriger=1)
