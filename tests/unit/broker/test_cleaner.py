"""The log cleaner in a broker, with workers on threads: which logs, what if something fails."""

import asyncio
import errno
import json
import os
import threading
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from headwater.broker.cleaner_loop import STEPS, LogCleaner
from headwater.cli.app import command
from headwater.log.compaction.dirtiness import Dirtiness
from headwater.log.compaction.jobs import DISK, decode_job
from headwater.log.compaction.worker import answers
from headwater.model import TopicPartition
from headwater.records.batch import HEADER, HEADER_SIZE, batches, read_header
from headwater.records.record import decode_records
from headwater.replication.isolation import FetchIsolation
from headwater.seams.files import OsFiles
from headwater.seams.tasks import Lane
from headwater.seams.workers import WorkerDied
from headwater.wire.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.integration.waiting import until
from tests.pages import shapes, shown_below
from tests.unit.broker.live import Live, batch

QUICK = {"log.cleaner.backoff.ms": "20", "log.retention.check.interval.ms": "50"}
WHEN_ASKED = {"log.cleaner.backoff.ms": "3600000"}
COMPACT = {"cleanup_policy": "compact", "segment_bytes": "1024", "min_cleanable_dirty_ratio": "0.1"}


class ThreadWorkers:
    """Workers without processes; `before` may fail or wait before each answer of a job."""

    def __init__(self, before=lambda job, answer: None):
        self.before = before
        self.jobs = []
        self.rates = []
        self.sources = []
        self.started = self.ended = 0

    def start(self, module):
        assert module == "headwater.log.compaction.worker"
        self.started += 1
        return ThreadWorker(self)


class ThreadWorker:
    def __init__(self, workers):
        self._workers = workers

    def begin(self, request, rate):
        self._job = decode_job(request)
        self._workers.rates.append(rate)
        self._workers.jobs.append(os.path.basename(self._job.directory))
        self._workers.sources.append([row.base_offset for row in self._job.segments])
        self._answers = answers(OsFiles(), request, lambda size: None)

    def next_answer(self):
        line = next(self._answers, None)
        replaced = self._workers.before(self._job, line)
        return line if replaced is None else replaced

    def end(self):
        self._workers.ended += 1


def fill(live, topic="t", count=60, keys=5):
    """Write records of a few keys, many times over, and one that remains in the active segment."""
    with live.client() as client:
        for at in range(count):
            key = b"k%d" % (at % keys)
            answer = client.produce(topic, batch(b"%d" % at + b"x" * 100, key=key))
            assert answer.error_code == 0


def read(live, topic="t"):
    """The records of a topic by offset."""
    found, offset = {}, 0
    with live.client() as client:
        end = live.replica(topic).log.log_end_offset
        while offset < end:
            data = client.fetch(topic, offset).records
            for position, header in batches(data):
                for record in decode_records(data[position : position + header.size]):
                    found[record.offset] = (record.key, record.value)
                offset = header.next_offset
    return found


def is_clean(live, topic="t"):
    """Whether all segments but the active one were compacted."""
    log = live.replica(topic).log
    return log.cleaned_end == log.segments.active.base_offset > 0


def check_again(live):
    live.on_loop(live.broker.parts.cleaner._pass_ended.set)


def test_a_dirty_log_is_cleaned_and_its_checkpoint_kept(tmp_path):
    workers = ThreadWorkers()
    with Live(tmp_path, QUICK, workers=workers) as live:
        live.create("t", **COMPACT)
        fill(live)
        until(lambda: is_clean(live), "the log to be clean")
        left = read(live)
        last = {b"k%d" % (at % 5): b"%d" % at + b"x" * 100 for at in range(60)}
        assert dict(left.values()) == last
        assert len(left) < 25
        cleaned = live.replica("t").log.cleaned_end
        until(lambda: workers.ended == workers.started, "idle workers to end")
        jobs = len(workers.jobs)
    checkpoint = (tmp_path / "cleaner-offset-checkpoint").read_text().split("\n")
    assert f"t 0 {cleaned}" in checkpoint
    with Live(tmp_path, QUICK, workers=workers) as live:
        assert live.replica("t").log.cleaned_end == cleaned
        passes = live.broker.parts.cleaner
        fill(live)
        until(lambda: passes.passes, "another pass")
        assert len(workers.jobs) > jobs


def test_a_broker_without_a_dirty_compacted_log_starts_no_worker(tmp_path):
    workers = ThreadWorkers()
    with Live(tmp_path, QUICK, workers=workers) as live:
        live.create("plain", segment_bytes="1024")
        live.create("clean", **{**COMPACT, "min_cleanable_dirty_ratio": "1.0"})
        live.create("small", cleanup_policy="compact")
        for topic in ("plain", "clean", "small"):
            fill(live, topic)
        cleaner = live.broker.parts.cleaner
        until(lambda: cleaner.dirtiest_ratio == 1.0, "the logs to be checked")
    assert workers.started == 0


def test_segments_that_one_write_fills_are_flushed_to_be_cleaned(tmp_path):
    with Live(tmp_path, QUICK, workers=ThreadWorkers()) as live:
        live.create("t", **COMPACT)
        replica = live.replica("t")

        def write_at_once():
            for at in range(10):
                data = bytearray(batch(b"%d" % at + b"x" * 400, key=b"k"))
                stage(replica, data)
            replica.write_soon()

        live.on_loop(write_at_once)
        until(lambda: is_clean(live), "the log to be clean")


def stage(replica, data):
    header = HEADER.unpack_from(data)
    replica.log.staging.stage(memoryview(data), header, replica.leader_epoch, 0)


def test_without_log_cleaner_enable_nothing_is_cleaned(tmp_path):
    with Live(tmp_path, {**QUICK, "log.cleaner.enable": "false"}) as live:
        assert live.broker.parts.cleaner._chooser is None


def test_internal_topics_come_first_and_then_the_dirtiest(tmp_path):
    workers = ThreadWorkers()
    settings = {**WHEN_ASKED, "offsets.topic.segment.bytes": "1024"}
    with Live(tmp_path, settings, workers=workers) as live:
        for topic, count in (("half", 30), ("dirty", 60)):
            live.create(topic, **COMPACT)
            fill(live, topic, count)
        log = live.replica("half").log
        live.on_loop(lambda: setattr(log, "cleaned_end", log.segments[2].base_offset))
        with live.client() as client:
            groups(live, client)
        until(
            lambda: all(
                is_flushed(live, topic) for topic in ("half", "dirty", "__consumer_offsets")
            ),
            "flushes",
        )
        for count in (1, 2, 3):
            check_again(live)
            until(lambda: len(workers.jobs) >= count, "a pass")  # noqa: B023
        until(lambda: live.broker.parts.cleaner.passes >= 3, "the passes to end")
    assert workers.jobs[:3] == ["__consumer_offsets-0", "dirty-0", "half-0"]


def groups(live, client):
    from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
    from headwater.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse

    def committed(at):
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=at, committed_metadata="x" * 200
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="half", partitions=[partition])
        answer = client.ask(
            OffsetCommitRequest(group_id="g", topics=[topic]), OffsetCommitResponse, 7
        )
        return answer.topics[0].partitions[0].error_code == 0

    client.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 1)
    until(lambda: committed(0), "the coordinator")
    for at in range(20):
        assert committed(at)


def is_flushed(live, topic):
    log = live.replica(topic).log
    return len(log.segments) > 1 and log.recovery_point >= log.segments.active.base_offset


def test_a_worker_that_dies_is_replaced_and_counted(tmp_path):
    deaths = iter([True, True])

    def die(job, answer):
        if next(deaths, False):
            raise WorkerDied("killed by the test")

    workers = ThreadWorkers(die)
    with Live(tmp_path, QUICK, workers=workers) as live:
        live.create("t", **COMPACT)
        fill(live)
        until(lambda: is_clean(live), "the log to be clean")
        cleaner = live.broker.parts.cleaner
        assert cleaner.worker_deaths == 2
        assert cleaner.uncleanable == {}
        found = live.samples()
        assert found["headwater_cleaner_worker_deaths_total"] == 2
        assert found["headwater_cleaner_passes_total"] >= 1
        read, kept = (found[f"headwater_cleaner_{what}_bytes_total"] for what in ("read", "kept"))
        assert 0 < kept < read
        until(lambda: leftovers(live) == [], "the files of dead workers to go")


def leftovers(live, topic="t"):
    names = os.listdir(live.replica(topic).log.directory)
    return [name for name in names if name.endswith((".cleaned", ".swap"))]


def test_a_log_that_cannot_be_cleaned_is_set_aside_and_shown(tmp_path):
    def die_over_one(job, answer):
        if job.directory.endswith("deadly-0"):
            raise WorkerDied("killed by the test")

    workers = ThreadWorkers(die_over_one)
    with Live(tmp_path, QUICK, workers=workers) as live:
        for topic in ("deadly", "damaged", "sound"):
            live.create(topic, **{**COMPACT, "min_cleanable_dirty_ratio": "1.0"})
            fill(live, topic)
        path = live.replica("damaged").log.segments[0].path
        with open(path, "r+b") as file:
            file.seek(80)
            file.write(b"????")
        for topic in ("deadly", "damaged", "sound"):
            live.on_loop(lambda topic=topic: make_dirty(live, topic))
        cleaner = live.broker.parts.cleaner
        until(lambda: len(cleaner.uncleanable) == 2, "both to be set aside")
        until(lambda: is_clean(live, "sound"), "the other log")
        reasons = {at.topic: why for at, why in cleaner.uncleanable.items()}
        assert says_damaged(reasons["damaged"])
        assert "3 workers died over it" in reasons["deadly"]
        assert cleaner.worker_deaths == 3
        report = tmp_path / "headwater-uncleanable"
        until(lambda: len(json.loads(report.read_text())) == 2, "the report")
        assert len(read(live, "sound")) < 25
        until(lambda: "sound" in (tmp_path / "cleaner-offset-checkpoint").read_text(), "checkpoint")
        shown = CliRunner().invoke(command, ["log", "compaction", str(tmp_path), "--json"])
        rows = {row["partition"]: row for row in json.loads(shown.output)}
        assert says_damaged(rows["damaged-0"]["problem"])
        assert rows["sound-0"]["problem"] == ""
        assert rows["sound-0"]["cleaned_to"] > 0 == rows["sound-0"]["dirty_bytes"]
        text = CliRunner().invoke(command, ["log", "compaction", str(tmp_path)])
        page = shown_below(
            "docs/operations/compaction.md", "headwater log compaction /var/lib/headwater"
        )
        found = text.output.replace("sound-0", "customers-0")
        assert {*shapes(page[:1]), *shapes(page[-1:])} <= {*shapes(found.splitlines())}
        assert "3 workers died over it" in text.output
    with Live(tmp_path, WHEN_ASKED, workers=workers):
        until(lambda: not report.exists(), "another try after the restart")


def says_damaged(reason):
    """By the checksums of the segment, if a flush has written them before the damage, or by the batch."""
    return "is damaged near byte 0" in reason or "wrong checksum at offset 0" in reason


def make_dirty(live, topic):
    """Let any dirt be enough."""
    replica = live.context.replicas.get(topic, 0)
    settings = replica.log.settings
    replica.log.configure(type(settings)(
        cleanup_policy="compact", segment_bytes=settings.segment_bytes, min_cleanable_dirty_ratio=0.1
    ))  # fmt: skip


def test_a_topic_that_takes_the_name_of_one_that_was_set_aside_is_compacted(tmp_path):
    deadly = [True]

    def die(job, answer):
        if deadly:
            raise WorkerDied("killed by the test")

    with Live(tmp_path, WHEN_ASKED, workers=ThreadWorkers(die)) as live:
        live.create("t", **COMPACT)
        fill(live)
        cleaner = live.broker.parts.cleaner
        until(lambda: check_again(live) or cleaner.uncleanable, "the log to be set aside")
        until(lambda: not cleaner._running, "the pass to end")
        deadly.clear()
        with live.client() as client:
            named = DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000)
            assert client.ask(named, DeleteTopicsResponse, 5).responses[0].error_code == 0
        live.create("t", **COMPACT)
        fill(live)
        until(lambda: check_again(live) or is_clean(live), "the new log to be compacted")
        assert cleaner.uncleanable == {}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_the_machine_lacks_for_a_while_is_tried_again_later(tmp_path, number):
    def refuse(job, answer):
        return json.dumps({"failed": (DISK, os.strerror(number), number)}).encode()

    workers = ThreadWorkers(refuse)
    with Live(tmp_path, QUICK, workers=workers) as live:
        live.create("t", **COMPACT)
        fill(live)
        cleaner = live.broker.parts.cleaner
        until(lambda: cleaner._trouble, "the pass to fail")
        assert cleaner.uncleanable == {}
        workers.before = lambda job, answer: None
        live.on_loop(lambda: setattr(next(iter(cleaner._trouble.values())), "retry_at_ms", 0))
        until(lambda: is_clean(live), "the log to be clean")


def test_a_worker_that_cannot_start_is_tried_again_later(tmp_path):
    class NoProcesses(ThreadWorkers):
        failing = True

        def start(self, module):
            if self.failing:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            return super().start(module)

    workers = NoProcesses()
    with Live(tmp_path, QUICK, workers=workers) as live:
        live.create("t", **COMPACT)
        fill(live)
        cleaner = live.broker.parts.cleaner
        until(lambda: cleaner._trouble, "the pass to fail")
        assert cleaner.uncleanable == {}
        assert live.replica("t").offline is None
        workers.failing = False
        live.on_loop(lambda: setattr(next(iter(cleaner._trouble.values())), "retry_at_ms", 0))
        until(lambda: is_clean(live), "the log to be clean")


def test_a_log_that_is_truncated_meanwhile_is_not_swapped(tmp_path):
    once = iter([True])

    def truncated(job, answer):
        if next(once, False):
            log = live.replica("t").log
            live.on_loop(lambda: setattr(log, "truncations", log.truncations + 1))

    workers = ThreadWorkers(truncated)
    with Live(tmp_path, QUICK, workers=workers) as live:
        live.create("t", **COMPACT)
        fill(live)
        until(lambda: is_clean(live), "a later pass")
        assert len(workers.jobs) > 1
        assert live.broker.parts.cleaner.worker_deaths == 0
        until(lambda: leftovers(live) == [], "the files of the first pass to go")


class Between:
    """Tasks that change a log once after it was chosen, before its pass begins."""

    def __init__(self, cleaner, change):
        self._tasks, self._change = cleaner._tasks, change
        cleaner._tasks = self

    def spawn(self, work, name):
        if name == "compaction of t-0":
            change, self._change = self._change, lambda: None
            change()
        return self._tasks.spawn(work, name)

    def in_thread(self, call, *lane):
        return self._tasks.in_thread(call, *lane)


def test_segments_that_retention_drops_before_a_pass_are_not_missed(tmp_path):
    """Taking as many segments as were chosen would map the active one: its records may be aborted."""
    workers = ThreadWorkers()
    with Live(tmp_path, WHEN_ASKED, workers=workers) as live:
        live.create("t", **COMPACT)
        fill(live, count=20, keys=20)
        until(lambda: is_flushed(live, "t"), "the flush")
        log = live.replica("t").log

        def drop():
            log.advance_start(log.segments[1].base_offset)
            log.drop_first()

        Between(live.broker.parts.cleaner, drop)
        check_again(live)
        until(lambda: is_clean(live), "the log to be clean")
        assert log.segments.active.base_offset not in workers.sources[0]
        assert log.log_start_offset > 0


def test_a_log_that_is_truncated_before_a_pass_is_measured_again(tmp_path):
    with Live(tmp_path, WHEN_ASKED, workers=ThreadWorkers()) as live:
        live.create("t", **COMPACT)
        fill(live, count=20)
        until(lambda: is_flushed(live, "t"), "the flush")
        replica, cleaner = live.replica("t"), live.broker.parts.cleaner

        def truncate():
            replica.log.truncate_to(replica.log.segments[1].base_offset + 1)
            replica.partition.truncated(replica.log.log_end_offset)

        Between(cleaner, truncate)
        check_again(live)
        until(lambda: replica.log.cleaned_end, "a pass")
        assert cleaner.uncleanable == {}
        assert replica.log.cleaned_end == replica.log.segments[1].base_offset


@pytest.mark.parametrize(("part", "name"), [("following", "cutting"), ("flushes", "held")])
def test_no_pass_begins_over_a_log_that_is_being_truncated_or_renamed(tmp_path, part, name):
    """Until the renames of a move between log dirs are durable, what is flushed is not certain."""
    workers = ThreadWorkers()
    with Live(tmp_path, WHEN_ASKED, workers=workers) as live:
        live.create("t", **COMPACT)
        fill(live, count=20)
        until(lambda: is_flushed(live, "t"), "the flush")
        state, cleaner = getattr(live.replica("t"), part), live.broker.parts.cleaner
        Between(cleaner, lambda: setattr(state, name, True))
        check_again(live)
        until(lambda: getattr(state, name) and not cleaner._running, "the pass to end")
        assert workers.jobs == []
        live.on_loop(lambda: setattr(state, name, False))
        check_again(live)
        until(lambda: is_clean(live), "the log to be clean")


class Unsynced(OsFiles):
    """Cannot make renames in a folder durable."""

    folder = None

    def sync_dir(self, path):
        if path == self.folder:
            raise OSError(errno.EIO, "Input/output error", path)
        super().sync_dir(path)


def test_nothing_counts_as_compacted_before_the_swaps_are_durable(tmp_path):
    """Else a power cut brings the old values back below the cleaned end, where no pass looks again."""
    files = Unsynced()

    def break_at_the_end(job, answer):
        if b'"done"' in (answer or b""):
            files.folder = job.directory

    workers = ThreadWorkers(break_at_the_end)
    with Live(tmp_path, QUICK, workers=workers, files=files) as live:
        live.create("t", **COMPACT)
        fill(live)
        log, cleaner = live.replica("t").log, live.broker.parts.cleaner
        until(lambda: files.folder and not cleaner._running, "the pass to end")
        assert (log.cleaned_end, cleaner.passes) == (0, 0)
        assert live.replica("t").offline is not None


def test_a_topic_deleted_during_its_pass_leaves_nothing(tmp_path):
    from headwater.wire.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse

    reached, go_on = threading.Event(), threading.Event()

    def wait(job, answer):
        reached.set()
        assert go_on.wait(60)

    workers = ThreadWorkers(wait)
    with Live(tmp_path, QUICK, workers=workers) as live:
        live.create("t", **COMPACT)
        fill(live)
        assert reached.wait(60)
        with live.client() as client:
            request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000)
            client.ask(request, DeleteTopicsResponse, 5)
        live.create("t", **COMPACT)
        fill(live, count=3)
        go_on.set()
        cleaner = live.broker.parts.cleaner
        until(lambda: not cleaner._running, "the pass to end")
        assert len(read(live)) == 3
        assert (cleaner.passes, cleaner.uncleanable) == (0, {})


def test_compact_and_delete_does_both_and_retention_waits_for_a_pass(tmp_path):
    reached, go_on = threading.Event(), threading.Event()

    def wait(job, answer):
        reached.set()
        assert go_on.wait(60)

    settings = {**COMPACT, "cleanup_policy": "compact,delete", "retention_bytes": "1"}
    with Live(tmp_path, QUICK, workers=ThreadWorkers(wait)) as live:
        live.create("t", **{**settings, "retention_bytes": "-1"})
        fill(live)
        assert reached.wait(60)
        log = live.replica("t").log
        assert live.on_loop(lambda: log.cleaning)
        assert live.on_loop(lambda: log.retain(2**60, log.log_end_offset)) == []
        go_on.set()
        until(lambda: is_clean(live), "the pass")
        live.on_loop(lambda: configure(log, retention_ms=0))
        until(lambda: log.log_start_offset >= 59, "retention")


def configure(log, **changes):
    from dataclasses import replace

    log.configure(replace(log.settings, **changes))


@pytest.mark.parametrize("buffer", ["24", "100"])
def test_a_small_dedupe_buffer_takes_several_passes(tmp_path, buffer):
    workers = ThreadWorkers()
    settings = {**QUICK, "log.cleaner.dedupe.buffer.size": buffer}
    with Live(tmp_path, settings, workers=workers) as live:
        live.create("t", **{**COMPACT, "min_cleanable_dirty_ratio": "0"})
        fill(live, count=25)
        until(lambda: is_clean(live), "the log to be clean")
        assert len(workers.jobs) > 3
        assert len(read(live)) < 20


def test_consumers_pass_empty_batches_and_followers_get_them(tmp_path):
    """librdkafka raises its limits with every answer without a record, and then reports an error."""
    with Live(tmp_path, QUICK, workers=ThreadWorkers()) as live:
        live.create("t", **{**COMPACT, "segment_bytes": "300"})
        with live.client() as client:
            for _ in range(4):  # each in a segment of its own
                client.produce("t", batch(b"x" * 100, key=b"k"))
            until(lambda: is_clean(live), "the log to be clean")
            sizes = {
                isolation: live.on_loop(lambda isolation=isolation: read_sizes(live, isolation))
                for isolation in FetchIsolation
            }
        assert HEADER_SIZE in sizes[FetchIsolation.LOG_END]
        assert HEADER_SIZE not in sizes[FetchIsolation.HIGH_WATERMARK]
        assert HEADER_SIZE not in sizes[FetchIsolation.LAST_STABLE]


def read_sizes(live, isolation):
    """The sizes of the answers to a reader."""
    replica = live.context.replicas.get("t", 0)
    offset, sizes = 0, []
    while offset < 4:
        found = replica.read(offset, isolation, 1 << 20, True)
        sizes.append(found.size)
        offset = read_header(found.load()).next_offset
    return sizes


def test_as_many_logs_are_cleaned_at_once_as_there_are_threads(tmp_path):
    """Each pass waits for the other one, and gets its share of the rate."""
    both, met = threading.Barrier(2), set()

    def meet(job, answer):
        if job.directory not in met:
            met.add(job.directory)
            both.wait(60)

    limits = {"log.cleaner.threads": "2", "log.cleaner.io.max.bytes.per.second": "9000000"}
    workers = ThreadWorkers(meet)
    with Live(tmp_path, {**QUICK, **limits}, workers=workers) as live:
        for topic in ("a", "b"):
            live.create(topic, **COMPACT)
            fill(live, topic)
        until(lambda: is_clean(live, "a") and is_clean(live, "b"), "both logs to be clean")
        assert live.broker.parts.cleaner.worker_deaths == 0
        assert not both.broken
        assert set(workers.rates) == {4_500_000.0}


def test_a_worker_reads_and_writes_no_faster_than_it_may(tmp_path):
    rate = 30_000
    limit = {"log.cleaner.io.max.bytes.per.second": str(rate)}
    with Live(tmp_path, {**WHEN_ASKED, **limit}) as live:  # with real processes
        live.create("t", **{**COMPACT, "segment_bytes": "20000"})
        fill(live, count=400)
        until(lambda: is_flushed(live, "t"), "the flush")
        check_again(live)
        until(lambda: is_clean(live), "the log to be clean")
        cleaner = live.broker.parts.cleaner
        until(lambda: cleaner.last_pass_ms, "the pass to be counted")
        passed = cleaner.read_bytes + cleaner.kept_bytes
        assert passed > rate
        assert cleaner.last_pass_ms > 1000 * passed / rate - 200, "the burst is a tenth of a second"


class Step:
    """A log that notes in which turn of the loop it was measured."""

    def __init__(self, number, turns, unread):
        self.topic_partition = TopicPartition("t", number)
        self.upkeep = self.following = self.flushes = self
        self.offline = self.refusal = None
        self.cutting = self.held = False
        self.may_be_cleaned = self.has_unflushed_segments = True
        self.segment_count = number % 3 + 1
        self.found = Dirtiness(0, 9, 1, 10_000, number + 1, 0)
        self._turns, self._unread = turns, unread

    def flush(self):
        self.has_unflushed_segments = False
        self._turns[-1] += STEPS

    def times_to_read(self):
        return (lambda: "read") if self._unread else None

    def note_times(self, found):
        assert found == "read"
        self._unread = False

    def dirtiness(self, now_ms):
        assert not self._unread
        self._turns[-1] += self.segment_count
        return self.found

    def should_be_cleaned(self, found):
        return True


class Steps(dict):
    """Logs by partition, as replicas."""

    def __iter__(self):
        return iter(self.values())

    def get(self, *partition):
        return super().get(TopicPartition(*partition))


@pytest.mark.parametrize("started", [True, False], ids=["after a start", "later"])
def test_a_look_at_ten_thousand_dirty_logs_gives_turns_to_others(started):
    """A step is a segment or a log, a few microseconds; reads and the begin of a flush end a turn."""
    turns, chosen, in_threads = [0], [], []

    class Threads:
        async def _run(self, call):
            await asyncio.sleep(0)
            return call()

        def in_thread(self, call, lane):
            assert lane is Lane.CLEANING
            in_threads.append(call)
            return asyncio.ensure_future(self._run(call))

        def spawn(self, work, name):
            work.close()
            chosen.append(name)

    logs = Steps()
    for number in range(10_000):
        log = Step(number, turns, unread=started)
        log.has_unflushed_segments = started
        logs[log.topic_partition] = log
    logs.log_dirs = SimpleNamespace(logs=logs)
    context = SimpleNamespace(
        replicas=logs,
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        wall_clock=SimpleNamespace(believed_ms=lambda: 0),
        settings=SimpleNamespace(log_cleaner_threads=3),
    )
    cleaner = LogCleaner(context, Threads(), None, None, None)

    async def count_turns():
        while True:
            turns.append(0)
            await asyncio.sleep(0)

    async def look():
        counting = asyncio.create_task(count_turns())
        await cleaner._begin_passes()
        counting.cancel()

    asyncio.run(look())
    assert chosen == [f"compaction of t-{number}" for number in (9999, 9998, 9997)]
    assert len(in_threads) == (10_000 if started else 0)
    assert max(turns) <= STEPS + 3 + (STEPS if started else 0)
    assert sum(turns) >= 19_999
