import json
import os

import pytest
from click.testing import CliRunner

import headwater
from headwater.cli.app import command
from headwater.cli.archive import milliseconds
from headwater.errors import KafkaError
from headwater.log.checkpoints import HIGH_WATERMARKS, write_offsets
from headwater.log.folders import write_topic_id
from headwater.model import TopicPartition
from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.segments import archive as archiving
from headwater.pipelines.segments import manifest
from headwater.pipelines.segments.archive import archive, verify
from headwater.pipelines.segments.archive_sources import broker_stopped, sources_in, sources_of
from headwater.pipelines.segments.files import find_segments
from headwater.seams.files import OsFiles
from headwater.testing import Broker
from tests.unit.pipelines.segment_files import batch, flip, segment

SIZE = len(batch(0))
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def data(tmp_path):
    """A data folder with two sealed segments and an active one."""
    folder = tmp_path / "data"
    for base in (0, 6, 12):
        segment(folder / "orders-0", base, [batch(base), batch(base + 3)])
    write_topic_id(OsFiles(), str(folder / "orders-0"), bytes(range(16)))
    return folder


@pytest.fixture
def to(tmp_path):
    return tmp_path / "archive"


def run(data, to, **options):
    active = options.get("include_active", False)
    return archive(sources_in(str(data), include_active=active), str(to), **options)


def offsets(outcome):
    return [(entry.base_offset, entry.next_offset) for entry in outcome.added]


def test_sealed_segments_are_copied_and_the_active_one_is_not(data, to):
    outcome = run(data, to)
    assert offsets(outcome) == [(0, 6), (6, 12)]
    for name in (f"{0:020d}.log", f"{6:020d}.log", "partition.metadata"):
        copy, origin = to / "orders-0" / name, data / "orders-0" / name
        assert copy.read_bytes() == origin.read_bytes()
        assert copy.stat().st_ino != origin.stat().st_ino
    assert verify(str(to)) == []


def test_the_manifest_says_what_each_file_is(data, to):
    run(data, to)
    row = json.loads((to / "manifest.json").read_text())["segments"][1]
    assert row.pop("archived_at").endswith("Z")
    assert row == {
        "file": f"orders-0/{6:020d}.log",
        "topic": "orders",
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
        "partition": 0,
        "base_offset": 6,
        "next_offset": 12,
        "size": 2 * SIZE,
        "crc32c": archiving.checksum(str(data / "orders-0" / f"{6:020d}.log")),
        "batches": 2,
        "records": 6,
        "first_timestamp": 1_700_000_000_000,
        "last_timestamp": 1_700_000_000_002,
        "codecs": {"none": 2},
        "archived_by": f"headwater {headwater.__version__}",
    }


def test_a_second_run_copies_only_what_is_new(data, to):
    run(data, to)
    segment(data / "orders-0", 18, [batch(18)])
    again = run(data, to)
    assert (offsets(again), again.present) == ([(12, 18)], 2)
    assert offsets(run(data, to)) == []


def test_a_segment_that_was_archived_while_active_is_completed_by_its_rest(data, to):
    assert offsets(run(data, to, include_active=True)) == [(0, 6), (6, 12), (12, 18)]
    segment(data / "orders-0", 12, [batch(12), batch(15), batch(18)])
    segment(data / "orders-0", 21, [batch(21)])
    assert offsets(run(data, to)) == [(18, 21)]
    found = find_segments(str(to))
    assert [(s.base_offset, s.size // SIZE) for s in found] == [(0, 2), (6, 2), (12, 2), (18, 1)]
    assert offsets(run(data, to)) == []


def test_a_tail_that_was_never_finished_is_left_out_of_an_active_segment(data, to):
    os.truncate(data / "orders-0" / f"{12:020d}.log", 2 * SIZE - 1)
    outcome = run(data, to, include_active=True)
    assert offsets(outcome)[-1] == (12, 15)
    assert outcome.problems == []


def test_damage_inside_an_active_segment_is_a_problem(data, to):
    flip(data / "orders-0" / f"{12:020d}.log", SIZE - 1)
    outcome = run(data, to, include_active=True)
    assert offsets(outcome) == [(0, 6), (6, 12)]
    assert "damaged at position 0" in outcome.problems[0]


def test_a_damaged_segment_is_not_archived_nor_what_follows_it(data, to):
    flip(data / "orders-0" / f"{0:020d}.log", 2 * SIZE - 1)
    segment(data / "orders-1", 0, [batch(0)])
    segment(data / "orders-1", 3, [batch(3)])
    outcome = run(data, to)
    assert [entry.file for entry in outcome.added] == [f"orders-1/{0:020d}.log"]
    assert outcome.problems == [
        f"orders-0: segment 0 is damaged at position {SIZE}: the checksum is wrong"
    ]


def test_a_damaged_rest_is_not_archived_either(data, to):
    run(data, to, include_active=True)
    path = segment(data / "orders-0", 12, [batch(12), batch(15), batch(18)])
    segment(data / "orders-0", 21, [batch(21)])
    flip(path, 3 * SIZE - 1)
    outcome = run(data, to)
    assert (outcome.added, len(outcome.problems)) == ([], 1)


def test_offsets_out_of_place_are_refused(data, to):
    segment(data / "orders-0", 0, [batch(0), batch(9)])
    assert "has offset 9 where 3 must be" in run(data, to).problems[0]


def test_offsets_that_compaction_removed_are_no_problem(data, to):
    segment(data / "orders-0", 0, [batch(2, count=1)])
    outcome = run(data, to)
    assert (offsets(outcome), outcome.problems) == ([(0, 6), (6, 12)], [])


def test_what_is_above_the_high_watermark_waits(data, to):
    write_offsets(OsFiles(), str(data / HIGH_WATERMARKS), {ORDERS: 8})
    outcome = run(data, to)
    assert (offsets(outcome), outcome.waiting) == ([(0, 6)], 1)
    write_offsets(OsFiles(), str(data / HIGH_WATERMARKS), {ORDERS: 12})
    assert offsets(run(data, to)) == [(6, 12)]


def test_segments_that_retention_took_first_are_told_of(data, to):
    run(data, to)
    for base in (0, 6, 12):
        (data / "orders-0" / f"{base:020d}.log").unlink()
    segment(data / "orders-0", 20, [batch(20)])
    segment(data / "orders-0", 23, [batch(23)])
    outcome = run(data, to)
    assert offsets(outcome) == [(20, 23)]
    assert outcome.notes == [
        "orders-0: offsets 12 to 19 were deleted before they could be archived"
    ]


def before_copying(monkeypatch, base, change):
    """Let something happen to the folder just before a segment is copied."""
    real = archiving._copy_file

    def copy(origin, temporary, *, link):
        if origin.endswith(f"{base:020d}.log"):
            change()
        real(origin, temporary, link=link)

    monkeypatch.setattr(archiving, "_copy_file", copy)


def test_segments_that_are_deleted_under_the_copy_are_passed_over_by_the_next_run(
    data, to, monkeypatch
):
    gone = data / "orders-0" / f"{0:020d}.log"
    before_copying(monkeypatch, 0, gone.unlink)
    outcome = run(data, to)
    assert (outcome.added, outcome.problems) == ([], [])
    assert "segment 0 was deleted or replaced during the copy" in outcome.notes[0]
    assert offsets(run(data, to)) == [(6, 12)]


@pytest.mark.parametrize("base", [0, 6])
def test_segments_that_compaction_merges_under_the_copy_are_not_lost(data, to, monkeypatch, base):
    def merge():
        segment(data / "orders-0", 0, [batch(0), batch(9)])
        (data / "orders-0" / f"{6:020d}.log").unlink()

    with monkeypatch.context() as patch:
        before_copying(patch, base, merge)
        first = run(data, to)
    assert first.problems == []
    again = run(data, to)
    found = [*offsets(first), *offsets(again)]
    assert found == ([(0, 12)] if base == 0 else [(0, 6), (9, 12)])
    assert (again.problems, verify(str(to))) == ([], [])


def test_a_topic_that_was_made_anew_does_not_mix_with_its_predecessor(data, to):
    run(data, to)
    write_topic_id(OsFiles(), str(data / "orders-0"), bytes(16)[:-1] + b"\1")
    segment(data / "orders-0", 18, [batch(18)])
    outcome = run(data, to)
    assert outcome.added == []
    assert "another topic of this name" in outcome.problems[0]


@pytest.mark.parametrize("lost", ["manifest", "files"])
def test_a_run_that_was_cut_off_is_completed_by_the_next(data, to, monkeypatch, lost):
    calls = []

    def fail(*args):
        calls.append(args)
        if lost == "manifest" or len(calls) == 2:
            raise OSError(28, "No space left on device")
        return real(*args)

    where, name = (manifest, "save") if lost == "manifest" else (archiving, "_sync")
    real = getattr(where, name)
    with monkeypatch.context() as patch:
        patch.setattr(where, name, fail)
        with pytest.raises(OSError, match="No space"):
            run(data, to)
    run(data, to)
    assert verify(str(to)) == []
    assert [s.base_offset for s in find_segments(str(to))] == [0, 6]
    assert list((to / "orders-0").glob("*.tmp")) == []


def test_files_that_the_manifest_does_not_name_are_not_read(data, to):
    run(data, to)
    segment(to / "orders-0", 12, [batch(12)])
    assert [s.base_offset for s in find_segments(str(to))] == [0, 6]
    assert verify(str(to)) == [
        f"orders-0/{12:020d}.log: not in the manifest; the next archive run repairs this"
    ]


def test_links_share_the_brokers_bytes(data, to):
    run(data, to, link=True)
    name = f"{0:020d}.log"
    assert (to / "orders-0" / name).samefile(data / "orders-0" / name)
    assert verify(str(to)) == []


def test_verify_names_what_was_cut_changed_or_lost(data, to):
    run(data, to, include_active=True)
    first, second, third = sorted((to / "orders-0").glob("*.log"))
    os.truncate(first, 10)
    flip(second, SIZE + 30)
    third.unlink()
    cut, changed, lost = verify(str(to))
    assert cut.endswith(f"10 bytes instead of {2 * SIZE}")
    assert changed.endswith(
        f"changed since it was archived, damaged at position {SIZE}: the checksum is wrong"
    )
    assert lost.endswith("missing")


def test_a_manifest_of_another_kind_is_refused(to):
    to.mkdir()
    (to / "manifest.json").write_text('{"format": "other", "version": 1, "segments": []}')
    with pytest.raises(KafkaError, match="is not a manifest"):
        manifest.load(str(to))


def test_two_runs_do_not_share_an_archive(data, to):
    to.mkdir()
    held = OsFiles().lock(str(to / ".lock"))
    with pytest.raises(KafkaError, match="another run"):
        run(data, to)
    OsFiles().close(held)
    assert offsets(run(data, to)) == [(0, 6), (6, 12)]


@pytest.mark.parametrize("inside", ["", "copies", "copies-1", "orders-0"])
def test_an_archive_among_the_broker_s_own_folders_is_refused(data, inside):
    before = sorted(data.rglob("*"))
    with pytest.raises(KafkaError, match="outside of it"):
        run(data, data / inside)
    assert sorted(data.rglob("*")) == before
    assert offsets(run(data, f"{data}-copies")) == [(0, 6), (6, 12)]


def test_topics_are_chosen_by_name_and_internal_ones_only_so(data):
    segment(data / "__consumer_offsets-0", 0, [batch(0)])
    assert [source.partition.topic for source in sources_in(str(data))] == ["orders"]
    (chosen,) = sources_in(str(data), ["__consumer_offsets"])
    assert chosen.partition.topic == "__consumer_offsets"
    with pytest.raises(KafkaError, match="has no topic other"):
        sources_in(str(data), ["other"])


def test_a_folder_that_is_no_broker_s_is_refused_and_an_empty_one_is_not(tmp_path):
    with pytest.raises(KafkaError, match="not the data folder of a broker"):
        sources_in(str(tmp_path))
    (tmp_path / "brokers" / "1").mkdir(parents=True)
    with pytest.raises(KafkaError, match=r"the data of a cluster: .* --bootstrap-server"):
        sources_in(str(tmp_path))
    (tmp_path / "meta.properties").touch()
    assert sources_in(str(tmp_path)) == []


def test_a_running_broker_is_archived_where_it_says_its_files_are(to):
    with Broker({"log.segment.bytes": "2000"}) as broker:
        broker.create_topic("orders")
        with headwater.Producer(bootstrap_servers=broker.bootstrap, batch_size=500) as producer:
            for number in range(60):
                producer.send("orders", b"x" * 100, key=b"%d" % number)
        (source,) = sources_of(ConnectionSettings(broker.bootstrap), ["orders"])
        assert source.limit == 60
        outcome = archive([source], str(to))
        assert len(outcome.added) > 1
        assert outcome.added[-1].next_offset < 60
        with (
            pytest.raises(KafkaError, match="a broker runs on"),
            broker_stopped(str(broker.data_dir)),
        ):
            pass
        said = CliRunner().invoke(
            command, ["archive", "--bootstrap-server", broker.bootstrap, "--to", str(to)]
        )
        assert said.exit_code == 0, said.output
        assert f"0 segments added, {len(outcome.added)} already archived" in said.output
    assert verify(str(to)) == []


def test_the_command_copies_and_verifies(data, to):
    runner = CliRunner()
    copied = runner.invoke(command, ["archive", str(data), "orders", "--to", str(to), "--json"])
    assert copied.exit_code == 0, copied.output
    assert [row["offsets"] for row in json.loads(copied.stdout)] == ["0-5", "6-11"]
    assert runner.invoke(command, ["archive", "verify", str(to)]).exit_code == 0
    flip(to / "orders-0" / f"{6:020d}.log", SIZE + 30)
    damaged = runner.invoke(command, ["archive", "verify", str(to)])
    assert damaged.exit_code == 1
    assert f"orders-0/{6:020d}.log: changed since" in damaged.output
    assert "Usage" in runner.invoke(command, ["archive", "--help"]).output
    assert runner.invoke(command, ["archive", "--to", str(to)]).exit_code == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times_are_iso_in_utc_or_milliseconds(text, expected):
    assert milliseconds(text) == expected
