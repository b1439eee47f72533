"""Fetches of followers: they read up to the log's end, and what they ask for counts."""

import pytest

from headwater.broker import server_connection
from headwater.errors import E
from headwater.replication.throttles import UNLIMITED
from headwater.security.principals import BROKER, Principal
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from headwater.wire.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from tests.unit.broker.live import batch, fetch_request, until

FOLLOWER, STRANGER = 7, 8
LONG_MS = 60_000
VERSION = 17


@pytest.fixture(autouse=True)
def brokers_connect(monkeypatch):
    """Every client of these tests is a broker."""
    monkeypatch.setattr(server_connection, "ANONYMOUS", Principal(BROKER, str(FOLLOWER)))


@pytest.fixture
def led(live, topic):
    """The topic's replica, which leads with a follower that is in sync."""
    replica = live.replica(topic)
    node, epoch = live.context.node_id, replica.leader_epoch

    def led():
        replica.partition.led(0, epoch, 1, (node, FOLLOWER), (node, FOLLOWER), 0)

    live.on_loop(led)
    return replica


def request(live, replica, offset, *, who=FOLLOWER, broker_epoch=5, **more):
    more.setdefault("current_leader_epoch", replica.leader_epoch)
    body = fetch_request({(replica.topic_id, 0): offset}, version=VERSION, **more)
    body.replica_state = FetchRequest.ReplicaState(replica_id=who, replica_epoch=broker_epoch)
    return body


def fetch(live, client, replica, offset, **more):
    answer = client.ask(request(live, replica, offset, **more), FetchResponse, VERSION)
    return answer.responses[0].partitions[0]


def test_a_follower_reads_what_is_not_committed_and_commits_it_by_asking_on(live, client, led):
    topic = led.topic_partition.topic
    assert client.produce(topic, batch(b"one"), acks=1).error_code == 0
    got = fetch(live, client, led, 0)
    assert (got.error_code, got.high_watermark, bool(got.records)) == (0, 0, True)
    assert not client.fetch(topic, 0).records
    assert fetch(live, client, led, 1).high_watermark == 1
    assert client.fetch(topic, 0).records


def test_a_waiting_follower_wakes_when_the_log_grows_and_a_consumer_when_it_is_committed(live, led):
    topic = led.topic_partition.topic
    with live.client() as consumer, live.client() as follower, live.client() as producer:
        polled = consumer.send(fetch_request({(topic, 0): 0}, max_wait_ms=LONG_MS), 12)
        body = request(live, led, 0, max_wait_ms=LONG_MS)
        waiting = follower.send(body, VERSION)
        until(lambda: led.watchers and led.end_watchers)
        assert producer.produce(topic, batch(b"one"), acks=1).error_code == 0
        assert follower.answer(FetchResponse, VERSION, waiting).responses[0].partitions[0].records
        assert led.watchers
        assert not led.end_watchers
        assert fetch(live, follower, led, 1).high_watermark == 1
        assert consumer.answer(FetchResponse, 12, polled).responses[0].partitions[0].records


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        pytest.param({"who": STRANGER}, E.UNKNOWN_LEADER_EPOCH, id="no replica"),
        pytest.param({"current_leader_epoch": -1}, E.FENCED_LEADER_EPOCH, id="no epoch"),
        pytest.param({"broker_epoch": 4}, E.NOT_LEADER_OR_FOLLOWER, id="earlier life"),
        pytest.param({"offset": 9}, E.OFFSET_OUT_OF_RANGE, id="beyond the end"),
    ],
)
def test_who_is_no_follower_of_this_epoch_is_refused_and_counts_for_nothing(
    live, client, led, more, refusal
):
    assert client.produce(led.topic_partition.topic, batch(b"one"), acks=1).error_code == 0
    assert fetch(live, client, led, 0).error_code == 0
    refused = fetch(live, client, led, more.pop("offset", 1), **more)
    assert (refused.error_code, refused.log_start_offset) == (refusal, 0)
    assert led.high_watermark == 0


def test_a_follower_with_another_history_hears_where_it_ends_and_counts_for_nothing(
    live, client, led
):
    topic, epoch = led.topic_partition.topic, led.leader_epoch
    for _ in range(2):
        assert client.produce(topic, batch(b"one"), acks=1).error_code == 0
    live.on_loop(lambda: led.log.staging.begin_epoch(epoch + 1))
    live.on_loop(lambda: led.partition.led(0, epoch + 1, 2, (1, FOLLOWER), (1, FOLLOWER), 2))
    assert client.produce(topic, batch(b"two", b"three"), acks=1).error_code == 0
    got = fetch(live, client, led, 4, last_fetched_epoch=epoch)
    assert (got.error_code, got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (
        E.NONE,
        epoch,
        2,
    )
    assert (bool(got.records), led.high_watermark) == (False, 0)


class Session:
    """A follower that fetches in a session."""

    def __init__(self, live, client, replica):
        self.live, self.client, self.replica = live, client, replica
        self.epoch = 1
        first = client.ask(request(live, replica, 0, session=(0, 0)), FetchResponse, VERSION)
        self.id = first.session_id
        assert self.id

    def body(self, offset=None, max_wait_ms=0):
        more = {"session": (self.id, self.epoch), "max_wait_ms": max_wait_ms}
        body = request(self.live, self.replica, offset or 0, **more)
        if offset is None:
            body.topics = []
        self.epoch += 1
        return body

    def fetch(self, offset=None):
        """The rows of the answer; without an offset the request lists nothing."""
        answer = self.client.ask(self.body(offset), FetchResponse, VERSION)
        assert answer.error_code == 0
        return [row for topic in answer.responses for row in topic.partitions]


def test_a_fetch_looks_only_at_partitions_with_news_and_counts_for_all(live, client, led):
    topic = led.topic_partition.topic
    session = Session(live, client, led)
    watch = next(iter(led.end_watchers))
    assert watch.pending() == []
    assert session.fetch() == []
    progress = led.partition.followers[FOLLOWER]
    before = progress.caught_up_ms
    until(lambda: live.context.clock.monotonic_ms() > before + 2)
    assert session.fetch() == []
    assert client.produce(topic, batch(b"one"), acks=1).error_code == 0
    assert progress.caught_up_ms > before, "the quiet fetches count"
    (row,) = session.fetch()
    assert (bool(row.records), led.high_watermark) == (True, 0)
    (row,) = session.fetch(1)
    assert (row.high_watermark, watch.pending()) == (1, [])


def test_a_quiet_follower_hears_of_a_high_watermark_that_another_follower_moved(live, client, led):
    """After a failover nothing else would ever tell it, and consumers may read from it (KIP-392)."""
    topic, other = led.topic_partition.topic, FOLLOWER + 1
    three = (live.context.node_id, FOLLOWER, other)
    live.on_loop(lambda: led.partition.led(0, led.leader_epoch, 2, three, three, 0))
    session = Session(live, client, led)
    assert client.produce(topic, batch(b"one"), acks=1).error_code == 0
    assert session.fetch(1) == next(iter(led.end_watchers)).pending() == []
    live.on_loop(lambda: led.carry_out(led.partition.follower_fetched(0, other, 1, 0)))
    (row,) = session.fetch()
    assert row.high_watermark == 1
    assert session.fetch() == []


def test_a_follower_that_registered_again_is_known_by_its_new_epoch_in_quiet_partitions(
    live, client, led
):
    """The controller refuses an in-sync set that names an earlier registration of a member."""
    session = Session(live, client, led)
    assert next(iter(led.end_watchers)).pending() == []
    assert led.leading.broker_epoch(FOLLOWER) == 5
    body = session.body()
    body.replica_state.replica_epoch = 6
    assert client.ask(body, FetchResponse, VERSION).responses == []
    assert led.leading.broker_epoch(FOLLOWER) == 6
    assert next(iter(led.end_watchers)).pending() == []


def test_the_next_fetch_of_a_session_ends_the_wait_of_the_one_before(live, client, led):
    session = Session(live, client, led)
    waiting = client.send(session.body(max_wait_ms=LONG_MS), VERSION)
    until(lambda: next(iter(led.end_watchers)).fetch)
    following = client.send(session.body(0), VERSION)
    client.answer(FetchResponse, VERSION, waiting)
    client.answer(FetchResponse, VERSION, following)


def test_a_waiting_session_wakes_for_a_partition_that_it_left_alone(live, client, led):
    topic = led.topic_partition.topic
    session = Session(live, client, led)
    waiting = client.send(session.body(max_wait_ms=LONG_MS), VERSION)
    until(lambda: next(iter(led.end_watchers)).fetch)
    with live.client() as producer:
        assert producer.produce(topic, batch(b"one"), acks=1).error_code == 0
    answer = client.answer(FetchResponse, VERSION, waiting)
    assert answer.responses[0].partitions[0].records


def test_a_follower_out_of_sync_is_looked_at_by_every_fetch(live, client, led):
    """It may be let in only later, when nothing else happens in the partition."""
    session = Session(live, client, led)
    node, epoch = live.context.node_id, led.leader_epoch
    live.on_loop(lambda: led.leading.isr_stored((node,), epoch, 9))
    proposals = live.context.isr_proposals
    asked, before = [], proposals.propose
    proposals.propose = lambda replica, proposal: asked.append(proposal.isr)
    try:
        session.fetch()
        assert asked == [{node, FOLLOWER}]
        live.on_loop(lambda: led.partition.isr_refused(0))
        session.fetch()
        assert len(asked) == 2
    finally:
        proposals.propose = before


def test_a_new_session_of_a_connection_replaces_the_one_before(live, client, led):
    Session(live, client, led)
    Session(live, client, led)
    assert len(led.end_watchers) == 1


@pytest.mark.parametrize(
    ("version", "refusal"), [(5, E.OFFSET_NOT_AVAILABLE), (4, E.LEADER_NOT_AVAILABLE)]
)
def test_a_new_leader_names_no_end_before_it_knows_what_is_committed(
    live, client, led, version, refusal
):
    def ask(timestamp):
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsRequest.ListOffsetsTopic(
            name=led.topic_partition.topic, partitions=[wanted]
        )
        answer = client.ask(ListOffsetsRequest(topics=[topic]), ListOffsetsResponse, version)
        row = answer.topics[0].partitions[0]
        return row.error_code, row.offset

    assert client.produce(led.topic_partition.topic, batch(b"one"), acks=1).error_code == 0
    epoch = led.leader_epoch + 1
    live.on_loop(lambda: led.log.staging.begin_epoch(epoch))
    live.on_loop(lambda: led.partition.led(0, epoch, 5, (1, FOLLOWER), (1, FOLLOWER), 1))
    assert [ask(-1), ask(0), ask(-2)] == [(refusal, -1), (refusal, -1), (0, 0)]
    assert fetch(live, client, led, 1).error_code == 0
    assert ask(-1) == (0, 1)


# -- throttles


def test_a_throttle_keeps_records_from_a_follower_until_it_is_in_sync(live, client, led):
    topic, throttle = led.topic_partition.topic, live.context.throttles.leader
    node, epoch = live.context.node_id, led.leader_epoch
    assert client.produce(topic, batch(b"one"), acks=1).error_code == 0
    throttle.limit = 1
    live.on_loop(lambda: throttle.cover(topic, ["0:1"], node))
    try:
        assert fetch(live, client, led, 0).records, "it is in sync"
        assert throttle.is_exceeded(live.context.clock.monotonic_ms()), "but its bytes count"
        live.on_loop(lambda: led.leading.isr_stored((node,), epoch, 9))
        assert not fetch(live, client, led, 0).records
        assert client.fetch(topic, 0).records, "consumers are not throttled"
        live.on_loop(lambda: throttle.cover(topic, ["1:1", "0:2"], node))
        assert fetch(live, client, led, 0).records
        live.on_loop(lambda: throttle.cover(topic, ["*"], node))
        assert not fetch(live, client, led, 0).records
        live.on_loop(lambda: led.leading.isr_stored((node, FOLLOWER), epoch, 10))
        assert fetch(live, client, led, 0).records
    finally:
        live.context.throttles.use_rates(UNLIMITED, UNLIMITED)
        live.on_loop(lambda: throttle.cover(topic, (), node))


# -- consumers that read from followers


def test_a_follower_serves_consumers_below_its_own_high_watermark(live, client, led):
    topic, epoch = led.topic_partition.topic, led.leader_epoch
    for _ in range(2):
        assert client.produce(topic, batch(b"one"), acks=1).error_code == 0
    assert fetch(live, client, led, 1).error_code == 0
    live.on_loop(lambda: led.partition.followed(FOLLOWER, epoch, 3, (1, FOLLOWER), (1, FOLLOWER)))
    got = client.fetch(topic, 0, version=12, current_leader_epoch=epoch)
    assert (got.error_code, got.high_watermark, len(got.records)) == (0, 1, len(batch(b"one")))
    assert client.fetch(topic, 9, version=12).error_code == E.OFFSET_NOT_AVAILABLE
    assert client.fetch(topic, 0, version=10).error_code == E.NOT_LEADER_OR_FOLLOWER
    led.following.cutting = True
    assert client.fetch(topic, 0, version=12).error_code == E.NOT_LEADER_OR_FOLLOWER


def test_a_consumer_is_sent_to_the_longest_replica_of_its_rack_that_has_its_offset(led):
    leading, partition = led.leading, led.partition
    partition.led(0, led.leader_epoch, 4, (1, 2, 3, 4), (1, 2, 3), 10)
    for follower, end in ((2, 5), (3, 7), (4, 9)):
        partition.follower_fetched(0, follower, end, 1)
    racks = {1: "a", 2: "b", 3: "b", 4: "b", 5: "c"}
    assert leading.nearest("b", 4, racks) == 3, "4 is not in sync"
    assert leading.nearest("b", 8, racks) == 1, "none has the offset"
    assert leading.nearest("b", 0, racks) == 1, "none has it any more"
    assert leading.nearest("a", 4, racks) == 1
    assert leading.nearest("c", 4, racks) == 1
