"""Transcripts of decisions for several brokers: events in, effects out, nothing else."""

from collections.abc import Sequence
from typing import Any

import pytest

from headwater.controller.commands import (
    AlterConfigs,
    AlteredResource,
    ConfigEdit,
    ConfigOperation,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    ResourceKind,
    TopicCreation,
)
from headwater.controller.decide import Controller
from headwater.controller.effects import Answer, Effect, LogEvent, Resign, Resume, Send, Write
from headwater.controller.events import (
    Acknowledged,
    BrokersChanged,
    Deposed,
    Elected,
    Event,
    Resumed,
    Stored,
    StoreRefused,
    Submitted,
    TimePassed,
)
from headwater.controller.state import ClusterState, LiveBroker, PartitionRegistration, TopicState
from headwater.controller.store.metadata_store import Check, Create, Set, StoreFailure
from headwater.controller.store.znodes import BrokerEndpoint, BrokerNode, StateNode
from headwater.controller.topic_changes import REFUSALS_PER_STEP
from headwater.controller.topic_rules import ControllerSettings
from headwater.errors import E
from headwater.wire.messages.control import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)


def live(*ids_and_epochs: tuple[int, int]) -> dict[int, LiveBroker]:
    return {
        broker_id: LiveBroker(
            BrokerNode(
                broker_id, (BrokerEndpoint("PLAINTEXT", f"b{broker_id}", 9092, "PLAINTEXT"),)
            ),
            epoch,
        )
        for broker_id, epoch in ids_and_epochs
    }


def led(
    replicas: Sequence[int], leader: int, isr: Sequence[int], granted_at: int
) -> PartitionRegistration:
    return PartitionRegistration(
        tuple(replicas),
        leader,
        leader_epoch=4,
        isr=tuple(isr),
        controller_epoch=1,
        version=6,
        granted_at=granted_at,
    )


class Transcript:
    """Feeds events, keeps writes and sends until the test lets them happen."""

    def __init__(self, state: ClusterState, settings: ControllerSettings | None = None) -> None:
        ids = iter(range(1, 100))
        self.controller = Controller(
            0, settings or ControllerSettings(), lambda: bytes([next(ids)]) * 16
        )
        self.now_ms = 0
        self.writes: list[Write] = []
        self.sends: list[Send] = []
        self.others: list[Effect] = []
        self.reports: list[str] = []
        self.feed(Elected(2, 7, state))

    def feed(self, event: Event) -> None:
        self.take(self.controller.on(self.now_ms, event))

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Write):
                self.writes.append(effect)
            elif isinstance(effect, Send):
                self.sends.append(effect)
            elif isinstance(effect, Resume):
                self.feed(Resumed())
            elif isinstance(effect, LogEvent):
                self.reports.append(effect.event)
            else:
                self.others.append(effect)

    def store_all(self) -> list[Write]:
        """Let every write succeed."""
        done = []
        while self.writes:
            write = self.writes.pop(0)
            done.append(write)
            results: list[Any] = [
                op.path + f"{write.ticket:010d}" * op.sequential if isinstance(op, Create) else None
                for op in write.ops
            ]
            self.feed(Stored(write.ticket, results))
        return done

    def acknowledge_all(self, error: E = E.NONE) -> list[Send]:
        done = []
        while self.sends:
            send = self.sends.pop(0)
            done.append(send)
            self.feed(Acknowledged(send.ticket, error))
        return done

    def settle(self) -> None:
        while self.writes or self.sends:
            self.store_all()
            self.acknowledge_all()


def cluster(
    *partitions: PartitionRegistration, brokers: dict[int, LiveBroker], **config: str
) -> ClusterState:
    state = ClusterState(brokers=dict(brokers))
    state.add(TopicState("t", bytes(15) + b"t", dict(enumerate(partitions)), config=dict(config)))
    return state


def states_written(writes: Sequence[Write]) -> dict[str, StateNode]:
    return {
        op.path: StateNode.decode("t", 0, op.data)
        for write in writes
        for op in write.ops
        if isinstance(op, Set | Create) and op.path.endswith("/state")
    }


def only_state(writes: Sequence[Write]) -> StateNode:
    (state,) = states_written(writes).values()
    return state


def leaders_told(sends: Sequence[Send]) -> dict[int, int]:
    return {
        send.broker_id: send.message.topic_states[0].partition_states[0].leader
        for send in sends
        if isinstance(send.message, LeaderAndIsrRequest)
    }


def test_a_leader_that_is_live_since_before_its_election_stays():
    partition = led([1, 2], 1, [1, 2], granted_at=30)
    script = Transcript(cluster(partition, brokers=live((1, 10), (2, 11))))
    assert script.writes == []
    assert leaders_told(script.sends) == {1: 1, 2: 1}, "but the new controller tells all"


def test_a_leader_that_registered_after_its_election_is_elected_anew():
    partition = led([1, 2], 1, [1, 2], granted_at=30)
    script = Transcript(cluster(partition, brokers=live((1, 40), (2, 11))))
    written = script.store_all()
    assert only_state(written) == StateNode(1, 5, (1, 2), 2)
    (write,) = written
    assert write.ops[0] == Check("/controller_epoch", 7)
    assert write.ops[1].version == 6


def test_nobody_hears_of_an_election_before_it_is_stored():
    partition = led([1, 2], 1, [1, 2], granted_at=30)
    script = Transcript(cluster(partition, brokers=live((2, 11))))
    assert all(not send.message.topic_states for send in script.sends)
    script.store_all()
    assert leaders_told(script.sends) == {2: 2}


def test_the_first_live_in_sync_replica_in_assignment_order_takes_over():
    partition = led([1, 2, 3], 1, [3, 2, 1], granted_at=30)
    script = Transcript(cluster(partition, brokers=live((1, 10), (2, 11), (3, 12))))
    script.settle()
    script.feed(BrokersChanged(live((2, 11), (3, 12))))
    assert only_state(script.store_all()) == StateNode(2, 5, (3, 2), 2)
    told = [send for send in script.sends if isinstance(send.message, UpdateMetadataRequest)]
    assert {send.broker_id for send in told} == {2, 3}
    assert told[-1].message.topic_states[0].partition_states[0].offline_replicas == [1]


def test_a_follower_that_goes_leaves_the_in_sync_set_under_a_new_epoch():
    partition = led([1, 2], 1, [1, 2], granted_at=30)
    script = Transcript(cluster(partition, brokers=live((1, 10), (2, 11))))
    script.settle()
    script.feed(BrokersChanged(live((1, 10))))
    assert only_state(script.store_all()) == StateNode(1, 5, (1,), 2)


def test_with_no_replica_in_sync_nobody_leads_and_the_set_is_kept():
    partition = led([1, 2], 1, [1], granted_at=30)
    script = Transcript(cluster(partition, brokers=live((1, 10), (2, 11))))
    script.settle()
    script.feed(BrokersChanged(live((2, 11))))
    assert only_state(script.store_all()) == StateNode(-1, 5, (1,), 2)
    script.settle()
    script.feed(BrokersChanged(live((1, 50), (2, 11))))
    assert only_state(script.store_all()) == StateNode(1, 6, (1,), 2)


def test_a_topic_may_prefer_a_leader_that_lost_records_to_none():
    partition = led([1, 2], 1, [1], granted_at=30)
    state = cluster(partition, brokers=live((2, 11)))
    state.topics["t"].config["unclean.leader.election.enable"] = "true"
    script = Transcript(state)
    assert only_state(script.store_all()) == StateNode(2, 5, (2,), 2, recovering=True)


def test_a_broker_that_registered_anew_loses_what_it_led_in_its_former_life():
    partition = led([1, 2], 1, [1, 2], granted_at=30)
    script = Transcript(cluster(partition, brokers=live((1, 10), (2, 11))))
    script.settle()
    script.feed(BrokersChanged(live((1, 60), (2, 11))))
    assert only_state(script.store_all()) == StateNode(2, 5, (2,), 2)
    script.settle()
    assert all(send.message.broker_epoch == 60 for send in script.sends if send.broker_id == 1)


def test_a_partition_without_a_state_gets_its_first_leader():
    script = Transcript(cluster(PartitionRegistration((2, 1)), brokers=live((1, 10), (2, 11))))
    (write,) = script.store_all()
    assert [type(op) for op in write.ops] == [Check, Create, Create]
    assert only_state([write]) == StateNode(2, 0, (2, 1), 2)


def test_a_new_topic_spreads_over_the_brokers_and_waits_for_its_leaders():
    script = Transcript(ClusterState(brokers=live((0, 10), (1, 11), (2, 12))))
    script.settle()
    script.feed(Submitted(CreateTopics([TopicCreation("n", 3, 2)]), 77))
    written = states_written(script.store_all())
    assert sorted(state.leader for state in written.values()) == [0, 1, 2]
    orders = [send for send in script.sends if isinstance(send.message, LeaderAndIsrRequest)]
    news = [send for send in script.sends if isinstance(send.message, UpdateMetadataRequest)]
    assert {send.broker_id for send in orders} == {0, 1, 2}
    own = [send for send in news if send.broker_id == 0]
    for send in [*orders, *own]:
        assert script.others == []
        script.feed(Acknowledged(send.ticket))
    (answer,) = script.others
    assert isinstance(answer, Answer)
    assert answer.token == 77


def test_a_broker_that_dies_holds_nobody_up():
    script = Transcript(ClusterState(brokers=live((0, 10), (1, 11))))
    script.settle()
    script.feed(Submitted(CreateTopics([TopicCreation("n", 1, 2)]), 77))
    script.store_all()
    for send in script.sends:
        if send.broker_id == 0:
            script.feed(Acknowledged(send.ticket))
    assert script.others == []
    script.feed(BrokersChanged(live((0, 10))))
    assert [effect.token for effect in script.others] == [77]


def test_a_deletion_waits_for_a_replica_that_is_away_but_the_client_does_not():
    partition = led([0, 1], 0, [0, 1], granted_at=30)
    script = Transcript(cluster(partition, brokers=live((0, 10))))
    script.settle()
    script.feed(Submitted(DeleteTopics(["t"]), 5))
    script.settle()
    assert [effect.token for effect in script.others] == [5]
    script.feed(BrokersChanged(live((0, 10), (1, 20))))
    stops = [s for s in script.sends if isinstance(s.message, StopReplicaRequest)]
    assert {send.broker_id for send in stops} == {0, 1}
    script.acknowledge_all()
    deleted = [op.path for write in script.store_all() for op in write.ops]
    assert deleted[-1] == "/admin/delete_topics/t"
    assert script.writes == []


def test_a_failed_write_ends_the_term_and_tells_whoever_waits():
    script = Transcript(ClusterState(brokers=live((0, 10))))
    script.settle()
    script.feed(Submitted(CreateTopics([TopicCreation("n")]), 1))
    script.feed(Submitted(CreateTopics([TopicCreation("m")]), 2))
    first, second = script.writes
    script.feed(StoreRefused(first.ticket, StoreFailure.BAD_VERSION, "/controller_epoch"))
    *answers, resign = script.others
    assert [(one.token, one.outcome[0].error) for one in answers] == [
        (1, E.NOT_CONTROLLER),
        (2, E.NOT_CONTROLLER),
    ]
    assert isinstance(resign, Resign)
    script.feed(StoreRefused(second.ticket, StoreFailure.BAD_VERSION, "/controller_epoch"))
    assert len(script.others) == 3


def test_replies_to_an_earlier_term_are_nobodys():
    script = Transcript(ClusterState(brokers=live((0, 10))))
    script.feed(Submitted(CreateTopics([TopicCreation("n")]), 1))
    (late,) = script.writes
    script.feed(Deposed("a test"))
    script.feed(Elected(3, 8, ClusterState(brokers=live((0, 10)))))
    before = len(script.others)
    script.feed(StoreRefused(late.ticket, StoreFailure.BAD_VERSION, "/controller_epoch"))
    script.feed(Stored(late.ticket, []))
    assert len(script.others) == before
    assert script.controller.active


def test_outside_a_term_everything_is_refused():
    controller = Controller(0, ControllerSettings(), lambda: bytes(16))
    (answer,) = controller.on(0, Submitted(CreateTopics([TopicCreation("n")]), 9))
    assert isinstance(answer, Answer)
    assert answer.outcome[0].error is E.NOT_CONTROLLER
    assert controller.on(0, TimePassed()) == []


def test_a_cluster_wide_unclean_election_gives_leaders_at_once():
    """As soon as the rule changes: the partitions wait for nothing else."""
    alone = PartitionRegistration((1, 0), leader=-1, isr=(1,), leader_epoch=3, version=4)
    script = Transcript(cluster(alone, brokers=live((0, 10))))
    script.settle()
    assert script.controller.idle
    script.take(script.controller.use_settings(ControllerSettings(unclean_leader_election=True)))
    ((_, state),) = states_written(script.store_all()).items()
    assert (state.leader, tuple(state.isr)) == (0, (0,))


def test_topics_and_configs_leave_a_line_in_the_log():
    script = Transcript(ClusterState(brokers=live((0, 10))))
    script.settle()
    script.feed(Submitted(CreateTopics([TopicCreation("n", 2, configs={"retention.ms": "7"})]), 1))
    script.settle()
    edit = ConfigEdit("retention.ms", ConfigOperation.DELETE)
    altered = AlteredResource(ResourceKind.TOPIC, "n", edits=[edit])
    script.feed(Submitted(AlterConfigs([altered]), 2))
    everywhere = AlteredResource(ResourceKind.BROKER, "", replacement={"message.max.bytes": "9"})
    script.feed(Submitted(AlterConfigs([everywhere]), 3))
    script.feed(Submitted(CreatePartitions([MorePartitions("n", 5)]), 4))
    script.settle()
    script.feed(Submitted(DeleteTopics(["n"]), 5))
    script.settle()
    assert script.reports == [
        "topic 'n' created: 2 partitions, 1 replicas, retention.ms='7'",
        "configs of topic 'n' changed: retention.ms unset",
        "configs of all brokers changed: message.max.bytes='9'",
        "topic 'n' grows from 2 to 5 partitions",
        "topic 'n' is marked for deletion",
        "topic 'n' deleted",
    ]


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
