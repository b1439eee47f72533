"""Replicas move between the log dirs of a broker while they serve."""

import errno
from pathlib import Path

import pytest

from headwater.broker.handlers.log_dirs import handle_describe_log_dirs
from headwater.errors import E
from headwater.model import TopicPartition
from headwater.replication.throttles import UNLIMITED
from headwater.wire.messages.cluster import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from headwater.wire.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.integration.disks import FaultyFiles
from tests.unit.broker.live import Live, batch, until

AT = TopicPartition("moved", 0)
COUNT = 30
STOPPED = {"replica.alter.log.dirs.io.max.bytes.per.second": "0"}


class Dirs:
    """A broker with two log dirs, and a topic with records in one of them."""

    def __init__(self, root: Path) -> None:
        self.paths = [str(root / name) for name in ("one", "two")]
        self.settings = {"log.dirs": ",".join(self.paths)}

    def live(self, **settings: str) -> Live:
        return Live("", {**self.settings, **settings})

    def here_and_there(self, live: Live) -> tuple[str, str]:
        here = live.replica(*AT).directory.rpartition("/")[0]
        return here, next(path for path in self.paths if path != here)

    def folders(self) -> list[list[str]]:
        """The folders of the topic in each log dir."""
        return [
            sorted(one.name for one in Path(path).iterdir() if one.name.startswith("moved-"))
            for path in self.paths
        ]


@pytest.fixture
def dirs(tmp_path):
    return Dirs(tmp_path)


def fill(live, count=COUNT):
    with live.client() as client:
        for number in range(count):
            records = batch(b"%d" % number, producer_id=7, producer_epoch=0, base_sequence=number)
            assert client.produce("moved", records).error_code == 0


def alter(live, path, *partitions):
    topics = [
        AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=at.topic, partitions=[at.partition])
        for at in partitions or (AT,)
    ]
    wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=topics)
    with live.client() as client:
        answer = client.ask(
            AlterReplicaLogDirsRequest(dirs=[wanted]), AlterReplicaLogDirsResponse, 2
        )
    return [row.error_code for topic in answer.results for row in topic.partitions]


def described(live):
    """Path -> (size, lag, future) of the partition."""
    with live.client() as client:
        answer = client.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    return {
        row.log_dir: (part.partition_size, part.offset_lag, part.is_future_key)
        for row in answer.results
        for topic in row.topics
        for part in topic.partitions
        if topic.name == "moved"
    }


def values(live):
    """Every byte of the log, as consumers get it."""
    found, offset = b"", 0
    with live.client() as client:
        while offset < COUNT:
            records = bytes(client.fetch("moved", offset).records or b"")
            assert records
            found += records
            offset = live.replica(*AT).high_watermark
    return found


def is_at(live, path):
    return live.replica(*AT).directory == f"{path}/moved-0"


def test_a_replica_moves_and_nobody_notices(dirs):
    with dirs.live() as live:
        live.create("moved", segment_bytes="2000")
        fill(live)
        before = values(live)
        here, there = dirs.here_and_there(live)
        assert alter(live, there) == [E.NONE]
        until(lambda: is_at(live, there))
        until(lambda: dirs.folders()[dirs.paths.index(here)] == [])
        assert list(described(live)) == [there]
        assert values(live) == before
        with live.client() as client:
            again = batch(b"29", producer_id=7, producer_epoch=0, base_sequence=COUNT - 1)
            duplicate = client.produce("moved", again)
            assert (duplicate.error_code, duplicate.base_offset) == (0, COUNT - 1)
            follows = batch(b"30", producer_id=7, producer_epoch=0, base_sequence=COUNT)
            assert client.produce("moved", follows).base_offset == COUNT
        assert alter(live, here) == [E.NONE], "and back, while it is written to"
        sent = COUNT + 1
        with live.client() as client:
            moved = False
            while not moved:
                moved = is_at(live, here)
                written = client.produce("moved", batch(b"meanwhile"))
                assert (written.error_code, written.base_offset) == (0, sent)
                sent += 1
        after = values(live)
    with dirs.live() as live:
        assert is_at(live, here)
        assert live.replica(*AT).log_end_offset == sent
        assert values(live) == after
        assert after.startswith(before)


def test_a_move_is_shown_while_it_waits_and_goes_on_after_a_restart(dirs):
    with dirs.live() as live:
        live.create("moved")
        fill(live)
        here, there = dirs.here_and_there(live)
        live.on_loop(lambda: live.context.throttles.use_rates(UNLIMITED, UNLIMITED, 0))
        live.on_loop(lambda: live.context.throttles.log_dirs.record(2**62, 1))
        assert alter(live, there) == [E.NONE]
        until(lambda: there in described(live))
        assert described(live)[there] == (0, COUNT, True)
        assert described(live)[here][1:] == (0, False)
        (name,) = dirs.folders()[dirs.paths.index(there)]
        assert name.startswith("moved-0.")
        assert name.endswith("-future")
        before = values(live)
    with dirs.live() as live:
        until(lambda: is_at(live, there))
        until(lambda: sorted(dirs.folders()) == [[], ["moved-0"]])
        assert values(live) == before


def test_a_move_ends_with_its_topic_and_when_it_is_called_back(dirs):
    with dirs.live(**STOPPED) as live:
        live.create("moved")
        fill(live)
        here, there = dirs.here_and_there(live)
        live.on_loop(lambda: live.context.throttles.log_dirs.record(2**62, 1))
        for end in (lambda: alter(live, here), lambda: delete(live)):
            assert alter(live, there) == [E.NONE]
            until(lambda: there in described(live))
            end()
            until(lambda: there not in described(live))
            until(lambda: dirs.folders()[dirs.paths.index(there)] == [])
        assert described(live) == {}


def delete(live):
    with live.client() as client:
        answer = client.ask(
            DeleteTopicsRequest(topic_names=["moved"], timeout_ms=9000), DeleteTopicsResponse, 5
        )
    assert answer.responses[0].error_code == 0


def test_what_cannot_be_moved_is_refused(dirs):
    with dirs.live() as live:
        live.create("moved")
        here, there = dirs.here_and_there(live)
        assert alter(live, here) == [E.NONE]
        assert alter(live, "/nowhere") == [E.LOG_DIR_NOT_FOUND]
        assert alter(live, there, TopicPartition("unknown", 0)) == [E.UNKNOWN_TOPIC_OR_PARTITION]
        (log_dir,) = (one for one in live.context.replicas.log_dirs.dirs if one.path == there)
        log_dir.fail("broken")
        assert alter(live, there) == [E.KAFKA_STORAGE_ERROR]
        assert list(described(live)) == [here]


class FaultyLogs(FaultyFiles):
    """Only the files of records are hit."""

    def _check(self, call, path):
        if path.endswith(".log"):
            super()._check(call, path)


@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
def test_a_disk_that_fails_ends_a_move_and_the_replica_stays(dirs, caplog, call):
    files = FaultyLogs()
    with Live("", dirs.settings, files=files) as live:
        live.create("moved", segment_bytes="2000")
        fill(live)
        before = values(live)
        here, there = dirs.here_and_there(live)
        files.break_(call, there, errno.EIO)
        assert alter(live, there) == [E.NONE]
        until(lambda: there in errors(live))
        assert f"the move of moved-0 to {there} ended, the disk failed" in caplog.text
        assert f"it stays in {here}/moved-0" in caplog.text
        assert errors(live) == {there: E.KAFKA_STORAGE_ERROR}
        assert list(described(live)) == [here]
        assert values(live) == before
        with live.client() as client:
            follows = batch(b"30", producer_id=7, producer_epoch=0, base_sequence=COUNT)
            assert client.produce("moved", follows).base_offset == COUNT
        assert alter(live, there) == [E.KAFKA_STORAGE_ERROR]
        files.repair()
    with dirs.live() as live:
        assert is_at(live, here)
        until(lambda: dirs.folders()[dirs.paths.index(there)] == [])
        assert live.replica(*AT).log_end_offset == COUNT + 1
        assert alter(live, there) == [E.NONE], "once the disk is repaired"
        until(lambda: is_at(live, there))


def errors(live):
    """Path -> error of the log dirs that have one."""
    with live.client() as client:
        answer = client.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    return {row.log_dir: row.error_code for row in answer.results if row.error_code}


def test_the_description_of_many_partitions_gives_turns_to_others(dirs):
    with dirs.live() as live:
        live.create("many", 30)
        steps = live.on_loop(
            lambda: sum(
                1 for _ in handle_describe_log_dirs(live.context, None, DescribeLogDirsRequest())
            )
        )
        assert steps == 30
