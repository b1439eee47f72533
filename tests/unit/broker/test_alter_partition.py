"""In-sync sets on their way to the controller."""

import asyncio
from types import SimpleNamespace

from headwater.broker import alter_partition_loop
from headwater.broker.alter_partition_loop import AlterPartitionManager
from headwater.broker.metrics import BrokerMetrics
from headwater.controller.commands import IsrAnswer, IsrOutcome
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from headwater.replication.effects import ProposeIsr
from headwater.wire.messages.control import AlterPartitionResponse
from tests.unit.broker.peer_under_test import FakePeers, rounds
from tests.unit.log.support import TOPIC_ID
from tests.unit.replication.replica_under_test import ReplicaUnderTest

REMOTE = 9


class Manager:
    """The manager of broker 1, with a leader whose follower 2 asks to be in sync."""

    def __init__(self, path, controller=REMOTE):
        self.leader = ReplicaUnderTest(path, replicas=(1, 2), isr=(1,))
        self.replica = self.leader.replica
        self.peers = FakePeers()
        self.commands = []
        self.context = SimpleNamespace(
            node_id=1,
            control=SimpleNamespace(broker_epoch=70),
            metadata=SimpleNamespace(controller_id=controller),
            controller=SimpleNamespace(submit=lambda *call: self.commands.append(call)),
            metrics=BrokerMetrics(),
        )
        self.manager = AlterPartitionManager(self.context, self.peers.open)
        self.leader.host.propose_isr = self.manager.propose

    async def propose(self):
        self.replica.leading.follower_fetched(2, 0, 0, 60)
        await asyncio.sleep(0.001)
        await rounds()

    @property
    def peer(self):
        return self.peers.opened[REMOTE, "isr"]

    def answer(self, error=E.NONE, isr=(1, 2), partition_epoch=1):
        result = AlterPartitionResponse.AlterPartitionResult(
            error_code=error, leader_epoch=0, isr=list(isr), partition_epoch=partition_epoch
        )
        topic = AlterPartitionResponse.AlterPartitionTopicResult(
            topic_id=self.replica.topic_id, partitions=[result]
        )
        self.peer.reply(AlterPartitionResponse(topics=[topic]))


def test_a_proposal_names_the_lives_that_the_leader_has_seen(tmp_path):
    async def run():
        manager = Manager(tmp_path)
        await manager.propose()
        (request,) = manager.peer.requests
        (wanted,) = request.topics[0].partitions
        members = [(row.broker_id, row.broker_epoch) for row in wanted.new_isr_with_epochs]
        assert (request.broker_epoch, members) == (70, [(1, 70), (2, 60)])
        manager.answer()
        assert manager.replica.partition.isr == {1, 2}
        assert (manager.context.metrics.isr_expands, manager.context.metrics.isr_shrinks) == (1, 0)

    asyncio.run(run())


def test_what_has_no_outcome_is_sent_again_to_the_controller_of_the_day(tmp_path, monkeypatch):
    monkeypatch.setattr(alter_partition_loop, "RETRY_S", 0)

    async def run():
        manager = Manager(tmp_path)
        await manager.propose()
        manager.peer.reply(KafkaError(E.NETWORK_EXCEPTION, "gone"))
        assert manager.replica.partition.proposed_isr == {1, 2}, "it may be stored"
        await asyncio.sleep(0.001)
        await rounds()
        manager.peer.reply(AlterPartitionResponse(error_code=E.NOT_CONTROLLER))
        manager.context.metadata.controller_id = 1
        await asyncio.sleep(0.001)
        await rounds()
        ((command, reply),) = manager.commands
        assert [proposal.isr for proposal in command.proposals] == [[(1, 70), (2, 60)]]
        reply(IsrAnswer(outcomes=[IsrOutcome(E.NONE, 1, 0, 1, (1, 2))]))
        assert manager.replica.partition.isr == {1, 2}

    asyncio.run(run())


def test_nobody_waits_for_a_frozen_controller_once_there_is_another(tmp_path, monkeypatch):
    monkeypatch.setattr(alter_partition_loop, "RETRY_S", 0)

    async def run():
        manager = Manager(tmp_path)
        await manager.propose()
        frozen = manager.peer
        manager.manager.controller_changed()
        assert not frozen.closed, "it is the controller still"
        manager.context.metadata.controller_id = 8
        manager.manager.controller_changed()
        await asyncio.sleep(0.001)
        await rounds()
        assert frozen.closed
        assert manager.peers.opened[8, "isr"].requests == frozen.requests

    asyncio.run(run())


def test_a_follower_whose_disk_is_full_leaves_the_in_sync_set(tmp_path):
    async def run():
        manager = Manager(tmp_path)
        replica = manager.replica
        replica.partition.followed(2, 3, 5, (1, 2), (1, 2))
        replica.refusal = KafkaError(E.KAFKA_STORAGE_ERROR)
        replica.leading.check_lag()
        await asyncio.sleep(0.001)
        await rounds()
        (request,) = manager.peer.requests
        (asked,) = request.topics[0].partitions
        assert (asked.leader_epoch, asked.new_isr_with_epochs) == (3, [])
        assert asked.keeps_records
        manager.answer(isr=(2,), partition_epoch=6)
        replica.leading.check_lag()
        await rounds()
        assert len(manager.peer.requests) == 1
        replica.offline = replica.refusal
        replica.leading.check_lag()
        await asyncio.sleep(0.001)
        await rounds()
        (asked,) = manager.peer.requests[1].topics[0].partitions
        assert not asked.keeps_records, "the disk has failed, too"

    asyncio.run(run())


def test_a_refused_member_counts_no_more_and_an_overtaken_one_until_the_news_come(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(alter_partition_loop, "REFUSED_S", 0)

    async def run():
        manager = Manager(tmp_path)
        partition = manager.replica.partition
        await manager.propose()
        manager.answer(E.INELIGIBLE_REPLICA)
        await asyncio.sleep(0.001)
        await rounds()
        assert partition.proposed_isr is None
        await manager.propose()
        manager.answer(E.INVALID_UPDATE_VERSION)
        await rounds()
        assert partition.proposed_isr == {1, 2}
        assert not manager.peer.sent, "the controller has said what it has to say"
        manager.replica.leading.isr_stored((1,), 0, 7)
        assert (partition.isr, partition.proposed_isr) == ({1}, None)

    asyncio.run(run())


def test_one_request_is_under_way_and_the_next_has_only_what_still_counts(tmp_path):
    async def run():
        manager = Manager(tmp_path)
        await manager.propose()
        stale = ProposeIsr(frozenset({1}), 0, 99)
        manager.manager.propose(manager.replica, stale)
        await rounds()
        assert len(manager.peer.requests) == 1
        manager.answer()
        await asyncio.sleep(0.001)
        await rounds()
        assert len(manager.peer.requests) == 1
        manager.manager.close()
        assert manager.peer.closed

    asyncio.run(run())


def test_thousands_of_proposals_leave_in_bounded_requests(tmp_path, monkeypatch):
    monkeypatch.setattr(alter_partition_loop, "MAX_PROPOSALS", 2)

    async def run():
        manager = Manager(tmp_path)
        leading = SimpleNamespace(proposes=lambda _: True, broker_epoch=lambda _: 60, in_sync=(1,))
        for number in range(5):
            at = TopicPartition("topic", number)
            replica = SimpleNamespace(topic_partition=at, topic_id=TOPIC_ID, leading=leading)
            leading.isr_stored = lambda *_: None
            manager.manager.propose(replica, ProposeIsr(frozenset({1, 2}), 0, 0))
        asked = []
        for _ in range(3):
            await asyncio.sleep(0.001)
            await rounds()
            partitions = manager.peer.requests[-1].topics[0].partitions
            asked.append([row.partition_index for row in partitions])
            results = [
                AlterPartitionResponse.AlterPartitionResult(partition_index=row.partition_index)
                for row in partitions
            ]
            topic = AlterPartitionResponse.AlterPartitionTopicResult(
                topic_id=TOPIC_ID, partitions=results
            )
            manager.peer.reply(AlterPartitionResponse(topics=[topic]))
        assert asked == [[0, 1], [2, 3], [4]]

    asyncio.run(run())
