"""Messages of controllers: the newest one is obeyed, and only in this life of the broker."""

import pathlib
from concurrent.futures import Future

import pytest

from headwater.broker.control_state import ControlState
from headwater.broker.handlers.control import FULL, PARTITIONS_PER_STEP
from headwater.errors import E
from headwater.replication.partition import Role
from headwater.wire.messages.control import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from headwater.wire.messages.producers import DescribeProducersRequest, DescribeProducersResponse
from tests.unit.broker.live import WAIT_S, batch, until

TopicState = LeaderAndIsrRequest.LeaderAndIsrTopicState
PartitionState = LeaderAndIsrRequest.LeaderAndIsrPartitionState


def receive(live, message):
    """The response to a message of the local controller, which comes at once or a little later."""
    replied = Future()
    live.on_loop(lambda: live.broker.parts.dispatch.receive(message, replied.set_result))
    return replied.result(WAIT_S)


def leadership(live, topic, *, epoch_step=1, leader=1, topic_id=None, is_new=False, **epochs):
    replica = live.replica(topic)
    known = replica.partition
    state = PartitionState(
        partition_index=0,
        leader=leader,
        leader_epoch=known.leader_epoch + epoch_step,
        partition_epoch=known.partition_epoch + 1,
        isr=[leader],
        replicas=[leader],
        is_new=is_new,
    )
    states = TopicState(
        topic_name=topic, topic_id=topic_id or replica.topic_id, partition_states=[state]
    )
    return LeaderAndIsrRequest(controller_id=1, topic_states=[states], **now(live, **epochs))


def now(live, controller=0, broker=0):
    """The epochs of the moment, moved by so much."""
    mine = live.context.control
    return {
        "controller_epoch": mine.controller_epoch + controller,
        "broker_epoch": mine.broker_epoch + broker,
    }


def code_of(answer) -> int:
    return answer.topics[0].partition_errors[0].error_code if answer.topics else answer.error_code


def test_a_message_of_an_older_controller_changes_nothing(live, topic):
    before = live.replica(topic).partition.leader_epoch
    generation = live.context.generation
    answer = receive(live, leadership(live, topic, controller=-1))
    assert answer.error_code == E.STALE_CONTROLLER_EPOCH
    assert live.replica(topic).partition.leader_epoch == before
    assert live.context.generation == generation


def test_a_message_for_an_earlier_life_of_this_broker_changes_nothing(live, topic):
    answer = receive(live, leadership(live, topic, broker=-1))
    assert answer.error_code == E.STALE_BROKER_EPOCH
    stop = StopReplicaRequest(**now(live, broker=-1))
    assert receive(live, stop).error_code == E.STALE_BROKER_EPOCH
    update = UpdateMetadataRequest(**now(live, broker=-1))
    assert receive(live, update).error_code == E.STALE_BROKER_EPOCH
    assert topic in live.context.metadata.topics


def test_a_newer_epoch_than_this_broker_knows_is_obeyed(live, topic):
    """KAFKA-7235: the controller may have seen the next registration first."""
    answer = receive(live, leadership(live, topic, broker=+1))
    assert (answer.error_code, code_of(answer)) == (0, 0)


def test_a_new_leader_epoch_is_in_the_next_batches_and_on_disk_before_them(live, topic, client):
    receive(live, leadership(live, topic, epoch_step=4))
    replica = live.replica(topic)
    assert replica.log.epochs.latest == replica.partition.leader_epoch
    assert client.produce(topic, batch()).error_code == 0
    stored = bytes(client.fetch(topic).records)
    assert int.from_bytes(stored[12:16]) == replica.partition.leader_epoch


def test_an_older_leader_epoch_is_refused_for_its_partition(live, topic):
    receive(live, leadership(live, topic, epoch_step=3))
    answer = receive(live, leadership(live, topic, epoch_step=-1))
    assert code_of(answer) == E.STALE_CONTROLLER_EPOCH


def test_a_leader_that_is_told_late_has_the_in_sync_set_that_was_stored_meanwhile(live, topic):
    before = live.replica(topic).partition
    state = UpdateMetadataRequest.UpdateMetadataPartitionState(
        leader=1,
        leader_epoch=before.leader_epoch + 1,
        zk_version=before.partition_epoch + 2,
        replicas=[1, 5, 6],
        isr=[1],
        elr=[5],
    )
    stored = UpdateMetadataRequest.UpdateMetadataTopicState(
        topic_name=topic, topic_id=live.replica(topic).topic_id, partition_states=[state]
    )
    receive(live, UpdateMetadataRequest(controller_id=1, topic_states=[stored], **now(live)))
    late = leadership(live, topic)
    late.topic_states[0].partition_states[0].isr = [1, 5]
    assert code_of(receive(live, late)) == 0
    partition = live.replica(topic).partition
    assert (partition.isr, partition.elr) == ({1}, {5})
    assert partition.partition_epoch == state.zk_version


def test_any_change_of_leadership_ends_cached_ways(live, topic):
    generation = live.context.generation
    receive(live, leadership(live, topic))
    assert live.context.generation > generation


def test_a_follower_takes_no_records_and_serves_only_clients_that_know_of_followers(
    live, topic, client
):
    receive(live, leadership(live, topic, leader=9))
    assert live.replica(topic).partition.role is Role.FOLLOWER
    refused = client.produce(topic, batch(), version=12)
    assert refused.error_code == E.NOT_LEADER_OR_FOLLOWER
    epoch = live.replica(topic).leader_epoch
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (9, epoch)
    assert client.fetch(topic, version=10).error_code == E.NOT_LEADER_OR_FOLLOWER
    assert client.fetch(topic, version=11).error_code == E.NONE


def test_a_follower_describes_its_producers(live, topic, client):
    sent = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    assert client.produce(topic, sent).error_code == 0
    receive(live, leadership(live, topic, leader=9))
    where = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
    request = DescribeProducersRequest(topics=[where])
    (row,) = client.ask(request, DescribeProducersResponse, 0).topics[0].partitions
    assert row.error_code == E.NONE
    assert [one.producer_id for one in row.active_producers] == [7]


def test_a_partition_of_another_topic_id_is_set_aside_never_served(live, topic, client):
    assert client.produce(topic, batch(b"old")).error_code == 0
    old = live.replica(topic)
    stop = StopReplicaRequest(
        topic_states=[
            StopReplicaRequest.StopReplicaTopicState(
                topic_name=topic,
                partition_states=[StopReplicaRequest.StopReplicaPartitionState(partition_index=0)],
            )
        ],
        **now(live),
    )
    assert receive(live, stop).error_code == 0
    assert live.replica(topic) is None
    state = PartitionState(partition_index=0, leader=1, leader_epoch=9, isr=[1], replicas=[1])
    states = TopicState(topic_name=topic, topic_id=b"\7" * 16, partition_states=[state])
    message = LeaderAndIsrRequest(topic_states=[states], **now(live))
    assert code_of(receive(live, message)) == 0
    fresh = live.replica(topic)
    assert (fresh.log.log_end_offset, fresh.topic_id) == (0, b"\7" * 16)
    assert folders_aside(old, topic)


def folders_aside(replica, topic):
    folder = pathlib.Path(replica.log.directory)
    return [one for one in folder.parent.glob("*-stray") if one.name.startswith(topic[:30])]


def moved_away(live, topic, leader_epoch):
    """Say that other brokers have a partition, as to a broker that registers again."""
    state = UpdateMetadataRequest.UpdateMetadataPartitionState(
        leader=5, leader_epoch=leader_epoch, zk_version=9, replicas=[5, 6], isr=[5]
    )
    stored = UpdateMetadataRequest.UpdateMetadataTopicState(
        topic_name=topic, topic_id=live.replica(topic).topic_id, partition_states=[state]
    )
    return UpdateMetadataRequest(controller_id=1, topic_states=[stored], **now(live))


@pytest.mark.parametrize("epochs_later", [0, 1])
def test_a_partition_that_moved_away_while_this_broker_was_away_is_set_aside(
    live, topic, epochs_later
):
    """Nobody asks the broker to delete it. Metadata that is older than the last decision counts not."""
    replica = live.replica(topic)
    receive(live, moved_away(live, topic, replica.leader_epoch + epochs_later))
    assert live.replica(topic) is replica, "the controller may not have sent everything yet"
    everything = LeaderAndIsrRequest(controller_id=1, type=FULL, **now(live))
    assert receive(live, everything).error_code == 0
    if epochs_later:
        until(lambda: folders_aside(replica, topic))
        assert live.replica(topic) is None
    else:
        assert live.replica(topic) is replica


def test_a_partition_that_comes_back_to_a_broker_that_was_away_is_a_new_one(live, topic, client):
    assert client.produce(topic, batch(b"before the move")).error_code == 0
    replica = live.replica(topic)
    back = leadership(live, topic, epoch_step=2, is_new=True)
    receive(live, moved_away(live, topic, replica.leader_epoch + 1))
    receive(live, LeaderAndIsrRequest(controller_id=1, type=FULL, **now(live)))
    assert code_of(receive(live, back)) == 0
    until(lambda: live.replica(topic) is not None)
    assert live.replica(topic).log.log_end_offset == 0


def test_a_replica_of_a_deleted_topic_does_not_get_the_role_of_the_next_one_of_its_name(
    live, topic, client
):
    assert client.produce(topic, batch(b"old")).error_code == 0
    old = live.replica(topic)
    state = PartitionState(
        partition_index=0, leader=1, leader_epoch=0, isr=[1], replicas=[1], is_new=True
    )
    states = TopicState(topic_name=topic, topic_id=b"\7" * 16, partition_states=[state])
    message = LeaderAndIsrRequest(topic_states=[states], **now(live))
    assert code_of(receive(live, message)) == 0
    until(lambda: live.replica(topic) is not None)
    fresh = live.replica(topic)
    assert (fresh.log.log_end_offset, fresh.topic_id) == (0, b"\7" * 16)
    assert folders_aside(old, topic)


def many(live, topic, count):
    replica = live.replica(topic)
    states = [
        PartitionState(partition_index=index, leader=1, isr=[1], replicas=[1], is_new=True)
        for index in range(1, count + 1)
    ]
    known = TopicState(topic_name=topic, topic_id=replica.topic_id, partition_states=states)
    return LeaderAndIsrRequest(controller_id=1, topic_states=[known], **now(live))


def test_many_partitions_are_opened_a_few_at_a_time(live, topic):
    replied, message = Future(), many(live, topic, 2 * PARTITIONS_PER_STEP + 1)

    def begin():
        live.broker.parts.dispatch.receive(message, replied.set_result)
        return len(live.context.replicas.of_topic(topic))

    assert live.on_loop(begin) == 1 + PARTITIONS_PER_STEP
    answer = replied.result(WAIT_S)
    errors = [one.error_code for one in answer.topics[0].partition_errors]
    assert errors == [E.NONE] * (2 * PARTITIONS_PER_STEP + 1)
    assert len(live.context.replicas.of_topic(topic)) == 2 * PARTITIONS_PER_STEP + 2


def test_a_controller_that_is_deposed_meanwhile_opens_no_more_partitions(live, topic):
    replied, message = Future(), many(live, topic, 2 * PARTITIONS_PER_STEP + 1)
    control = live.context.control

    def begin():
        live.broker.parts.dispatch.receive(message, replied.set_result)
        control.controller_epoch += 1

    live.on_loop(begin)
    try:
        assert replied.result(WAIT_S).error_code == E.STALE_CONTROLLER_EPOCH
        assert len(live.context.replicas.of_topic(topic)) == 1 + PARTITIONS_PER_STEP
    finally:
        control.controller_epoch -= 1


def test_what_waited_for_a_log_is_dropped_if_the_broker_has_registered_again(live, topic):
    """It was decided for the registration before; the controller sends every partition again."""
    receive(live, leadership(live, topic, leader=9))
    replica, control = live.replica(topic), live.context.control
    epoch = replica.leader_epoch
    cut, message = Future(), leadership(live, topic)

    def begin():
        replica.following.truncate(0, epoch, cut.set_result)
        live.broker.parts.dispatch.receive(message, lambda _: None)
        control.broker_epoch += 1

    live.on_loop(begin)
    try:
        assert cut.result(WAIT_S) is None
        assert live.on_loop(lambda: replica.leader_epoch) == epoch
        assert code_of(receive(live, leadership(live, topic))) == 0
        assert replica.leader_epoch == epoch + 1
    finally:
        control.broker_epoch -= 1


def test_stopping_with_deletion_removes_the_files(live, topic, client):
    client.produce(topic, batch())
    folder = pathlib.Path(live.replica(topic).log.directory)
    partition = StopReplicaRequest.StopReplicaPartitionState(
        partition_index=0, delete_partition=True
    )
    states = StopReplicaRequest.StopReplicaTopicState(
        topic_name=topic, partition_states=[partition]
    )
    receive(live, StopReplicaRequest(topic_states=[states], **now(live)))
    assert not folder.exists()
    until(lambda: not list(folder.parent.glob("*-delete")))


@pytest.fixture
def control(live, monkeypatch):
    """The two moments a start waits for, as before the first message of a controller."""
    monkeypatch.setattr(live.context, "control", ControlState())
    return live.context.control


def test_only_a_full_message_says_that_every_partition_was_named(live, topic, control):
    """A remote controller names partitions some at a time; the others are not strays yet."""
    receive(live, leadership(live, topic))
    assert not control.assignment_known.is_set
    full = leadership(live, topic)
    full.type = FULL
    receive(live, full)
    assert control.assignment_known.is_set


def test_metadata_alone_does_not_say_which_partitions_this_broker_has(live, control):
    receive(live, UpdateMetadataRequest(**now(live)))
    assert control.metadata_known.is_set
    assert not control.assignment_known.is_set
