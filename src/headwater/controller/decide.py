"""The controller's decisions: events in, ordered effects out.

Pure: no clock, no store, no socket. Decisions are made one at a time. A long one pauses every few
dozen partitions and continues after `Resumed`, so that it never holds the event loop. A decision
changes the state at once, is sent to brokers once its write is durable, and is answered to the client
once brokers have applied it.

If a write fails, another broker is the controller or the store cannot be reached. Every waiting
client then gets NOT_CONTROLLER and the controller resigns; the next one loads the state again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from headwater.controller.commands import (
    AlterConfigs,
    AlteredResource,
    AlterPartition,
    AlterQuotas,
    AlterReassignments,
    AlterUsers,
    ConfigOutcome,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    ListReassignments,
)
from headwater.controller.config_edits import edited, entity_of
from headwater.controller.continuations import (
    AfterAllWrites,
    AfterSend,
    AfterWrite,
    AwaitConfigChange,
    DeleteReplicas,
    EndIntroduction,
    FinishReassignments,
    ForgetTopic,
    NoteAlive,
    NoteEpochs,
    NoteReplicasDeleted,
    NoteReplicasRemoved,
    Nothing,
    Release,
    RememberEpochs,
    SendInSyncSets,
    SendPartitionStates,
)
from headwater.controller.effects import Answer, Effect, Resign, Resume
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
from headwater.controller.isr_changes import IsrChanges
from headwater.controller.leader_elections import MIN_INSYNC, UNCLEAN, LeaderElections
from headwater.controller.leadership_handover import LeadershipHandover
from headwater.controller.outstanding import Outstanding
from headwater.controller.preferred_leaders import PreferredLeaders
from headwater.controller.quota_changes import QuotaChanges
from headwater.controller.reassignments import Reassignments
from headwater.controller.state import LiveBroker
from headwater.controller.store.metadata_store import OpResult
from headwater.controller.store.znodes import CONFIG_CHANGE_PREFIX
from headwater.controller.stored_configs import StoredConfigs
from headwater.controller.topic_changes import TopicChanges
from headwater.controller.topic_rules import ControllerSettings
from headwater.controller.user_changes import UserChanges
from headwater.errors import E, KafkaError
from headwater.model import Uuid

RESOURCES_PER_STEP = 10
REPORT_MS = 60_000
"""How often deletions that wait for a broker are logged."""
_DONE = object()


def _repeated(resources: Iterable[AlteredResource]) -> set[tuple[int, str]]:
    """The kind and name of each resource that appears more than once."""
    seen: dict[int, set[str]] = {}
    twice: set[tuple[int, str]] = set()
    for resource in resources:
        names = seen.setdefault(resource.kind, set())
        if resource.name in names:
            twice.add((resource.kind, resource.name))
        names.add(resource.name)
    return twice


def _refuse_repeated(resource: AlteredResource, twice: set[tuple[int, str]]) -> None:
    if (resource.kind, resource.name) in twice:
        raise KafkaError(E.INVALID_REQUEST, "the resource appears twice in the request")


class Controller:
    """Decides while this broker is the controller; refuses every command otherwise."""

    def __init__(
        self, broker_id: int, settings: ControllerSettings, new_topic_id: Callable[[], Uuid]
    ) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._new_topic_id = new_topic_id
        self._term: _Term | None = None
        self._tickets = 0
        # Of earlier terms.
        self._unclean_elections = 0
        self.store_problem = ""
        """Why no broker can be elected now; empty while the store answers this one."""

    @property
    def refusal(self) -> KafkaError:
        """What commands get while this broker is not the controller."""
        elsewhere = "this broker is not the controller; find the controller and try again"
        return KafkaError(E.NOT_CONTROLLER, self.store_problem or elsewhere)

    @property
    def active(self) -> bool:
        return self._term is not None

    @property
    def unclean_elections(self) -> int:
        """How many leaders were elected in the terms of this broker that were not in sync."""
        term = self._term
        return self._unclean_elections + (term.outstanding.unclean_elections if term else 0)

    def name_of(self, topic_id: Uuid) -> str | None:
        """Return the name of a topic; None if no topic has this id."""
        return self._term.outstanding.state.by_id.get(topic_id) if self._term else None

    def use_settings(self, settings: ControllerSettings) -> list[Effect]:
        """Apply changed settings of the broker."""
        self._settings = settings
        if self._term is None:
            return []
        self._term.use_settings(settings)
        return self._term.drain_effects()

    def next_deadline(self) -> int | None:
        """When to feed TimePassed, or None."""
        return self._term.next_deadline() if self._term else None

    def on(self, now_ms: int, event: Event) -> list[Effect]:
        """Decide about `event`; the caller carries out the effects in order."""
        if isinstance(event, Elected):
            self._unclean_elections = self.unclean_elections
            self._term = _Term(
                self._broker_id, self._settings, self._new_topic_id, event, self._tickets, now_ms
            )
            return self._term.drain_effects()
        if self._term is None:
            if isinstance(event, Submitted):
                return [Answer(event.token, event.command.refusal(self.refusal))]
            return []
        if isinstance(event, StoreRefused) and event.ticket not in self._term.outstanding.writes:
            return []
        if isinstance(event, Deposed | StoreRefused):
            return self._end_term(event)
        self._term.on(now_ms, event)
        return self._term.drain_effects()

    def _end_term(self, event: Deposed | StoreRefused) -> list[Effect]:
        self._unclean_elections = self.unclean_elections
        term, self._term = self._term, None
        if term is None:
            return []
        term.outstanding.abandon(self.refusal)
        self._tickets = (
            term.outstanding.ticket
        )  # never used again: late replies must not match anything
        answers = [effect for effect in term.outstanding.effects if isinstance(effect, Answer)]
        if isinstance(event, Deposed):
            return [*answers]
        return [*answers, Resign(f"a write failed: {event.path}: {event.failure.value}")]


class _Term:
    """One term: from the election until this broker knows that it is over."""

    def __init__(
        self,
        broker_id: int,
        settings: ControllerSettings,
        new_topic_id: Callable[[], Uuid],
        elected: Elected,
        first_ticket: int,
        now_ms: int,
    ) -> None:
        brokers = dict(elected.state.brokers)
        elected.state.stored_epochs.update(elected.state.known_epochs)
        elected.state.brokers.clear()  # so that each of them joins and gets the full state
        self.outstanding = Outstanding(broker_id, settings, elected, first_ticket)
        self._jobs: deque[Iterator[None]] = deque()
        self._resuming = False
        self._elections = LeaderElections(self.outstanding, self._broker_gone)
        self._isr_changes = IsrChanges(self.outstanding, self._elections)
        self._preferred = PreferredLeaders(self.outstanding, self._elections)
        self._handover = LeadershipHandover(self.outstanding, self._elections)
        self._reassignments = Reassignments(self.outstanding, self._elections, self._jobs.append)
        self._topics = TopicChanges(
            self.outstanding, self._elections, new_topic_id, self._jobs.append
        )
        self._configs = StoredConfigs(self.outstanding)
        self._users = UserChanges(self.outstanding, self._configs)
        self._quotas = QuotaChanges(self.outstanding, self._configs)
        self._next_rebalance_ms = now_ms + settings.leader_imbalance_check_ms
        self._next_report_ms = now_ms + REPORT_MS
        self._brokers_changed(brokers)
        self._jobs.append(self._reassignments.resume())
        self._work()

    def next_deadline(self) -> int:
        """When to feed the next TimePassed."""
        optional = (self.outstanding.next_deadline(), self._handover.next_deadline())
        due = [deadline for deadline in optional if deadline is not None]
        return min(self._next_rebalance_ms, self._next_report_ms, *due)

    def drain_effects(self) -> list[Effect]:
        effects, self.outstanding.effects = self.outstanding.effects, []
        return effects

    def on(self, now_ms: int, event: Event) -> None:
        match event:
            case BrokersChanged(brokers):
                self._brokers_changed(brokers)
            case Submitted():
                self._submitted(now_ms, event)
            case Stored(ticket, results):
                if ticket in self.outstanding.writes:
                    self._after_write(self.outstanding.writes.pop(ticket), results)
            case Acknowledged(ticket, error):
                if ticket in self.outstanding.requests:
                    self._after_send(self.outstanding.requests.pop(ticket).then, error)
            case TimePassed():
                self.outstanding.expire(now_ms)
                self._time_passed(now_ms)
            case Resumed():
                self._resuming = False
            case _:
                raise AssertionError(f"unexpected event while leading: {event}")
        self._work()

    def _time_passed(self, now_ms: int) -> None:
        settings = self.outstanding.settings
        self._jobs.extend(self._handover.time_passed(now_ms))
        if now_ms >= self._next_rebalance_ms:
            self._next_rebalance_ms = now_ms + settings.leader_imbalance_check_ms
            if settings.auto_leader_rebalance:
                self._jobs.append(self._preferred.rebalance())
        if now_ms >= self._next_report_ms:
            self._next_report_ms = now_ms + REPORT_MS
            self._topics.report_stuck(now_ms)

    def _brokers_changed(self, brokers: Mapping[int, LiveBroker]) -> None:
        self._jobs.append(self._elections.brokers_changed(brokers))
        self._topics.resume_deletions()
        self._jobs.append(self._elections.end_introductions())

    def _after_write(self, then: AfterWrite, results: Sequence[OpResult]) -> None:
        match then:
            case SendPartitionStates():
                self.outstanding.partitions_stored(then)
                self._reassignments.isr_changed(then.partitions)
            case SendInSyncSets():
                self.outstanding.in_sync_sets_stored(then)
                self._reassignments.isr_changed(then.partitions)
            case AwaitConfigChange(token):
                notification = int(str(results[-1]).removeprefix(CONFIG_CHANGE_PREFIX))
                self.outstanding.await_config_change(token, notification)
            case DeleteReplicas(topic):
                self._topics.deletion_marked(topic)
            case ForgetTopic(topic):
                self._topics.topic_removed(topic)
            case NoteEpochs(epochs):
                self.outstanding.state.stored_epochs.update(epochs)
            case Nothing():
                pass

    def _after_send(self, then: AfterSend, error: E) -> None:
        match then:
            case Release(token):
                self.outstanding.release(token)
            case NoteReplicasDeleted():
                self._topics.replicas_deleted(then, error)
            case NoteReplicasRemoved():
                self._reassignments.replicas_removed(then, error)
            case NoteAlive():
                self._jobs.extend(self._handover.answered(then))

    def _broker_gone(self, broker_id: int) -> None:
        for then in self.outstanding.pop_requests_to(broker_id):
            self._after_send(then, E.BROKER_NOT_AVAILABLE)

    def use_settings(self, settings: ControllerSettings) -> None:
        """Apply new settings; they may permit a leader for partitions that have none.

        With fewer min.insync.replicas, records may be committed without eligible leader replicas.
        """
        former, self.outstanding.settings = self.outstanding.settings, settings
        permits = settings.unclean_leader_election and not former.unclean_leader_election
        if permits or settings.min_insync_replicas < former.min_insync_replicas:
            self._jobs.append(self._elections.elect_leaders())
            self._work()

    def _work(self) -> None:
        """Run the oldest job until it pauses; only `Resumed` continues it."""
        paused = self._resuming
        due = self.outstanding.pop_due()
        while due or (self._jobs and not self._resuming):
            for then in due:
                self._after_all_writes(then)
            while self._jobs and not self._resuming:
                if next(self._jobs[0], _DONE) is _DONE:
                    self._jobs.popleft()
                else:
                    self._resuming = True
            due = self.outstanding.pop_due()
        if self._resuming and not paused:
            self.outstanding.effects.append(Resume())

    def _after_all_writes(self, then: AfterAllWrites) -> None:
        match then:
            case RememberEpochs():
                self._elections.leaders_written(then)
            case EndIntroduction():
                self._elections.introduced(then)
            case FinishReassignments(_, ready):
                self._reassignments.written(then)
                self._reassignments.let_go(ready)

    def _submitted(self, now_ms: int, event: Submitted) -> None:
        command = event.command
        token = event.token
        self.outstanding.begin(token, command, now_ms)
        match command:
            case CreateTopics():
                self._jobs.append(self._topics.create(command, token))
            case DeleteTopics():
                self._jobs.append(self._topics.delete(command, token))
            case CreatePartitions():
                self._jobs.append(self._topics.create_partitions(command, token))
            case AlterPartition():
                self._jobs.append(self._isr_changes.alter(command, token))
            case ElectLeaders():
                self._jobs.append(self._preferred.elect(command, token))
            case AlterReassignments():
                self._jobs.append(self._reassignments.alter(command, token))
            case ListReassignments():
                self._jobs.append(self._reassignments.list(command, token))
            case ControlledShutdown():
                self._jobs.extend(self._handover.begin(command, token, now_ms))
            case AlterConfigs():
                self._jobs.append(self._alter_configs(command, token))
            case AlterUsers():
                self._jobs.append(self._users.alter(command, token))
            case AlterQuotas():
                self._jobs.append(self._quotas.alter(command, token))
            case _:
                raise AssertionError(f"unknown command {command}")

    def _alter_configs(self, command: AlterConfigs, token: int) -> Iterator[None]:
        outcomes = []
        twice = _repeated(command.resources)
        for number, resource in enumerate(command.resources, 1):
            if number % RESOURCES_PER_STEP == 0:
                yield
            try:
                _refuse_repeated(resource, twice)
                entity = entity_of(resource, self.outstanding.state)
                present = self._configs.overrides(entity)
                overrides = edited(resource, present)
            except KafkaError as refusal:
                outcomes.append(
                    ConfigOutcome(resource.kind, resource.name, refusal.code, refusal.message)
                )
                continue
            outcomes.append(ConfigOutcome(resource.kind, resource.name))
            if not command.validate_only:
                self._configs.store(entity, overrides, token)
                if any(present.get(key) != overrides.get(key) for key in (UNCLEAN, MIN_INSYNC)):
                    self._jobs.append(self._elections.elect_leaders())
        self.outstanding.decided(token, outcomes)
