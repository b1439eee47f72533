"""Fetch: limits, progress, long polls, sessions, epochs."""

import errno
from unittest.mock import Mock

import pytest

from headwater.broker.handlers.fetch import LONG, _Fetch
from headwater.broker.server_connection import MAX_POLLS
from headwater.errors import E
from headwater.log.segment import Cold, Segment
from headwater.log.slices import MAPPED_FROM, FileSlice
from headwater.records.batch import batches
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from headwater.wire.messages.produce import ProduceResponse
from tests.unit.broker.live import batch, fetch_request, produce_request, until

VERSIONS = range(4, 19)
LONG_MS = 30_000


def offsets(records) -> list[int]:
    return [header.base_offset for _, header in batches(bytes(records))]


def fill(client, topic, count=5, size=1000, partition=0) -> None:
    for number in range(count):
        answer = client.produce(topic, batch(b"%d" % number + b"x" * size), partition=partition)
        assert answer.error_code == 0


# -- versions


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_the_same_records(live, topic, client, version):
    fill(client, topic, 3)
    name = live.context.metadata.topic_id(topic) if version >= 13 else topic
    found = client.fetch(name, 1, version=version)
    assert offsets(found.records) == [1, 2]
    assert (found.high_watermark, found.last_stable_offset, found.error_code) == (3, 3, 0)


# -- limits and the progress rule


def test_whole_batches_up_to_the_partitions_limit(live, topic, client):
    fill(client, topic)
    size = len(batch(b"0" + b"x" * 1000))
    assert offsets(client.fetch(topic, partition_max_bytes=2 * size).records) == [0, 1]
    assert offsets(client.fetch(topic, partition_max_bytes=3 * size - 1).records) == [0, 1]


@pytest.mark.parametrize("limit", [-1, 0, 1, 100])
def test_the_first_batch_comes_whatever_the_limits_say(live, topic, client, limit):
    fill(client, topic)
    found = client.fetch(topic, partition_max_bytes=limit, max_bytes=limit)
    assert offsets(found.records) == [0]


def test_only_the_first_partition_with_data_may_exceed_the_limits(live, client):
    live.create("three", 3)
    for partition in range(3):
        fill(client, "three", 2, partition=partition)
    wanted = {("three", 0): 2, ("three", 1): 0, ("three", 2): 0}
    answer = client.ask(fetch_request(wanted, max_bytes=10), FetchResponse, 12)
    found = {row.partition_index: row for row in answer.responses[0].partitions}
    assert [offsets(found[index].records) for index in range(3)] == [[], [0], []]


def test_the_requests_limit_is_shared_in_the_order_of_the_request(live, client):
    live.create("shared", 2)
    for partition in range(2):
        fill(client, "shared", 3, partition=partition)
    size = len(batch(b"0" + b"x" * 1000))
    answer = client.ask(
        fetch_request({("shared", 1): 0, ("shared", 0): 0}, max_bytes=4 * size), FetchResponse, 12
    )
    assert [(row.partition_index, offsets(row.records)) for row in answer.responses[0].partitions] == [
        (1, [0, 1, 2]),
        (0, [0]),
    ]  # fmt: skip


def test_a_batch_is_given_whole_to_one_who_asks_for_its_middle(live, topic, client):
    client.produce(topic, batch(b"a", b"b", b"c"))
    assert offsets(client.fetch(topic, 1).records) == [0]


@pytest.mark.parametrize("offset", [-5, -1, 6, 2**62])
def test_an_offset_outside_the_log_is_refused_at_once(live, topic, client, offset):
    fill(client, topic)
    found = client.fetch(topic, offset, max_wait_ms=LONG_MS)
    assert (found.error_code, found.high_watermark) == (E.OFFSET_OUT_OF_RANGE, -1)


def test_unknown_partitions_are_told_beside_known_ones(live, topic, client):
    fill(client, topic)
    wanted = {(topic, 0): 0, (topic, 7): 0, ("nowhere", 0): 0}
    answer = client.ask(fetch_request(wanted, max_wait_ms=LONG_MS), FetchResponse, 12)
    found = {
        (topic.topic, row.partition_index): row.error_code
        for topic in answer.responses
        for row in topic.partitions
    }
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {(topic, 0): 0, (topic, 7): unknown, ("nowhere", 0): unknown}


def test_a_client_may_not_pose_as_a_follower(live, topic, client):
    fill(client, topic)
    for version, state in ((12, {"replica_id": 1}), (16, {})):
        name = live.context.metadata.topic_id(topic) if version >= 13 else topic
        request = fetch_request({(name, 0): 3}, version=version)
        for key, value in state.items():
            setattr(request, key, value)
        if not state:
            request.replica_state = FetchRequest.ReplicaState(replica_id=1, replica_epoch=1)
        answer = client.ask(request, FetchResponse, version)
        assert answer.responses[0].partitions[0].error_code == E.TOPIC_AUTHORIZATION_FAILED


# -- long polls


def test_a_poll_is_answered_as_soon_as_there_is_something(live, topic, client):
    waiting = client.send(fetch_request({(topic, 0): 0}, max_wait_ms=LONG_MS), 12)
    until(lambda: live.replica(topic).watchers)
    with live.client() as producer:
        producer.produce(topic, batch())
    found = client.answer(FetchResponse, 12, waiting).responses[0].partitions[0]
    assert offsets(found.records) == [0]
    assert not live.replica(topic).watchers


def test_a_poll_waits_for_its_minimum(live, topic, client):
    one = batch(b"x" * 1000)
    request = fetch_request({(topic, 0): 0}, max_wait_ms=LONG_MS, min_bytes=2 * len(one) + 1)
    waiting = client.send(request, 12)
    until(lambda: live.replica(topic).watchers)
    with live.client() as producer:
        for count in (1, 2):
            producer.produce(topic, one)
            assert live.replica(topic).watchers, f"{count} batches are too little"
        producer.produce(topic, one)
    found = client.answer(FetchResponse, 12, waiting).responses[0].partitions[0]
    assert offsets(found.records) == [0, 1, 2]


def test_a_minimum_may_be_met_by_several_partitions_together(live, client):
    live.create("together", 2)
    one = batch(b"x" * 1000)
    wanted = {("together", 0): 0, ("together", 1): 0}
    waiting = client.send(fetch_request(wanted, max_wait_ms=LONG_MS, min_bytes=2 * len(one)), 12)
    until(lambda: live.replica("together").watchers)
    with live.client() as producer:
        producer.produce("together", one, partition=0)
        producer.produce("together", one, partition=1)
    answer = client.answer(FetchResponse, 12, waiting)
    assert [offsets(row.records) for row in answer.responses[0].partitions] == [[0], [0]]


def test_a_poll_that_waited_long_enough_gets_what_there_is(live, topic, client):
    fill(client, topic, 1)
    request = fetch_request({(topic, 0): 0}, max_wait_ms=30, min_bytes=10**6)
    found = client.ask(request, FetchResponse, 12).responses[0].partitions[0]
    assert offsets(found.records) == [0]
    empty = client.fetch(topic, 1, max_wait_ms=30)
    assert (empty.records, empty.error_code) == (b"", 0)


def test_a_poll_on_a_deleted_topic_is_told_at_once(live, topic, client):
    from headwater.wire.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse

    waiting = client.send(fetch_request({(topic, 0): 0}, max_wait_ms=LONG_MS), 12)
    until(lambda: live.replica(topic).watchers)
    with live.client() as admin:
        names = [DeleteTopicsRequest.DeleteTopicState(name=topic)]
        admin.ask(DeleteTopicsRequest(topics=names, timeout_ms=9000), DeleteTopicsResponse, 6)
    found = client.answer(FetchResponse, 12, waiting).responses[0].partitions[0]
    assert found.error_code in {E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_LEADER_OR_FOLLOWER}


def test_the_poll_of_a_client_that_left_is_forgotten(live, topic):
    with live.client() as client:
        client.send(fetch_request({(topic, 0): 0}, max_wait_ms=2**31 - 1), 12)
        until(lambda: live.replica(topic).watchers)
    until(lambda: not live.replica(topic).watchers, "for the poll to go")


def test_no_poll_outlasts_the_time_after_which_silent_clients_are_let_go(live, topic, client):
    client.send(fetch_request({(topic, 0): 0}, max_wait_ms=2**31 - 1), 12)
    until(lambda: live.replica(topic).watchers)
    (poll,) = live.replica(topic).watchers
    assert poll.max_wait_ms == live.context.settings.connections_max_idle_ms


def test_one_client_has_few_polls_at_a_time_and_all_are_answered(live, topic, client):
    waiting = [
        client.send(fetch_request({(topic, 0): 0}, max_wait_ms=LONG_MS), 12) for _ in range(20)
    ]
    until(lambda: len(live.replica(topic).watchers) == MAX_POLLS)
    with live.client() as producer:
        producer.produce(topic, batch())
    for number in waiting:
        assert client.answer(FetchResponse, 12, number).responses[0].partitions[0].records


def test_a_wake_that_brings_nothing_is_not_counted_twice(live, topic, client):
    """Woken again and again without new bytes, a poll must neither grow nor add up old ones."""
    waiting = client.send(fetch_request({(topic, 0): 0}, max_wait_ms=LONG_MS), 12)
    replica = live.replica(topic)
    until(lambda: replica.watchers)
    for _ in range(50):
        live.on_loop(replica.wake_watchers)
    (fetch,) = replica.watchers
    until(lambda: not fetch._woken)
    with live.client() as producer:
        producer.produce(topic, batch())
    assert client.answer(FetchResponse, 12, waiting).responses[0].partitions[0].records


# -- sessions over the wire


def session_fetch(client, wanted, session, version=12, **more):
    return client.ask(fetch_request(wanted, session=session, **more), FetchResponse, version)


def test_a_session_names_its_partitions_once(live, topic, client):
    first = session_fetch(client, {(topic, 0): 0}, (0, 0))
    assert first.session_id > 0
    assert len(first.responses) == 1
    quiet = session_fetch(client, {}, (first.session_id, 1))
    assert (quiet.session_id, quiet.responses) == (first.session_id, [])
    with live.client() as producer:
        producer.produce(topic, batch())
    told = session_fetch(client, {}, (first.session_id, 2))
    assert offsets(told.responses[0].partitions[0].records) == [0]
    moved = session_fetch(client, {(topic, 0): 1}, (first.session_id, 3))
    assert moved.responses == [], "read to its end, nothing has changed since"


def test_a_wrong_session_epoch_and_an_unknown_session(live, topic, client):
    first = session_fetch(client, {(topic, 0): 0}, (0, 0))
    wrong = session_fetch(client, {}, (first.session_id, 9))
    assert wrong.error_code == E.INVALID_FETCH_SESSION_EPOCH
    assert session_fetch(client, {}, (1, 1)).error_code == E.FETCH_SESSION_ID_NOT_FOUND


def test_forgotten_partitions_are_not_answered(live, client):
    live.create("forget", 2)
    first = session_fetch(client, {("forget", 0): 0, ("forget", 1): 0}, (0, 0))
    for partition in range(2):
        fill(client, "forget", 1, partition=partition)
    request = fetch_request({}, session=(first.session_id, 1))
    request.forgotten_topics_data = [FetchRequest.ForgottenTopic(topic="forget", partitions=[0])]
    answer = client.ask(request, FetchResponse, 12)
    assert [row.partition_index for row in answer.responses[0].partitions] == [1]


def test_a_session_by_name_cannot_go_on_by_id(live, topic, client):
    first = session_fetch(client, {(topic, 0): 0}, (0, 0))
    flipped = client.ask(
        fetch_request({}, version=13, session=(first.session_id, 1)), FetchResponse, 13
    )
    assert flipped.error_code == E.FETCH_SESSION_TOPIC_ID_ERROR


def test_an_unknown_topic_id_is_told_for_its_partitions(live, client):
    found = client.fetch(b"\7" * 16, version=13, max_wait_ms=LONG_MS)
    assert found.error_code == E.UNKNOWN_TOPIC_ID


# -- epochs


def test_epochs_fence_old_clients_and_tell_those_ahead(live, topic, client):
    fill(client, topic, 1)
    epoch = live.replica(topic).partition.leader_epoch
    assert client.fetch(topic, current_leader_epoch=epoch).error_code == 0
    ahead = client.fetch(topic, current_leader_epoch=epoch + 1, max_wait_ms=LONG_MS)
    assert ahead.error_code == E.UNKNOWN_LEADER_EPOCH
    if epoch:
        old = client.fetch(topic, current_leader_epoch=epoch - 1)
        assert old.error_code == E.FENCED_LEADER_EPOCH


def test_a_history_that_leaves_the_logs_is_told_where(live, topic, client):
    fill(client, topic, 4)
    epoch = live.replica(topic).partition.leader_epoch
    assert client.fetch(topic, 4, last_fetched_epoch=epoch).diverging_epoch.epoch == -1
    beyond = client.fetch(topic, 9, last_fetched_epoch=epoch, max_wait_ms=LONG_MS)
    assert (beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (epoch, 4)
    assert (beyond.records, beyond.error_code) == (b"", 0)


def test_a_reader_that_has_seen_a_newer_epoch_is_ahead_of_this_leader(live, topic, client):
    """Its offset may be fine: a leader that was deposed in its sleep must not call it gone."""
    fill(client, topic, 4)
    epoch = live.replica(topic).partition.leader_epoch
    unknown = client.fetch(topic, 4, last_fetched_epoch=epoch + 3, max_wait_ms=LONG_MS)
    assert unknown.error_code == E.UNKNOWN_LEADER_EPOCH


# -- cold bytes


def test_what_the_page_cache_lacks_is_read_on_a_file_thread(live, topic, client, monkeypatch):
    fill(client, topic, 3)
    replica = live.replica(topic)
    warm = client.fetch(topic).records
    cold = Mock(side_effect=Cold)
    monkeypatch.setattr(type(replica.log.segments.active), "read_cached", cold)
    answer = client.fetch(topic)
    assert cold.called
    assert answer.error_code == 0
    assert bytes(answer.records) == bytes(warm)


def test_what_the_kernel_reads_ahead_of_a_cold_read_is_read_on_a_thread_too(
    live, topic, client, monkeypatch
):
    fill(client, topic, 6, size=MAPPED_FROM)
    segment = live.replica(topic).log.segments.active
    step = segment.size // 6
    monkeypatch.setattr("headwater.log.segment.READ_AHEAD", step)
    in_memory = {1, 2}
    mapped_now, off_loop = Segment.mapped_now, live.context.off_loop
    monkeypatch.setattr(FileSlice, "load_now", lambda piece: None)
    monkeypatch.setattr(
        Segment,
        "mapped_now",
        lambda own, size, position: (
            mapped_now(own, size, position) if position // step in in_memory else None
        ),
    )
    threads = []
    monkeypatch.setattr(
        live.context, "off_loop", lambda *call: (threads.append(call), off_loop(*call))
    )

    def fetch_uses_a_thread(offset) -> bool:
        threads.clear()
        answer = client.fetch(topic, offset, partition_max_bytes=step)
        assert offsets(answer.records) == [offset]
        return bool(threads)

    assert [fetch_uses_a_thread(offset) for offset in range(3)] == [True, True, True]
    in_memory = {3, 4, 5}
    # Somebody else has read what lies beyond the reach of the kernel.
    assert [fetch_uses_a_thread(offset) for offset in (3, 4, 5)] == [False, False, False]


def test_a_cold_read_that_fails_is_an_error_of_that_partition(live, client, monkeypatch):
    live.create("cold", 2)
    for partition in range(2):
        fill(client, "cold", 1, partition=partition)
    bad = live.replica("cold", 1).log.segments.active.path
    load = FileSlice.load_up_to

    def failing(piece, most):
        if piece.segment.path == bad:
            raise OSError(errno.EACCES, "unreadable")
        return load(piece, most)

    monkeypatch.setattr(FileSlice, "load_now", lambda piece: None)
    monkeypatch.setattr(FileSlice, "load_up_to", failing)
    answer = client.ask(fetch_request({("cold", 0): 0, ("cold", 1): 0}), FetchResponse, 12)
    rows = {row.partition_index: row for row in answer.responses[0].partitions}
    assert rows[1].error_code == E.KAFKA_STORAGE_ERROR
    assert (rows[0].error_code, offsets(rows[0].records)) == (0, [0])


def test_answers_behind_a_cold_read_keep_their_order(live, topic, client, monkeypatch):
    fill(client, topic, 1)
    monkeypatch.setattr(FileSlice, "load_now", lambda piece: None)
    cold = client.send(fetch_request({(topic, 0): 0}), 12)
    quick = client.send(produce_request(topic, batch()), 9)
    client.answer(FetchResponse, 12, cold)
    client.answer(ProduceResponse, 9, quick)


# -- many partitions


@pytest.fixture(scope="module")
def many(live):
    live.create("many", LONG + 20)
    with live.client() as client:
        fill(client, "many", 2, size=10, partition=3)
        fill(client, "many", 1, size=10, partition=LONG + 19)
    return {("many", partition): 0 for partition in range(LONG + 20)}


def rows(answer):
    return {row.partition_index: row for topic in answer.responses for row in topic.partitions}


def test_a_fetch_of_many_partitions_gives_what_small_ones_give(live, client, many):
    found = rows(client.ask(fetch_request(many, max_wait_ms=LONG_MS), FetchResponse, 12))
    assert len(found) == LONG + 20
    with_bytes = {index: offsets(row.records) for index, row in found.items() if row.records}
    with_bytes.pop(LONG + 1, None)  # written by another test
    assert with_bytes == {3: [0, 1], LONG + 19: [0]}
    assert found[3].high_watermark == 2


def test_a_parked_fetch_of_many_partitions_is_woken_by_any_of_them(live, client, many):
    ends = {**many, ("many", 3): 2, ("many", LONG + 19): 1}
    client.send(fetch_request(ends, max_wait_ms=LONG_MS), 12)
    until(lambda: live.on_loop(lambda: len(live.context.purgatory)))
    with live.client() as other:
        other.produce("many", batch(b"x"), partition=LONG + 1)
    found = rows(client.answer(FetchResponse, 12))
    assert [index for index, row in found.items() if row.records] == [LONG + 1]
    assert not live.replica("many", 5).watchers


def test_partitions_that_grow_while_others_are_looked_at_are_not_missed(live, client):
    """Each is watched before it is looked at: what comes in between wakes the fetch."""
    live.create("racing", 2 * LONG)
    live.on_loop(
        lambda: [one.log.epochs.save() for one in live.context.replicas.of_topic("racing")]
    )
    turns, replicas, grown = live.context.turns, live.context.replicas, []
    original = turns._next_turn

    def next_turn():
        half_done = replicas.get("racing", 0).watchers
        if half_done and not replicas.get("racing", 2 * LONG - 1).watchers and not grown:
            grown.append(True)
            for partition in range(2 * LONG):
                replicas.get("racing", partition).built.append(bytearray(batch(b"x")), Ignored())
        original()

    live.on_loop(lambda: setattr(turns, "_next_turn", next_turn))
    try:
        everything = {("racing", partition): 0 for partition in range(2 * LONG)}
        answer = client.ask(fetch_request(everything, max_wait_ms=LONG_MS), FetchResponse, 12)
    finally:
        live.on_loop(lambda: delattr(turns, "_next_turn"))
    assert grown
    assert [index for index, row in rows(answer).items() if not row.records] == []


class Ignored:
    """A batch whose fate nobody asks for."""

    parked = False
    base_offset = last_offset = append_time = -1

    def park(self):
        self.parked = True

    def complete(self):
        pass

    def fail(self, failure):
        raise failure


def test_waking_a_wide_fetch_looks_only_at_what_woke_it(live, client, monkeypatch):
    live.create("watched", LONG)
    looked = []
    find = _Fetch._find

    def counted(self, part):
        looked.append(part.want.key)
        find(self, part)

    monkeypatch.setattr(_Fetch, "_find", counted)
    client.send(fetch_request({("watched", n): 0 for n in range(LONG)}, max_wait_ms=LONG_MS), 12)
    until(lambda: len(looked) == LONG)
    looked.clear()
    with live.client() as other:
        other.produce("watched", batch(b"x"), partition=7)
    assert [index for index, row in rows(client.answer(FetchResponse, 12)).items() if row.records]
    assert looked == [("watched", 7)]


def test_a_fetch_that_waits_for_more_bytes_adds_up_what_its_partitions_bring(live, client):
    live.create("summing", 2)
    size = len(batch(b"0"))
    client.send(
        fetch_request(
            {("summing", 0): 0, ("summing", 1): 0}, max_wait_ms=LONG_MS, min_bytes=2 * size
        ),
        12,
    )
    until(lambda: live.on_loop(lambda: len(live.context.purgatory)))
    with live.client() as other:
        other.produce("summing", batch(b"0"), partition=0)
        other.produce("summing", batch(b"1"), partition=1)
    found = rows(client.answer(FetchResponse, 12))
    assert [offsets(found[index].records) for index in range(2)] == [[0], [0]]


@pytest.mark.parametrize("times", [3, LONG + 50])
@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
def test_a_partition_that_is_named_many_times_is_checked_once(
    live, client, monkeypatch, times, session
):
    """The last one counts, as with Apache Kafka."""
    topic = f"repeated-{times}-{session[1]}"
    live.create(topic, 1)
    fill(client, topic, 2)
    request = fetch_request(
        {(topic, 0): 2}, max_wait_ms=LONG_MS, min_bytes=500_000, session=session
    )
    (named,) = request.topics
    last, named.partitions = named.partitions, []
    first = fetch_request({(topic, 0): 0}).topics[0].partitions
    named.partitions = [*first * (times - 1), *last]
    looked = []
    find = _Fetch._find

    def counted(self, part):
        looked.append(part.want.fetch_offset)
        find(self, part)

    monkeypatch.setattr(_Fetch, "_find", counted)
    client.send(request, 12)
    until(lambda: live.on_loop(lambda: len(live.context.purgatory)))
    with live.client() as other:
        for count in range(1, 4):
            other.produce(topic, batch(b"x"))
            assert looked == [2] * (1 + count)
        other.produce(topic, batch(b"x" * 500_000))
    (row,) = client.answer(FetchResponse, 12).responses[0].partitions
    assert offsets(row.records)[0] == 2
