"""A fetcher over a fake connection: what it asks for, and what its logs have after each answer."""

import asyncio
from types import SimpleNamespace

import pytest

from headwater.broker.follower_loop import ReplicaFetchers
from headwater.broker.metrics import BrokerMetrics
from headwater.config.broker import BrokerSettings
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from headwater.replication.leader_and_isr import LeaderAndIsr
from headwater.replication.throttles import (
    LONGEST_WAIT_MS,
    UNLIMITED,
    ReplicationThrottles,
)
from headwater.wire.messages.fetch import FetchResponse
from tests.unit.broker.peer_under_test import FakePeers, rounds
from tests.unit.log.support import TOPIC_ID, batch
from tests.unit.replication.replica_under_test import ReplicasUnderTest

LEADER, EPOCH = 2, 5


class Follower:
    """Broker 1, which follows partitions of one topic."""

    def __init__(self, path, **settings):
        self.broker = ReplicasUnderTest(path)
        host = self.broker.host
        values = {"log.dirs": str(path), **settings}
        self.peers = FakePeers()
        self.warnings = []
        self.context = SimpleNamespace(
            node_id=1,
            settings=BrokerSettings.load(None, values),
            clock=SimpleNamespace(monotonic_ms=host.now_ms),
            control=SimpleNamespace(broker_epoch=70),
            tick=SimpleNamespace(flush=host.end_tick),
            throttles=ReplicationThrottles(1, 11, 1000),
            metadata=SimpleNamespace(partition=lambda topic, index: None),
            peer_log=SimpleNamespace(warning=lambda *what: self.warnings.append(what)),
            metrics=BrokerMetrics(),
        )
        self.fetchers = ReplicaFetchers(self.context, self.peers.open)
        host.follows = self.fetchers.follow
        host.stopped = lambda replica: self.fetchers.unfollow(replica.topic_partition)
        host.leads = host.stopped

    def follow_soon(self, partition=0, leader=LEADER, epoch=EPOCH, begun=True):
        at = TopicPartition("topic", partition)
        decided = LeaderAndIsr(at, TOPIC_ID, leader, epoch, epoch, (1, 2, 3), (1, 2, 3))
        assert self.broker.replicas.apply(decided) is E.NONE
        replica = self.broker.replicas.get(*at)
        if begun:
            replica.log.staging.begin_epoch(epoch)
            replica.log.epochs.save()
        return replica

    async def follow(self, partition=0, leader=LEADER, epoch=EPOCH):
        replica = self.follow_soon(partition, leader, epoch)
        await rounds()
        return replica

    @property
    def peer(self):
        return self.peers.opened[LEADER, "fetcher-0"]

    @property
    def asked(self):
        """Partition -> offset in the newest request."""
        request = self.peer.requests[-1]
        return {
            row.partition: row.fetch_offset for topic in request.topics for row in topic.partitions
        }

    async def answer(self, session_id=77, **partitions):
        rows = [
            FetchResponse.PartitionData(partition_index=int(name[1:]), **fields)
            for name, fields in partitions.items()
        ]
        topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=rows)
        self.peer.reply(FetchResponse(session_id=session_id, responses=[topic]))
        await rounds()


def records(offset, leader=EPOCH, value=b"value"):
    return bytes(batch(1, offset=offset, leader=leader, value=value))


@pytest.fixture
def run(tmp_path):
    def with_follower(scene, **settings):
        async def main():
            await scene(Follower(tmp_path, **settings))

        asyncio.run(main())

    return with_follower


def test_batches_are_written_before_the_next_fetch_claims_them(run):
    async def scene(follower):
        replica = await follower.follow()
        request = follower.peer.requests[0]
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 70)
        assert (follower.asked, request.session_epoch, request.max_wait_ms) == ({0: 0}, 0, 0)
        await follower.answer(p0={"records": records(0), "high_watermark": 0})
        assert (replica.log_end_offset, follower.asked) == (1, {0: 1})
        assert follower.peer.requests[-1].session_epoch == 1
        await follower.answer(p0={"high_watermark": 1, "records": b""})
        assert (replica.high_watermark, follower.asked) == (1, {})

    run(scene)


def test_nothing_is_fetched_for_a_disk_that_takes_no_writes(run):
    """A follower with nothing new to write would else be in sync, and be elected."""

    async def scene(follower):
        full, _ = follower.follow_soon(0), await follower.follow(1)
        await follower.answer(p0={"records": b""}, p1={"records": b""})
        full.refusal = KafkaError(E.KAFKA_STORAGE_ERROR, "the disk is full")
        await follower.answer(p0={"records": records(0), "high_watermark": 0})
        (forgotten,) = follower.peer.requests[-1].forgotten_topics_data
        assert forgotten.partitions == [0]
        follower.broker.host.now += 1000
        await asyncio.sleep(0.03)
        await rounds()
        assert follower.asked == {}, "time alone does not bring it back"
        full.refusal = None
        full.wake_watchers()
        await follower.answer()
        assert follower.asked == {0: 0}

    run(scene)


def test_what_begins_an_epoch_is_fetched_again_once_the_epoch_is_saved(run):
    async def scene(follower):
        host = follower.broker.host
        host.saves_epochs = False
        replica = follower.follow_soon(0, begun=False)
        other = await follower.follow(1)
        await follower.answer(p0={"records": records(0)}, p1={"records": records(0)})
        assert (replica.log_end_offset, other.log_end_offset, follower.asked) == (0, 1, {1: 1})
        host.run_off()
        await rounds()
        assert follower.asked == {0: 0}
        await follower.answer()  # to the fetch before it
        await follower.answer(p0={"records": records(0)})
        assert replica.log_end_offset == 1

    run(scene)


def test_a_new_partition_does_not_wait_behind_the_long_poll_of_the_others(run):
    async def scene(follower):
        await follower.follow(0)
        await follower.answer(p0={"records": b""})
        assert len(follower.peer.sent) == 1
        await follower.follow(1)
        assert (len(follower.peer.sent), follower.asked) == (2, {1: 0})

    run(scene)


def test_a_throttle_puts_off_what_lags_and_nothing_else(run):
    async def scene(follower):
        throttle, host = follower.context.throttles.follower, follower.broker.host
        follower.context.throttles.use_rates(UNLIMITED, 1)
        throttle.cover("topic", ["0:1", "1:1", "3:1"], 1)
        in_sync = SimpleNamespace(isr=(1, 2, 3))
        follower.context.metadata.partition = lambda _, index: in_sync if index == 3 else None
        for partition in range(3):
            follower.follow_soon(partition)
        await follower.follow(3)
        far = {"records": records(0), "high_watermark": 9}
        await follower.answer(
            p0=far, p1={"records": records(0), "high_watermark": 1}, p2=far, p3=far
        )
        assert follower.asked == {1: 1, 2: 1, 3: 1}, "caught up, not listed, in sync"
        await follower.answer(p2={"records": b"", "high_watermark": 9})
        assert follower.asked == {}
        follower.context.throttles.use_rates(UNLIMITED, UNLIMITED)
        host.now += LONGEST_WAIT_MS
        follower.fetchers._fetcher_of[TopicPartition("topic", 0)]._delay_ended()
        await rounds()
        assert follower.asked == {0: 1}

    run(scene)


def test_a_log_that_left_the_leaders_is_cut_while_the_others_go_on(run):
    async def scene(follower):
        cut, other = follower.follow_soon(0), await follower.follow(1)
        old = records(0, leader=3) + records(1, leader=3)
        await follower.answer(p0={"records": old})
        await follower.answer(p0={"records": old}, p1={"records": records(0)})
        parted = FetchResponse.EpochEndOffset(epoch=3, end_offset=1)
        await follower.answer(p0={"diverging_epoch": parted}, p1={"records": records(1)})
        assert (cut.following.cutting, other.log_end_offset, follower.asked) == (True, 2, {1: 2})
        assert follower.peer.requests[-1].forgotten_topics_data[0].partitions == [0]
        follower.broker.host.run_off()
        await rounds()
        assert (cut.log_end_offset, follower.asked) == (1, {0: 1})

    run(scene)


def test_a_log_that_ends_before_the_leaders_begins_starts_over_there(run):
    async def scene(follower):
        replica = await follower.follow()
        await follower.answer(
            p0={"error_code": E.OFFSET_OUT_OF_RANGE, "log_start_offset": 40, "records": b""}
        )
        follower.broker.host.run_off()
        await rounds()
        assert (replica.log_start_offset, replica.log_end_offset) == (40, 40)
        assert follower.asked == {0: 40}

    run(scene)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"error_code": E.NOT_LEADER_OR_FOLLOWER, "records": b""}, id="refused"),
        pytest.param({"records": records(7)}, id="does not follow"),
    ],
)
def test_a_partition_that_fails_is_asked_for_again_later_and_stops_no_other(run, bad):
    async def scene(follower):
        failing, other = follower.follow_soon(0), await follower.follow(1)
        await follower.answer(p0=bad, p1={"records": records(0)})
        assert (failing.log_end_offset, other.log_end_offset, follower.asked) == (0, 1, {1: 1})
        follower.broker.host.now += 1000
        await asyncio.sleep(0.03)
        await rounds()
        assert follower.asked == {0: 0}

    run(scene)


def test_an_answer_for_an_earlier_epoch_changes_nothing(run):
    async def scene(follower):
        replica = await follower.follow()
        await follower.follow(epoch=EPOCH + 1)
        await follower.answer(p0={"records": records(0), "high_watermark": 1})
        assert (replica.log_end_offset, replica.high_watermark) == (0, 0)
        assert follower.asked == {0: 0}

    run(scene)


def test_after_a_failed_fetch_the_next_one_lists_everything_in_a_new_session(run):
    async def scene(follower):
        for partition in range(3):
            follower.follow_soon(partition)
        await rounds()
        await follower.answer(p0={"records": records(0)})
        follower.peer.reply(KafkaError(E.NETWORK_EXCEPTION, "gone"))
        await asyncio.sleep(0.04)
        await rounds()
        request = follower.peer.requests[-1]
        assert (follower.asked, request.session_id) == ({0: 1, 1: 0, 2: 0}, 0)

    run(scene, **{"replica.fetch.backoff.ms": "1"})


def test_who_moves_to_another_leader_or_stops_is_fetched_there_or_not_at_all(run):
    async def scene(follower):
        await follower.follow(0)
        await follower.follow(0, leader=3, epoch=EPOCH + 1)
        assert follower.peer.closed
        assert (3, "fetcher-0") in follower.peers.opened
        follower.broker.replicas.stop([(TopicPartition("topic", 0), False)])
        assert follower.peers.opened[3, "fetcher-0"].closed

    run(scene)


def test_several_fetchers_share_the_partitions_of_a_leader(run):
    async def scene(follower):
        for partition in range(6):
            await follower.follow(partition)
        assert len(follower.peers.opened) == 3

    run(scene, **{"num.replica.fetchers": "3"})


def test_a_fetch_that_cannot_be_sent_is_made_again(run, monkeypatch):
    async def scene(follower):
        peer = follower.peers.open(LEADER, "fetcher-0")
        follower.fetchers._connect = lambda *_: peer
        send, failures = peer.send, [ValueError("a defect")]

        def failing(*args, **more):
            if failures:
                raise failures.pop()
            send(*args, **more)

        monkeypatch.setattr(peer, "send", failing)
        await follower.follow()
        assert not peer.requests
        await asyncio.sleep(0.04)
        await rounds()
        assert follower.asked == {0: 0}

    run(scene, **{"replica.fetch.backoff.ms": "1"})
