"""Fetch (1), ListOffsets (2), OffsetForLeaderEpoch (23), DeleteRecords (21)."""

import time

from headwater.wire.messages.fetch import FetchRequest
from headwater.wire.messages.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from headwater.wire.messages.topics import DeleteRecordsRequest
from tests.compat.differential.batch import TIME, batch, record
from tests.compat.differential.peer import Line
from tests.compat.differential.scene import Scene, newest, scene, versions
from tests.compat.differential.scenes.producing import NAMED, produce

_Part = FetchRequest.FetchPartition


def fill(s: Scene, topic: str, batches: int = 3, count: int = 2, partition: int = 0) -> None:
    """Store batches of two records."""
    for _ in range(batches):
        answer = s.peer.call(produce(topic, batch(count=count), partition=partition), NAMED)
        assert answer.responses[0].partition_responses[0].error_code == 0


def fetch(
    s: Scene,
    topic: str,
    *partitions: _Part,
    offset: int = 0,
    **more: int,
) -> FetchRequest:
    """A request that fits versions by name and by id; `more` goes into the request."""
    wanted = list(partitions) or [_Part(fetch_offset=offset, partition_max_bytes=1 << 20)]
    topics = [
        FetchRequest.FetchTopic(
            topic=topic, topic_id=s.topic_ids.get(topic, b"\x07" * 16), partitions=wanted
        )
    ]
    return FetchRequest(topics=topics, **{"max_wait_ms": 0, "min_bytes": 0, **more})


@scene
def fetch_versions(s: Scene) -> None:
    s.topic("read", 2)
    fill(s, "read")
    for version in range(4, newest(FetchRequest) + 1):
        for offset in (-1, 0, 1, 2, 5, 6, 7):
            s.ask(f"offset {offset}", fetch(s, "read", offset=offset), version)
    for version in (*versions(FetchRequest), 12):
        s.ask("unknown topic", fetch(s, "absent"), version)
        unknown = _Part(partition=9, partition_max_bytes=100)
        s.ask("unknown partition", fetch(s, "read", unknown), version)
        good = _Part(partition=1, partition_max_bytes=100)
        s.ask("unknown and good", fetch(s, "read", unknown, good), version)
        s.ask("nothing", FetchRequest(), version)
    zero = fetch(s, "read")
    zero.topics[0].topic_id = bytes(16)
    s.ask("the zero id", zero, 13)


@scene
def fetch_epochs(s: Scene) -> None:
    s.topic("epochs")
    fill(s, "epochs")
    for current in (-1, 0, 1, 7):
        part = _Part(current_leader_epoch=current, partition_max_bytes=1 << 20)
        for version in (9, newest(FetchRequest)):
            s.ask(f"current epoch {current}", fetch(s, "epochs", part), version)
    for last in (-1, 0, 1, 5):
        for offset in (0, 3, 6, 9):
            part = _Part(last_fetched_epoch=last, fetch_offset=offset, partition_max_bytes=1 << 20)
            s.ask(f"last epoch {last} at {offset}", fetch(s, "epochs", part))


@scene
def fetch_sizes(s: Scene) -> None:
    s.topic("limits", 3)
    fill(s, "limits", 4)
    fill(s, "limits", 4, partition=1)
    for limit in (0, 1, 60, 100, 200, 300, 1000):
        parts = [_Part(partition=number, partition_max_bytes=limit) for number in (0, 1)]
        for version in (4, newest(FetchRequest)):
            s.ask(f"partition max {limit}", fetch(s, "limits", *parts), version)
        wide = [_Part(partition=number, partition_max_bytes=1 << 20) for number in (0, 1)]
        s.ask(f"max {limit}", fetch(s, "limits", *wide, max_bytes=limit))
        inside = [_Part(partition=n, partition_max_bytes=limit, fetch_offset=3) for n in (1, 0)]
        s.ask(f"partition max {limit} inside a batch", fetch(s, "limits", *inside))
    s.ask("negative max", fetch(s, "limits", max_bytes=-1))
    s.ask("negative partition max", fetch(s, "limits", _Part(partition_max_bytes=-1)))
    s.ask("negative min", fetch(s, "limits", min_bytes=-1))
    s.ask("committed only", fetch(s, "limits", isolation_level=1))
    s.ask("isolation 7", fetch(s, "limits", isolation_level=7))
    twice = [_Part(partition_max_bytes=100), _Part(fetch_offset=4, partition_max_bytes=100)]
    s.ask("a partition twice", fetch(s, "limits", *twice))
    s.ask("a partition twice", fetch(s, "limits", *twice), 4)


@scene
def fetch_as_a_replica(s: Scene) -> None:
    s.topic("followed")
    fill(s, "followed")
    for replica in (-2, -3, 0, 1, 5):
        s.ask(f"as {replica}", fetch(s, "followed", replica_id=replica), 11)
    state = fetch(s, "followed")
    state.replica_state = FetchRequest.ReplicaState(replica_id=7, replica_epoch=1)
    s.ask("as 7 with an epoch", state)


@scene
def fetch_waits(s: Scene) -> None:
    s.topic("slow")
    with s.line() as line:
        for label, request in {
            "nothing there": fetch(s, "slow", max_wait_ms=400, min_bytes=1),
            "no minimum": fetch(s, "slow", max_wait_ms=400, min_bytes=0),
            "unknown partition": fetch(s, "slow", _Part(partition=5), max_wait_ms=400, min_bytes=1),
            "out of range": fetch(s, "slow", offset=3, max_wait_ms=400, min_bytes=1),
            "empty": FetchRequest(max_wait_ms=400, min_bytes=1),
        }.items():
            _timed(s, label, line, request)
        fill(s, "slow", 1)
        _timed(s, "less than asked for", line, fetch(s, "slow", max_wait_ms=400, min_bytes=500))
        _timed(s, "enough", line, fetch(s, "slow", max_wait_ms=400, min_bytes=1))
        line.send(fetch(s, "slow", offset=2, max_wait_ms=10_000, min_bytes=1), 12)
        fill(s, "slow", 1)
        s.hear("woken by a record", line)


def _timed(s: Scene, label: str, line: Line, request: FetchRequest) -> None:
    start = time.monotonic()
    line.send(request, 12)
    s.hear(label, line)
    s.note(f"{label} waits", time.monotonic() - start > 0.35)


@scene
def fetch_sessions(s: Scene) -> None:
    s.topic("session", 3)
    for version in (7, 12, newest(FetchRequest)):
        _one_session(s, version)
    for label, session, epoch in (
        ("unknown session", 123456, 1),
        ("unknown session, final", 123456, -1),
        ("unknown session, full", 123456, 0),
        ("no session, epoch 5", 0, 5),
        ("session without an epoch", 5, -1),
        ("epoch -2", 0, -2),
    ):
        request = fetch(s, "session", session_id=session, session_epoch=epoch)
        s.ask(label, request)
        s.ask(label, FetchRequest(session_id=session, session_epoch=epoch))


def _one_session(s: Scene, version: int) -> None:
    parts = [_Part(partition=number, partition_max_bytes=1 << 20) for number in range(3)]

    def go(label: str, epoch: int, *wanted: _Part, **more: object) -> None:
        request = fetch(s, "session", *wanted, session_id=session, session_epoch=epoch)
        if not wanted:
            request.topics = []
        for name, value in more.items():
            setattr(request, name, value)
        s.ask(label, request, version)

    opened = s.ask("open", fetch(s, "session", *parts, session_epoch=0), version)
    session = opened.session_id
    go("nothing new", 1)
    fill(s, "session", 1, partition=1)
    go("one has records", 2)
    go("asked again from the same place", 3)
    end = s.peer.call(
        ListOffsetsRequest(
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name="session",
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(partition_index=1, timestamp=-1)
                    ],
                )
            ],
            replica_id=-1,
        ),
        7,
    )
    offset = end.topics[0].partitions[0].offset
    go("moved on", 4, _Part(partition=1, fetch_offset=offset, partition_max_bytes=1 << 20))
    go("nothing new", 5)
    forgotten = FetchRequest.ForgottenTopic(
        topic="session", topic_id=s.topic_ids["session"], partitions=[2]
    )
    go("one is forgotten", 6, forgotten_topics_data=[forgotten])
    fill(s, "session", 1, partition=2)
    go("it is not told any more", 7)
    go("wrong epoch", 20)
    go("wrong epoch, in the past", 3)
    go("unknown partition joins", 8, _Part(partition=9, partition_max_bytes=100))
    go("and is told each time", 9)
    all_gone = FetchRequest.ForgottenTopic(
        topic="session", topic_id=s.topic_ids["session"], partitions=[0, 1, 9]
    )
    go("all are forgotten", 10, forgotten_topics_data=[all_gone])
    go("after that", 11)
    again = s.ask("open", fetch(s, "session", *parts[:1], session_epoch=0), version)
    session = again.session_id
    go("replaced", 0, *parts[:2])
    again = s.ask("open", fetch(s, "session", *parts[:1], session_epoch=0), version)
    session = again.session_id
    go("closed", -1)
    go("closed already", 1)


@scene
def fetch_session_that_changes_its_language(s: Scene) -> None:
    s.topic("tongues")
    for first, then in ((12, 13), (13, 12), (7, 12), (13, newest(FetchRequest))):
        opened = s.ask(f"open before {then}", fetch(s, "tongues", session_epoch=0), first)
        request = fetch(s, "tongues", session_id=opened.session_id, session_epoch=1)
        s.ask(f"go on after {first}", request, then)
        request.topics = []
        s.ask(f"go on with nothing after {first}", request, then)


def list_offsets(topic: str, *times: int, partition: int = 0, **more: int) -> ListOffsetsRequest:
    """One partition asked about per time."""
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=partition, timestamp=time, **more
                    )
                ],
            )
            for time in times
        ],
    )


@scene
def list_offsets_by_time(s: Scene) -> None:
    s.topic("ends", 2)
    rows = [
        batch(record(time=TIME), record(time=TIME + 50)),
        batch(record(time=TIME + 20), record(time=TIME + 90), record(time=TIME + 90)),
        batch(record(time=TIME + 90)),
        batch(record(time=TIME + 10)),
    ]
    for made in rows:
        s.peer.call(produce("ends", made), NAMED)
    times = [*range(-8, 1), *(TIME + n for n in (-1, 0, 1, 20, 21, 50, 51, 89, 90, 91))]
    for version in range(1, newest(ListOffsetsRequest) + 1):
        for wanted in times:
            s.ask(f"time {wanted}", list_offsets("ends", wanted), version)
    for version in versions(ListOffsetsRequest):
        for special in range(-6, 0):
            request = list_offsets("ends", special, partition=1)
            s.ask(f"empty partition, time {special}", request, version)
        s.ask("unknown topic", list_offsets("absent", -1), version)
        s.ask("bad name", list_offsets("no/slash", -1), version)
        s.ask("unknown partition", list_offsets("ends", -1, partition=9), version)
        s.ask("a topic twice", list_offsets("ends", -1, -2), version)
        s.ask("nothing", ListOffsetsRequest(replica_id=-1), version)
    twice = list_offsets("ends", -1)
    twice.topics[0].partitions *= 2
    s.ask("a partition twice", twice)
    s.ask("a partition twice", twice, 1)
    for current in (-1, 0, 1, 7):
        for wanted in (-1, -2, TIME):
            request = list_offsets("ends", wanted, current_leader_epoch=current)
            s.ask(f"epoch {current} time {wanted}", request)
    for replica in (-3, -2, 0, 1, 7):
        request = list_offsets("ends", -1)
        request.replica_id = replica
        s.ask(f"as replica {replica}", request)
    for level in (1, 5):
        request = list_offsets("ends", -1)
        request.isolation_level = level
        s.ask(f"isolation {level}", request)


def _epochs(topic: str, current: int, wanted: int, partition: int = 0, replica: int = -1):
    part = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=wanted
    )
    topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[part])]
    return OffsetForLeaderEpochRequest(replica_id=replica, topics=topics)


@scene
def offset_for_leader_epoch(s: Scene) -> None:
    s.topic("leaders", 2)
    fill(s, "leaders")
    for version in versions(OffsetForLeaderEpochRequest):
        for current in (-1, 0, 1):
            for wanted in (-2, -1, 0, 1, 9):
                request = _epochs("leaders", current, wanted)
                s.ask(f"epoch {wanted}, current {current}", request, version)
        s.ask("empty partition", _epochs("leaders", -1, 0, 1), version)
        s.ask("unknown partition", _epochs("leaders", -1, 0, 9), version)
        s.ask("unknown topic", _epochs("absent", -1, 0), version)
        s.ask("nothing", OffsetForLeaderEpochRequest(replica_id=-1), version)
    for replica in (-2, 0, 1, 5):
        s.ask(f"as replica {replica}", _epochs("leaders", -1, 0, replica=replica))


def _ends(s: Scene, when: str) -> None:
    for wanted in (-1, -2, -3, -4, TIME):
        s.ask(f"ends {when}: {wanted}", list_offsets("shorter", wanted))


@scene
def delete_records(s: Scene) -> None:
    s.topic("shorter", 2)
    s.topic("kept", configs={"cleanup.policy": "compact"})
    fill(s, "shorter", 5)
    fill(s, "kept")

    def cut(label: str, version: int, offset: int, topic: str = "shorter", part: int = 0) -> None:
        row = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=part, offset=offset)
        wanted = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[row])
        s.ask(label, DeleteRecordsRequest(topics=[wanted], timeout_ms=5000), version)

    for version in versions(DeleteRecordsRequest):
        for offset in (3, 2, 0, 3, -2, -5, 11, 1000):
            cut(f"to {offset}", version, offset)
        cut("unknown topic", version, 1, "absent")
        cut("unknown partition", version, 1, part=9)
        cut("compacted", version, 1, "kept")
        cut("bad name", version, 1, "no/slash")
        s.ask("nothing", DeleteRecordsRequest(timeout_ms=100), version)
        _ends(s, "after")
        for offset in (0, 2, 3, 4, 5):
            s.ask(f"read from {offset}", fetch(s, "shorter", offset=offset))
    cut("everything", 2, -1)
    cut("everything again", 2, -1)
    _ends(s, "of nothing")
    s.ask("epoch end of nothing", _epochs("shorter", -1, 0))
    cut("of an empty partition", 2, -1, part=1)
    cut("of an empty partition to 0", 2, 0, part=1)
