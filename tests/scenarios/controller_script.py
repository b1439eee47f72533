"""Runs a scenario of the controller: a script of events, and the effects that each one has.

A scenario is a text file. A paragraph of `#` lines says what it shows. Then follow steps: one or more
events, a line `----`, and what the controller does about them. Events:

    topic orders 0:1,2 leader=1 isr=1,2 epoch=4 version=6 [adding=2] [removing=] [elr=3]
          [last_known=1] [deleting] [KEY=VALUE ...]
    elect epoch=2 brokers=0@10,1@11 [known=0@10,1@9]
                                             (a broker's id and the epoch of its registration; the
                                              epochs in the store, if they are not the same)
    brokers 0@10,2@12,3@40<13,4@41!          (all that are live now; 3 lost nothing since epoch 13,
                                              4 lost log dirs)
    submit 77 create orders partitions=3 replicas=2 [KEY=VALUE ...]
    submit 77 create orders assign=0:1,2
    submit 77 delete orders clicks
    submit 77 grow orders 5
    submit 77 alter topic orders retention.ms=7 -segment.bytes
    submit 77 alter broker 1 KEY=VALUE       (broker * for the default of all)
    submit 77 isr 1@11 orders-0/4/6/1@11,2   (leader; leader epoch, partition epoch, in-sync set)
    submit 77 isr 1@11 #o-0/4/6/1/recovering (topic by id, which is its first letter 16 times)
    submit 77 elect preferred|unclean [orders-0 ...]     (without partitions, all)
    submit 77 move orders-0:1,2 clicks-0:cancel
    submit 77 moves                          (list them)
    submit 77 shutdown 1@11
    stored [TICKET ...]                      (these writes are durable; without tickets, all)
    refused TICKET BAD_VERSION PATH
    ack [TICKET ...] [to=1] [error=NAME]     (brokers answered; without tickets, all)
    time 60000                               (that much later, in milliseconds)
    settings unclean_leader_election=true
    deposed REASON
    outstanding                              (print everything under way)

Long work resumes at once. Tickets are the numbers after `write` and `send`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from headwater.controller.commands import (
    AlterConfigs,
    AlteredResource,
    AlterPartition,
    AlterReassignments,
    Command,
    ConfigEdit,
    ConfigOperation,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    HandoverAnswer,
    IsrAnswer,
    IsrOutcome,
    IsrProposal,
    ListReassignments,
    MorePartitions,
    OngoingReassignment,
    PartitionOutcome,
    Reassignment,
    ResourceKind,
    TopicCreation,
)
from headwater.controller.continuations import AfterSend, AfterWrite
from headwater.controller.control_requests import INCREMENTAL
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
from headwater.controller.store.metadata_store import Check, Create, Delete, Op, Set, StoreFailure
from headwater.controller.store.znodes import BrokerEndpoint, BrokerNode, config_path
from headwater.controller.topic_rules import ControllerSettings
from headwater.errors import E
from headwater.model import ZERO_UUID, TopicPartition
from headwater.wire.messages.control import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)

EPOCH_VERSION = 7


class ControllerScript:
    """One controller, on broker 0, and what it has written and sent."""

    def __init__(self) -> None:
        self._ids = iter(range(1, 100))
        self._settings = ControllerSettings()
        self._controller = Controller(0, self._settings, lambda: bytes([next(self._ids)]) * 16)
        self._state = ClusterState()
        self._now_ms = 0
        self._writes: dict[int, Write] = {}
        self._sends: dict[int, Send] = {}

    def run(self, line: str) -> Iterator[str]:
        """What one line of a script brings about, as lines."""
        verb, *words = line.split()
        yield from getattr(self, f"_on_{verb}")(words)

    # -- events

    def _on_topic(self, words: list[str]) -> Iterator[str]:
        name, assignment, *rest = words
        index, _, replicas = assignment.partition(":")
        given = dict(word.split("=", 1) for word in rest if "=" in word)
        one = PartitionRegistration(
            _ids(replicas),
            int(given.pop("leader", -1)),
            int(given.pop("epoch", -1)),
            _ids(given.pop("isr", "")),
            controller_epoch=1,
            version=int(given.pop("version", -1)),
            adding=_ids(given.pop("adding", "")),
            removing=_ids(given.pop("removing", "")),
            elr=_ids(given.pop("elr", "")),
            last_known_leader=int(given.pop("last_known", -1)),
        )
        topic = self._state.topics.get(name) or TopicState(name, name[:1].encode() * 16, {})
        topic.partitions[int(index)] = one
        topic.deleting = "deleting" in rest
        if given:
            topic.config.update(given)
            self._state.config_nodes.add(config_path("topics", name))
        self._state.add(topic)
        yield from ()

    def _on_elect(self, words: list[str]) -> Iterator[str]:
        given = dict(word.split("=") for word in words)
        self._state.brokers.update(_live(given["brokers"]))
        known = _live(given.get("known", given["brokers"]))
        self._state.known_epochs.update({one: known[one].epoch for one in known})
        state, self._state = self._state, ClusterState()
        yield from self._feed(Elected(int(given["epoch"]), EPOCH_VERSION, state))

    def _on_brokers(self, words: list[str]) -> Iterator[str]:
        yield from self._feed(BrokersChanged(_live(words[0] if words else "")))

    def _on_submit(self, words: list[str]) -> Iterator[str]:
        token, what, *rest = words
        yield from self._feed(Submitted(COMMANDS[what](rest), int(token)))

    def _on_stored(self, words: list[str]) -> Iterator[str]:
        for ticket in [int(word) for word in words] or list(self._writes):
            ops = self._writes.pop(ticket).ops
            results: list[Any] = [
                f"{op.path}{ticket:010d}" if isinstance(op, Create) and op.sequential else None
                for op in ops
            ]
            yield from self._feed(Stored(ticket, results))

    def _on_refused(self, words: list[str]) -> Iterator[str]:
        ticket, failure, path = words
        self._writes.pop(int(ticket), None)
        yield from self._feed(StoreRefused(int(ticket), StoreFailure[failure], path))

    def _on_ack(self, words: list[str]) -> Iterator[str]:
        given = dict(word.split("=") for word in words if "=" in word)
        tickets = [int(word) for word in words if "=" not in word] or list(self._sends)
        for ticket in tickets:
            send = self._sends.get(ticket)
            if send is not None and given.get("to") in (None, str(send.broker_id)):
                del self._sends[ticket]
                yield from self._feed(Acknowledged(ticket, E[given.get("error", "NONE")]))

    def _on_time(self, words: list[str]) -> Iterator[str]:
        self._now_ms += int(words[0])
        yield from self._feed(TimePassed())

    def _on_settings(self, words: list[str]) -> Iterator[str]:
        given = {name: value == "true" for name, value in (word.split("=") for word in words)}
        yield from self._print(self._controller.use_settings(ControllerSettings(**given)))

    def _on_deposed(self, words: list[str]) -> Iterator[str]:
        yield from self._feed(Deposed(" ".join(words)))

    def _on_outstanding(self, words: list[str]) -> Iterator[str]:
        term = self._controller._term
        if term is None:
            yield "not the controller"
            return
        outstanding = term.outstanding
        yield "outstanding"
        for ticket, then in outstanding.writes.items():
            yield f"  write {ticket}, then {_then(then)}"
        for ticket, sent in outstanding.requests.items():
            yield f"  send {ticket} to {sent.broker_id}, then {_then(sent.then)}"
        for token, pending in outstanding.commands.items():
            outcomes = "open" if pending.outcome is None else "known"
            yield (
                f"  command {token} ({type(pending.command).__name__}) until {pending.deadline_ms} ms: "
                f"outcomes {outcomes}, waits for {pending.awaited}"
            )
        under_way = term._jobs or outstanding._behind_writes or outstanding.writes
        if not (under_way or outstanding.requests or outstanding.commands):
            yield "  nothing"

    # -- effects

    def _feed(self, event: Event) -> Iterator[str]:
        yield from self._print(self._controller.on(self._now_ms, event))

    def _print(self, effects: list[Effect]) -> Iterator[str]:
        for effect in effects:
            match effect:
                case Write(ticket, ops):
                    self._writes[ticket] = effect
                    yield f"write {ticket}"
                    yield from (f"  {_op(op)}" for op in ops)
                case Send(ticket, broker_id, _):
                    self._sends[ticket] = effect
                    yield f"send {ticket} to {broker_id}: {_request(effect.message)}"
                case Answer(token, outcome, change):
                    after = "" if change is None else f" after config change {change}"
                    yield f"answer {token}{after}"
                    yield from (f"  {line}" for line in _outcomes(outcome))
                case LogEvent(event, loud):
                    yield f"{'LOG' if loud else 'log'}: {event}"
                case Resign(reason):
                    yield f"resign: {reason}"
                case Resume():
                    yield from self._feed(Resumed())


# -- commands


def _create(words: list[str]) -> Command[Any]:
    name, *rest = words
    given = dict(word.split("=", 1) for word in rest)
    assign = given.pop("assign", None)
    assigned = [] if assign is None else [_assigned(part) for part in assign.split("/")]
    partitions, replicas = int(given.pop("partitions", -1)), int(given.pop("replicas", -1))
    return CreateTopics([TopicCreation(name, partitions, replicas, assigned, given)])


def _assigned(text: str) -> tuple[int, tuple[int, ...]]:
    index, _, replicas = text.partition(":")
    return int(index), _ids(replicas)


def _grow(words: list[str]) -> Command[Any]:
    return CreatePartitions([MorePartitions(words[0], int(words[1]))])


def _alter(words: list[str]) -> Command[Any]:
    kind, name, *changes = words
    edits = []
    for change in changes:
        key, _, value = change.partition("=")
        if key.startswith("-"):
            edits.append(ConfigEdit(key[1:], ConfigOperation.DELETE))
        else:
            edits.append(ConfigEdit(key, ConfigOperation.SET, value))
    resource = AlteredResource(ResourceKind[kind.upper()], name.replace("*", ""), edits=edits)
    return AlterConfigs([resource])


def _isr(words: list[str]) -> Command[Any]:
    (leader,) = _members(words[0])
    return AlterPartition(*leader, [_proposal(text) for text in words[1:]])


def _proposal(text: str) -> IsrProposal:
    at, leader_epoch, partition_epoch, isr, *more = text.split("/")
    name, _, index = at.rpartition("-")
    topic_id = name[1:].encode() * 16 if name.startswith("#") else ZERO_UUID
    return IsrProposal(
        name,
        topic_id,
        int(index),
        int(leader_epoch),
        int(partition_epoch),
        _members(isr),
        "recovering" in more,
        "full" in more,
    )


def _members(text: str) -> list[tuple[int, int]]:
    pairs = (word.partition("@") for word in text.split(",") if word)
    return [(int(broker_id), int(epoch or -1)) for broker_id, _, epoch in pairs]


COMMANDS = {
    "create": _create,
    "delete": DeleteTopics,
    "grow": _grow,
    "alter": _alter,
    "isr": _isr,
    "elect": lambda words: ElectLeaders(_partitions(words[1:]), unclean=words[0] == "unclean"),
    "move": lambda words: AlterReassignments([_move(text) for text in words]),
    "moves": lambda words: ListReassignments(_partitions(words)),
    "shutdown": lambda words: ControlledShutdown(*_members(words[0])[0]),
}


def _partitions(words: list[str]) -> list[TopicPartition] | None:
    return [_partition_of(text) for text in words] or None


def _partition_of(text: str) -> TopicPartition:
    name, _, index = text.rpartition("-")
    return TopicPartition(name, int(index))


def _move(text: str) -> Reassignment:
    at, _, replicas = text.partition(":")
    return Reassignment(_partition_of(at), None if replicas == "cancel" else _ids(replicas))


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


def _live(text: str) -> dict[int, LiveBroker]:
    brokers = {}
    for word in filter(None, text.split(",")):
        broker_id, _, epochs = word.partition("@")
        epoch, _, kept_since = epochs.removesuffix("!").partition("<")
        endpoint = BrokerEndpoint("PLAINTEXT", f"b{broker_id}", 9092, "PLAINTEXT")
        node = BrokerNode(
            int(broker_id),
            (endpoint,),
            kept_since=int(kept_since or -1),
            lost_log_dirs=epochs.endswith("!"),
        )
        brokers[node.broker_id] = LiveBroker(node, int(epoch))
    return brokers


# -- printing


def _op(op: Op) -> str:
    match op:
        case Check(path, version):
            return f"check {path} version {version}"
        case Create(path, data, _, sequential):
            return f"create {path}{'...' if sequential else ''} {data.decode()}".rstrip()
        case Set(path, data, version):
            return f"set {path} version {version} {data.decode()}"
        case Delete(path, version):
            return f"delete {path}" if version == -1 else f"delete {path} version {version}"


def _then(then: AfterWrite | AfterSend) -> str:
    shown = []
    for field in fields(then):
        value = getattr(then, field.name)
        if value is None or value == field.default:
            continue
        if isinstance(value, tuple):
            value = " ".join(map(str, value))
        if value is not False:
            shown.append(field.name if value is True else f"{field.name}={value}")
    return " ".join([type(then).__name__, *shown])


def _request(request: Any) -> str:
    name = type(request).__name__.removesuffix("Request")
    told = " ".join(
        _partition(topic.topic_name, one)
        for topic in request.topic_states
        for one in topic.partition_states
    )
    match request:
        case LeaderAndIsrRequest():
            return f"{name} {told}" if request.type == INCREMENTAL else f"{name} that is all"
        case UpdateMetadataRequest():
            live = ",".join(str(broker.id) for broker in request.live_brokers)
            return f"{name} {told}{' ' if told else ''}brokers={live}"
        case StopReplicaRequest():
            return f"{name} {told}"
    raise AssertionError(f"unknown request {request}")


def _partition(topic: str, state: Any) -> str:
    at = f"{topic}-{state.partition_index}"
    if isinstance(state, StopReplicaRequest.StopReplicaPartitionState):
        return f"[{at} delete]" if state.delete_partition else f"[{at}]"
    isr = ",".join(map(str, state.isr))
    text = f"{at} leader={state.leader} epoch={state.leader_epoch} isr={isr}"
    if getattr(state, "adding_replicas", ()) or getattr(state, "removing_replicas", ()):
        text += f" {_moving(state.adding_replicas, state.removing_replicas)}"
    if getattr(state, "is_new", False):
        text += " new"
    if getattr(state, "leader_recovery_state", 0):
        text += " unclean"
    if state.elr:
        text += f" elr={','.join(map(str, state.elr))}"
    if getattr(state, "last_known_leader", -1) != -1:
        text += f" last_known={state.last_known_leader}"
    if offline := getattr(state, "offline_replicas", None):
        text += f" offline={','.join(map(str, offline))}"
    return f"[{text}]"


def _outcomes(outcome: Any) -> Iterator[str]:
    if isinstance(outcome, list):
        yield from map(_outcome, outcome)
    elif outcome.error is not E.NONE:
        yield outcome.error.name
    elif isinstance(outcome, HandoverAnswer):
        yield f"remaining: {' '.join(map(str, outcome.remaining)) or 'none'}"
    elif isinstance(outcome, IsrAnswer):
        yield from map(_isr_outcome, outcome.outcomes)
    else:
        yield from map(_partition_outcome, outcome.outcomes)


def _partition_outcome(one: PartitionOutcome | OngoingReassignment) -> str:
    if isinstance(one, PartitionOutcome):
        return f"{one.at} {one.error.name}" + (f" ({one.message})" if one.message else "")
    return f"{one.at} replicas={_joined(one.replicas)} {_moving(one.adding, one.removing)}"


def _joined(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


def _moving(adding: Sequence[int], removing: Sequence[int]) -> str:
    return f"adding={_joined(adding)} removing={_joined(removing)}"


def _isr_outcome(one: IsrOutcome) -> str:
    if one.error is not E.NONE:
        return one.error.name
    isr = ",".join(map(str, one.isr))
    recovering = " recovering" if one.recovering else ""
    return (
        f"leader={one.leader} epoch={one.leader_epoch} version={one.partition_epoch} "
        f"isr={isr}{recovering}{f' elr={_joined(one.elr)}' if one.elr else ''}"
    )


def _outcome(one: Any) -> str:
    text = f"{one.name} {one.error.name}"
    if one.message:
        text += f" ({one.message})"
    if getattr(one, "partitions", -1) >= 0:
        text += f" partitions={one.partitions} replicas={one.replication_factor}"
    return text
