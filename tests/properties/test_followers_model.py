"""Leaders and followers over in-memory logs: what is committed is never lost and never differs.

The machines are the broker's own: the partition, the follower's fetches, the search for where two
logs part, the leader's check of what a follower has. Logs, network and controller are models. The
network delays and loses; brokers crash, and come back with an old high watermark; they hear of a
new leader at different times, so that an old leader goes on for a while.
"""

from random import Random
from types import SimpleNamespace

import pytest

from headwater.broker.fetch_session import FetchPartition
from headwater.broker.handlers.fetch_parts import divergence
from headwater.errors import E, KafkaError
from headwater.log.epochs import EpochCache
from headwater.model import TopicPartition
from headwater.replication.effects import AdvanceHW
from headwater.replication.follower_fetch import (
    AppendFetched,
    CutDiverging,
    FollowerFetch,
    FollowerLimits,
    RestartLog,
)
from headwater.replication.following import Following
from headwater.replication.partition import Partition, Role
from headwater.wire.messages.fetch import FetchResponse

BROKERS = (1, 2, 3)
LAG_MS = 100
AT = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
LIMITS = FollowerLimits(100, 1000, 1, 500)


class ModelLog:
    """Records as (epoch, value)."""

    def __init__(self):
        self.records = []
        self.epochs = EpochCache(None, "nowhere")
        self.log_start_offset = self.durable_start = 0
        self.leader_epoch = -1

    @property
    def log_end_offset(self):
        return len(self.records)

    def append(self, epoch, value):
        if epoch < self.epochs.latest:
            self.epochs.truncate_end(len(self.records))
        self.epochs.assign(epoch, len(self.records))
        self.records.append((epoch, value))

    def truncate(self, end):
        del self.records[end:]
        self.epochs.truncate_end(end)

    def offset_for_epoch(self, epoch):
        return self.epochs.end_offset(epoch, self.log_end_offset)


class ModelBroker:
    """One replica, which leads or follows as it was last told."""

    def __init__(self, node):
        self.node = node
        self.log = ModelLog()
        self.following = Following(SimpleNamespace(log=self.log))
        self.stored_mark = 0
        self.alive = True
        self.told = []
        self.start()

    def start(self):
        """Begin a life: only the log and an old high watermark are left of the last one."""
        self.partition = Partition(self.node, LAG_MS, 1)
        self.partition.log_end = self.log.log_end_offset
        self.partition.high_watermark = min(self.stored_mark, self.log.log_end_offset)
        self.told.clear()
        self.stop_following()

    def stop_following(self):
        self.fetch = FollowerFetch(self.node, 10)
        self.asked = None  # (leader, request) that is under way
        self.answer = None


class Replication:
    """Three brokers, one partition."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.now = 0
        self.brokers = {node: ModelBroker(node) for node in BROKERS}
        self.leader, self.leader_epoch, self.partition_epoch = 1, 0, 0
        self.isr = set(BROKERS)
        self.values = 0
        self.committed = []
        self.proposals = []
        self.tell_all()

    # -- the controller

    def tell_all(self):
        state = (self.leader, self.leader_epoch, self.partition_epoch, tuple(sorted(self.isr)))
        for broker in self.brokers.values():
            if broker.alive:
                broker.told.append(state)

    def elect(self, node):
        """Any live member of the stored in-sync set may lead next."""
        if node in self.isr and self.brokers[node].alive:
            self.leader = node
            self.leader_epoch += 1
            self.partition_epoch += 1
            self.tell_all()

    def controller_decides(self, lost):
        """A proposal of the state that the controller knows is stored; its answer may be lost."""
        if not self.proposals:
            return
        node, proposal = self.proposals.pop(0)
        known = proposal.leader_epoch == self.leader_epoch and node == self.leader
        stored = known and proposal.partition_epoch == self.partition_epoch
        dead = any(not self.brokers[member].alive for member in proposal.isr)
        if stored and not dead:
            self.isr = set(proposal.isr)
            self.partition_epoch += 1
        if known and lost:
            self.proposals.append((node, proposal))
            return
        broker = self.brokers[node]
        if known and self.isr == set(proposal.isr):
            if broker.alive and broker.partition.leader_epoch == self.leader_epoch:
                isr = tuple(self.isr)
                self.take(broker, broker.partition.isr_stored(self.now, isr, self.partition_epoch))
        elif stored and dead and broker.partition.proposes(proposal):
            self.take(broker, broker.partition.isr_refused(self.now))

    def hears(self, node):
        """A broker gets the next message of the controller."""
        broker = self.brokers[node]
        if not broker.alive or not broker.told:
            return
        leader, epoch, partition_epoch, isr = broker.told.pop(0)
        partition = broker.partition
        if (epoch, partition_epoch) <= (partition.leader_epoch, partition.partition_epoch):
            return
        if leader == node:
            broker.stop_following()
            if epoch > broker.partition.leader_epoch:
                broker.log.epochs.assign(epoch, broker.log.log_end_offset)
            end = broker.log.log_end_offset
            effects = partition.led(self.now, epoch, partition_epoch, BROKERS, isr, end)
            self.take(broker, effects)
        else:
            if leader != partition.leader or partition.role is not Role.FOLLOWER:
                broker.stop_following()
            partition.followed(leader, epoch, partition_epoch, BROKERS, isr)
            broker.fetch.follow(AT, TOPIC_ID, epoch, broker.following.position)

    # -- a leader

    def append(self, node, count):
        """A broker that believes to lead takes records, acknowledged once they are committed."""
        broker = self.brokers[node]
        if broker.alive and broker.partition.role is Role.LEADER:
            for _ in range(count):
                self.values += 1
                broker.log.append(broker.partition.leader_epoch, self.values)
            self.take(broker, broker.partition.appended(self.now, broker.log.log_end_offset))

    def take(self, broker, effects):
        for effect in effects:
            if not isinstance(effect, AdvanceHW):
                self.proposals.append((broker.node, effect))
            elif broker.partition.role is Role.LEADER:
                shown = broker.log.records[: effect.high_watermark]
                assert shown[: len(self.committed)] == self.committed[: len(shown)]
                self.committed = max(self.committed, shown, key=len)

    def time_passes(self, passed):
        self.now += passed
        for broker in self.brokers.values():
            if broker.alive:
                self.take(broker, broker.partition.lag_checked(self.now))

    # -- followers

    def asks(self, node):
        broker = self.brokers[node]
        if broker.alive and broker.asked is None and broker.partition.role is Role.FOLLOWER:
            request = broker.fetch.next_request(self.now, 1, LIMITS)
            if request is not None:
                broker.asked = broker.partition.leader, request

    def leader_answers(self, node, most):
        """The request arrives; without sessions it has the partition if it means it."""
        broker = self.brokers[node]
        if broker.asked is None or broker.answer is not None:
            return
        leader = self.brokers[broker.asked[0]]
        if not leader.alive:
            self.lose(broker)
            return
        (topic,) = broker.asked[1].topics
        (want,) = topic.partitions
        answer = self.serve(leader, node, want, most)
        topics = [
            FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[answer]),
        ]
        broker.answer = FetchResponse(responses=topics)

    def serve(self, leader, node, want, most):
        answer = FetchResponse.PartitionData(partition_index=0)
        partition, log = leader.partition, leader.log
        log.leader_epoch = partition.leader_epoch
        wanted = FetchPartition(
            (TOPIC_ID, 0),
            want.fetch_offset,
            want.partition_max_bytes,
            want.current_leader_epoch,
            want.last_fetched_epoch,
            want.log_start_offset,
        )
        try:
            if partition.role is not Role.LEADER:
                raise KafkaError(E.NOT_LEADER_OR_FOLLOWER)
            if want.current_leader_epoch != partition.leader_epoch:
                raise KafkaError(E.FENCED_LEADER_EPOCH)
            if want.last_fetched_epoch >= 0 and (parted := divergence(log, wanted)):
                answer.diverging_epoch = parted
                return answer
            if want.fetch_offset > log.log_end_offset:
                raise KafkaError(E.OFFSET_OUT_OF_RANGE)
            partition.check_follower(node, 1)
            self.take(leader, partition.follower_fetched(self.now, node, want.fetch_offset, 0, 1))
        except KafkaError as refused:
            answer.error_code, answer.log_start_offset = refused.code, 0
            return answer
        answer.high_watermark, answer.log_start_offset = partition.high_watermark, 0
        answer.records = tuple(log.records[want.fetch_offset : want.fetch_offset + most])
        return answer

    def gets_answer(self, node):
        broker = self.brokers[node]
        if broker.answer is None:
            return
        answer, broker.answer, broker.asked = broker.answer, None, None
        for effect in list(broker.fetch.answered(self.now, answer, broker.fetch.requests)):
            self.carry_out(broker, effect)
        self.now += 10  # a delayed partition is due again

    def carry_out(self, broker, effect):
        partition = broker.partition
        match effect:
            case AppendFetched():
                assert effect.leader_epoch == partition.leader_epoch
                for epoch, value in effect.records:
                    broker.log.append(epoch, value)
                partition.appended(self.now, broker.log.log_end_offset)
                partition.leader_hw_received(effect.high_watermark)
            case CutDiverging():
                end = broker.following.common_end(effect.epoch, effect.end)
                assert end < broker.log.log_end_offset, "a truncation gets nowhere"
                assert end >= partition.high_watermark, "a clean leader lacks committed records"
                broker.log.truncate(end)
                partition.truncated(end)
            case RestartLog():
                broker.log.truncate(effect.start)
                partition.restarted(effect.start)
        broker.fetch.moved(AT, broker.following.position)

    def fetches(self, node, most):
        """The usual case: a request, its answer, and what follows from it."""
        self.asks(node)
        self.leader_answers(node, most)
        self.gets_answer(node)

    def lose(self, broker):
        if broker.asked is not None:
            broker.asked = broker.answer = None
            broker.fetch.failed()

    # -- crashes

    def crashes(self, node, checkpointed):
        """The process dies; the controller drops it from the set, unless nobody would be left."""
        broker = self.brokers[node]
        if not broker.alive:
            return
        broker.alive = False
        if checkpointed:
            broker.stored_mark = broker.partition.high_watermark
        if self.isr - {node} and self.leader != node:
            self.isr -= {node}
            self.partition_epoch += 1
            self.leader_epoch += 1
            self.tell_all()

    def starts_again(self, node):
        broker = self.brokers[node]
        if not broker.alive:
            broker.alive = True
            broker.start()
            state = (self.leader, self.leader_epoch, self.partition_epoch, tuple(self.isr))
            broker.told.append(state)

    # -- what must hold

    def who_may_lead_has_what_is_committed(self):
        for node in self.isr:
            records = self.brokers[node].log.records
            assert records[: len(self.committed)] == self.committed

    def no_broker_shows_what_is_not_committed(self):
        for broker in self.brokers.values():
            mark = broker.partition.high_watermark
            assert broker.log.records[:mark] == self.committed[:mark]
            assert mark <= len(self.committed)

    # -- running

    def step(self):
        """Something happens; what goes wrong is rarer than what goes well."""
        draw, node = self.random, self.random.choice(BROKERS)
        happens = draw.choices(
            [
                lambda: self.fetches(node, draw.randrange(5)),
                lambda: self.append(node, draw.randrange(1, 4)),
                lambda: self.controller_decides(lost=draw.random() < 0.3),
                lambda: self.hears(node),
                lambda: self.asks(node),
                lambda: self.leader_answers(node, draw.randrange(5)),
                lambda: self.gets_answer(node),
                lambda: self.elect(node),
                lambda: self.crashes(node, checkpointed=draw.random() < 0.5),
                lambda: self.starts_again(node),
                lambda: self.time_passes(draw.randrange(1, 2 * LAG_MS)),
                lambda: self.lose(self.brokers[node]),
            ],
            [24, 12, 8, 8, 3, 3, 3, 2, 1, 3, 1, 1],
        )[0]
        happens()
        self.who_may_lead_has_what_is_committed()
        self.no_broker_shows_what_is_not_committed()

    def heal(self):
        """Nothing goes wrong any more, and in the end all are in sync and alike."""
        for node in BROKERS:
            self.starts_again(node)
        if self.leader not in self.isr:
            self.elect(min(self.isr))
        for _ in range(60):
            for node in BROKERS:
                self.hears(node)
                self.lose(self.brokers[node])
                for _ in range(4):
                    self.fetches(node, 9)
            self.controller_decides(lost=False)
            self.now += 10
        assert self.isr == set(BROKERS)
        logs = [broker.log.records for broker in self.brokers.values()]
        assert logs[0] == logs[1] == logs[2] == self.committed


@pytest.mark.parametrize("seeds", [range(start, start + 100) for start in range(0, 400, 100)])
def test_what_is_committed_is_never_lost_and_never_differs(seeds):
    committed = 0
    for seed in seeds:
        run = Replication(seed)
        try:
            for _ in range(300):
                run.step()
            run.heal()
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}") from broken
        committed += len(run.committed)
    assert committed > 1000
