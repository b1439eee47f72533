"""Long commands let the event loop turn; what the controller decides is in `tests/scenarios`."""

import pytest

from headwater.controller.commands import (
    AlterConfigs,
    AlteredResource,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    ResourceKind,
    TopicCreation,
)
from headwater.controller.control_requests import ControllerIdentity, update_metadata
from headwater.controller.decide import Controller
from headwater.controller.effects import Resume
from headwater.controller.events import Elected, Resumed, Submitted
from headwater.controller.state import (
    ClusterState,
    LiveBroker,
    PartitionRegistration,
    TopicState,
)
from headwater.controller.store.znodes import BrokerNode
from headwater.controller.topic_changes import REFUSALS_PER_STEP
from headwater.controller.topic_rules import ControllerSettings


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
