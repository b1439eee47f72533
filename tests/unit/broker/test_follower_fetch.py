"""Fetches of followers: they read up to the log's end, and what they ask for counts."""

import pytest

from headwater.errors import E
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from tests.unit.broker.live import batch, fetch_request, until

FOLLOWER, STRANGER = 7, 8
LONG_MS = 60_000
VERSION = 17


class AllowBrokers:
    """Every client may act as a broker."""

    def authorize(self, principal, host, operation, resource_type, name):
        return True


@pytest.fixture(autouse=True)
def brokers_allowed(live):
    before, live.context.authorizer = live.context.authorizer, AllowBrokers()
    yield
    live.context.authorizer = before


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
    live.on_loop(lambda: led.partition.led(0, epoch + 1, 2, (0, FOLLOWER), (0, FOLLOWER), 2))
    assert client.produce(topic, batch(b"two", b"three"), acks=1).error_code == 0
    got = fetch(live, client, led, 4, last_fetched_epoch=epoch)
    assert (got.error_code, got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (
        E.NONE,
        epoch,
        2,
    )
    assert (bool(got.records), led.high_watermark) == (False, 0)


def test_an_in_session_follower_is_counted_by_each_fetch(live, client, led):
    """An incremental fetch means all partitions of its session."""
    topic = led.topic_partition.topic
    first = client.ask(request(live, led, 0, session=(0, 0)), FetchResponse, VERSION)
    assert first.session_id
    assert client.produce(topic, batch(b"one"), acks=1).error_code == 0
    before = led.partition.followers[FOLLOWER].previous_fetch_ms
    body = FetchRequest(session_id=first.session_id, session_epoch=1, min_bytes=1)
    body.replica_state = FetchRequest.ReplicaState(replica_id=FOLLOWER, replica_epoch=5)
    assert client.ask(body, FetchResponse, VERSION).responses[0].partitions[0].records
    assert led.partition.followers[FOLLOWER].previous_fetch_ms >= before
    assert led.high_watermark == 0
