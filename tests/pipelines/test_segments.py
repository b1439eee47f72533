"""Segment files of a real broker, archived and read by Spark."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException

import headwater
from headwater.cli.app import command
from headwater.pipelines.segments.archive import archive
from headwater.pipelines.segments.archive_sources import sources_in
from headwater.pipelines.segments.audit import audit, key_statistics, latest_per_key
from headwater.pipelines.segments.replay import Replay, replay
from headwater.records.batch import batches
from headwater.testing import Broker
from tests.unit.pipelines.segment_files import flip

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START = 1_700_000_000_000
RECORDS = 400


@pytest.fixture(scope="module")
def sent():
    """Partition, key, value, headers and timestamp of every record, in the order of sending."""
    return [
        (
            number % 2,
            None if number % 7 == 0 else b"key-%d" % (number % 10),
            None if number % 11 == 0 else b"value-%d-" % number + b"x" * 100,
            (("trace", b"%d" % number), ("empty", None)) if number % 3 == 0 else (),
            START + number * 1000,
        )
        for number in range(RECORDS)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, sent):
    """An archive of everything that a broker stored in small segments, by all codecs."""
    data, to = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("archive")
    settings = {"log.segment.bytes": "5000", "log.retention.ms": "-1"}
    with Broker(settings, data_dir=data) as broker:
        broker.create_topic("orders", partitions=2)
        share = RECORDS // len(CODECS)
        for number, codec in enumerate(CODECS):
            options = {"compression_type": codec, "linger_ms": 5, "batch_size": 1024}
            with headwater.Producer(bootstrap_servers=broker.bootstrap, **options) as producer:
                for partition, key, value, headers, time in sent[number * share :][:share]:
                    producer.send("orders", value, key, partition, headers, time)
    outcome = archive(sources_in(str(data), include_active=True), str(to), include_active=True)
    assert len(outcome.added) >= 6
    assert not outcome.problems
    return to


@pytest.fixture
def damaged(folder, tmp_path):
    """A copy of the archive with one bit flipped in the second batch of a segment; which file."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    path = sorted((copy / "orders-1").glob("*.log"))[1]
    second = list(batches(path.read_bytes()))[1][0]
    flip(path, second + 65)
    return path


def load(spark, path, **options):
    return spark.read.format("headwater-segments").options(**options).load(str(path))


def test_records_are_those_that_were_sent(spark, folder, sent):
    rows = load(spark, folder, includeHeaders="true").collect()
    rows.sort(key=lambda row: (row.partition, row.offset))
    expected = [
        (key, value, "orders", part, time, [*headers] or None)
        for part, key, value, headers, time in sorted(sent, key=lambda row: row[0])
    ]
    assert [
        (
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            row.topic,
            row.partition,
            round(row.timestamp.timestamp() * 1000),
            row.headers and [(h.key, h.value and bytes(h.value)) for h in row.headers],
        )
        for row in rows
    ] == expected
    assert [row.offset for row in rows] == [*range(RECORDS // 2)] * 2
    assert {row.timestampType for row in rows} == {0}


def test_columns_are_those_of_the_topic_source(spark, folder, bootstrap):
    read = spark.read.format("headwater").option("subscribe", "x")
    topic = (
        read.option("kafka.bootstrap.servers", bootstrap).option("includeHeaders", "true").load()
    )
    assert load(spark, folder, includeHeaders="true").schema == topic.schema


def test_ranges_of_time_and_offset_and_one_partition(spark, folder, sent):
    start, end = START + 50_000, START + 150_000
    some = load(spark, folder, startingTimestamp=str(start), endingTimestamp=str(end))
    assert some.count() == sum(start <= row[4] < end for row in sent)
    one = load(
        spark, folder, partition="1", startingOffsets="37", endingOffsets="101", splitBytes="1"
    )
    assert sorted(row.offset for row in one.select("offset").collect()) == [*range(37, 101)]
    each = '{"orders": {"0": 190, "1": -1}}'
    assert load(spark, folder, startingOffsets=each).count() == 10
    assert load(spark, folder, topic="nothing").count() == 0


def test_batches_have_a_row_each_and_cover_their_files(spark, folder):
    rows = load(spark, folder, level="batches", splitBytes="2000").collect()
    assert {row.codec for row in rows} == {*CODECS}
    assert all(row.crc_ok and row.problem is None and row.producer_id >= 0 for row in rows)
    assert sum(row["count"] for row in rows) == RECORDS
    files = {row.file for row in rows}
    assert sum(row.size for row in rows) == sum(Path(file).stat().st_size for file in files)


def test_damage_ends_a_read_with_file_and_position(spark, damaged):
    with pytest.raises(PySparkException, match=f"{damaged.name}: damaged at position [1-9]"):
        load(spark, damaged.parent.parent).collect()


def test_damage_is_passed_over_when_asked_and_found_by_an_audit(spark, damaged):
    archived = damaged.parent.parent
    left = load(spark, archived, mode="permissive").count()
    report = audit(spark, str(archived), compacted=True)
    assert not report.ok
    (damage,) = report.findings
    assert (damage.kind, damage.file) == ("damage", str(damaged))
    assert damage.detail == "the checksum is wrong"
    assert sum(part.records for part in report.partitions) == left < RECORDS


def test_an_audit_finds_segments_that_are_missing_twice_there_or_repeat_a_producer(
    spark, folder, tmp_path
):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "manifest.json").unlink()
    files = sorted((copy / "orders-0").glob("*.log"))
    files[1].unlink()  # a gap
    again = bytearray(files[2].read_bytes())
    (tmp_path / "again" / "orders-0").mkdir(parents=True)
    shutil.copy(files[2], tmp_path / "again" / "orders-0")  # an overlap
    last = files[-1].read_bytes()
    end = max(header.next_offset for _, header in batches(last))
    for position, header in batches(again):
        again[position : position + 8] = (end + header.base_offset).to_bytes(8)
    (copy / "orders-0" / f"{end:020d}.log").write_bytes(again)  # the same sequences again
    report = audit(spark, str(tmp_path / "*[ny]"))
    repeated = len(list(batches(again)))
    expected = {"damage": 0, "gap": 2, "overlap": repeated, "duplicate": repeated, "epoch": 0}
    assert report.counts == expected
    assert len(report.findings) == sum(expected.values())


def test_statistics_and_last_values_by_key(spark, folder, sent):
    records = load(spark, folder)
    statistics = {row.key and bytes(row.key): row for row in key_statistics(records).collect()}
    keys = {row[1] for row in sent}
    assert set(statistics) == keys
    for key in keys:
        values = [row[2] for row in sent if row[1] == key]
        assert statistics[key]["count"] == len(values)
        assert statistics[key].tombstones == values.count(None)
        assert statistics[key].bytes == sum(len(value) for value in values if value)
    latest = {
        bytes(row.key): row.value and bytes(row.value) for row in latest_per_key(records).collect()
    }
    assert latest == {row[1]: row[2] for row in sent if row[1] is not None}
    kept = latest_per_key(records, tombstones=False)
    assert kept.columns == records.columns
    assert kept.count() == sum(value is not None for value in latest.values())


def test_a_replay_writes_a_range_once_in_order_with_its_origin(
    spark, folder, sent, topic, bootstrap
):
    into = topic("replayed", partitions=2)
    what = Replay(str(folder), into, START + 100_000, START + 200_000, id=f"run-of-{into}")
    assert replay(spark, what, bootstrap) == {"orders": (100, 0)}
    assert replay(spark, what, bootstrap) == {"orders": (0, 100)}
    with headwater.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        places = [headwater.TopicPartition(into, number) for number in (0, 1)]
        consumer.assign(places)
        assert sum(consumer.end_offsets(places).values()) == 100
        found = []
        while len(found) < 100:
            found += consumer.poll(10)
    wanted = [row for row in sent if what.start_ms <= row[4] < what.end_ms]
    for partition in (0, 1):
        there = [record for record in found if record.partition == partition]
        expected = [row for row in wanted if row[0] == partition]
        assert [(r.key, r.value) for r in there] == [(row[1], row[2]) for row in expected]
        for record, row in zip(there, expected, strict=True):
            headers = dict(record.headers)
            assert headers["replay.topic"] == b"orders"
            assert headers["replay.timestamp"] == b"%d" % row[4]
            assert headers.get("trace") == dict(row[3]).get("trace")


def test_a_replay_into_a_narrow_topic_is_refused_unless_keys_choose(
    spark, folder, topic, bootstrap
):
    into = topic("narrow", partitions=1)
    asked = ["archive", "replay", str(folder), "--from", "2023-11-14T22:13:20Z"]
    asked += ["--to", str(START + 15_000), "--into", into, "--bootstrap-server", bootstrap]
    narrow = CliRunner().invoke(command, asked)
    assert narrow.exit_code == 1
    assert "has 1 partitions" in narrow.stderr
    keyed = CliRunner().invoke(command, [*asked, "--by-key", "--key", "key-3", "--key", "key-9"])
    assert keyed.exit_code == 0, keyed.output
    assert keyed.stdout.split() == ["TOPIC", "INTO", "WRITTEN", "PRESENT", "orders", into, "3", "0"]
    assert "replay id " in keyed.stderr


def test_the_audit_command_of_a_sound_archive_counts_all(spark, folder):
    said = CliRunner().invoke(command, ["archive", "audit", str(folder), "--json"])
    assert said.exit_code == 0, said.output
    report = json.loads(said.stdout)
    first, second = report["partitions"]
    assert (first["records"], first["first_offset"], first["last_offset"]) == (200, 0, 199)
    assert (second["topic"], second["partition"], second["records"]) == ("orders", 1, 200)
    assert first["first_time"] == "2023-11-14T22:13:20+00:00"
    assert not any(report["counts"].values())


def test_the_audit_command_prints_a_table_and_fails_where_something_is_wrong(spark, damaged):
    wrong = CliRunner().invoke(command, ["archive", "audit", str(damaged)])
    assert wrong.exit_code == 1
    assert wrong.stdout.split()[:3] == ["TOPIC", "PARTITION", "FILES"]
    assert "1 x damage, 1 x gap" in wrong.stderr
