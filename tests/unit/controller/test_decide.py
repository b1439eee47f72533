"""Long commands let the event loop turn; what the controller decides is in `tests/scenarios`."""

from collections import deque

import pytest

from headwater.controller.commands import (
    AlterConfigs,
    AlteredResource,
    AlterReassignments,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    Reassignment,
    ResourceKind,
    TopicCreation,
)
from headwater.controller.control_requests import ControllerIdentity, update_metadata
from headwater.controller.decide import Controller
from headwater.controller.effects import Resume, Send, Write
from headwater.controller.events import Acknowledged, Elected, Resumed, Stored, Submitted
from headwater.controller.leader_elections import PARTITIONS_PER_STEP
from headwater.controller.reassignments import MOVES_PER_WRITE
from headwater.controller.state import (
    ClusterState,
    LiveBroker,
    PartitionRegistration,
    TopicState,
)
from headwater.controller.store.znodes import BrokerEndpoint, BrokerNode, TopicNode
from headwater.controller.topic_changes import REFUSALS_PER_STEP
from headwater.controller.topic_rules import ControllerSettings
from headwater.model import TopicPartition
from headwater.wire.messages.control import StopReplicaRequest


@pytest.mark.parametrize(
    "command",
    [
        DeleteTopics([f"no-{number}" for number in range(2_000)]),
        CreateTopics([TopicCreation(f"t-{number}") for number in range(2_000)], validate_only=True),
        CreatePartitions([MorePartitions(f"no-{number}", 2) for number in range(2_000)]),
        AlterConfigs(
            [AlteredResource(ResourceKind.TOPIC, f"no-{number}") for number in range(2_000)]
        ),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_long_command_that_changes_nothing_lets_the_loop_turn(command):
    controller = Controller(0, ControllerSettings(), lambda: bytes(16))
    controller.on(0, Elected(2, 7, ClusterState()))
    effects = controller.on(0, Submitted(command, 1))
    turns = 0
    while effects == [Resume()]:
        turns += 1
        effects = controller.on(0, Resumed())
    (answer,) = effects
    assert len(answer.outcome) == 2_000
    assert turns >= 2_000 // REFUSALS_PER_STEP


def test_what_all_brokers_hear_is_built_once():
    live = {number: LiveBroker(BrokerNode(number, ()), 70 + number) for number in range(3)}
    state = ClusterState(brokers=live)
    partitions = {index: PartitionRegistration((0, 1, 2)) for index in range(50)}
    state.add(TopicState("wide", bytes(16), partitions))
    identity = ControllerIdentity(0, 1, "PLAINTEXT")
    requests = update_metadata(identity, live.values(), state, list(state.partitions()))
    assert [request.broker_epoch for request in requests] == [70, 71, 72]
    assert len({id(request.topic_states) for request in requests}) == 1
    assert len(requests[0].topic_states[0].partition_states) == 50


def test_the_moves_of_a_large_topic_write_its_assignment_and_ask_its_brokers_a_few_times():
    count = 1_000
    endpoint = BrokerEndpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT")
    live = {number: LiveBroker(BrokerNode(number, (endpoint,)), 70 + number) for number in range(3)}
    state = ClusterState(brokers=live, known_epochs={number: 70 + number for number in live})
    partitions = {
        index: PartitionRegistration((0, 1, 2), 0, 4, (0, 1, 2), 1, 5) for index in range(count)
    }
    state.add(TopicState("wide", bytes(16), partitions))
    controller = Controller(0, ControllerSettings(), lambda: bytes(16))
    effects = deque(controller.on(0, Elected(2, 7, state)))
    moves = [Reassignment(TopicPartition("wide", index), (0, 1)) for index in range(count)]
    effects += controller.on(0, Submitted(AlterReassignments(moves), 1))
    assignments, stops = 0, []
    while effects:
        match effects.popleft():
            case Write(ticket, ops):
                assignments += any(op.path == TopicNode.path("wide") for op in ops)
                effects += controller.on(0, Stored(ticket, []))
            case Send(ticket, broker_id, message):
                if isinstance(message, StopReplicaRequest):
                    stops.append((broker_id, message))
                effects += controller.on(0, Acknowledged(ticket))
            case Resume():
                effects += controller.on(0, Resumed())
    assert all(one.replicas == (0, 1) and not one.moving for one in partitions.values())
    assert assignments <= 2 * count // MOVES_PER_WRITE + 2
    assert {broker_id for broker_id, _ in stops} == {2}
    stopped = [len(one.partition_states) for _, message in stops for one in message.topic_states]
    assert sum(stopped) == count
    assert len(stops) <= count // PARTITIONS_PER_STEP
