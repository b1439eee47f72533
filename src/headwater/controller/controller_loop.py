"""Runs for controller, and carries out the decisions of `decide` while this broker is elected.

The only place where decisions meet the store, the channels and the clock. Everything happens on the
event loop, one event after another; nothing here blocks.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

from headwater.controller.channel_loop import Channels, error_of
from headwater.controller.commands import Command
from headwater.controller.decide import Controller
from headwater.controller.effects import Answer, Effect, LogEvent, Resign, Resume, Send, Write
from headwater.controller.election import claim_controller
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
from headwater.controller.live_brokers import BrokerWatcher
from headwater.controller.metadata_loader import read_topics
from headwater.controller.placement import rack_problem
from headwater.controller.state import ClusterState, LiveBroker
from headwater.controller.store.certain_write import write_surely
from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    MetadataStore,
    OpResult,
    SessionState,
    Stat,
    StoreError,
    StoreFailure,
    WatchEvent,
    Znode,
)
from headwater.controller.store.znodes import CONTROLLER, CONTROLLER_EPOCH, decode_controller
from headwater.controller.topic_rules import ControllerSettings, sites
from headwater.model import NO_LEADER, Uuid
from headwater.seams.clock import Clock
from headwater.seams.timers import CallLater, CallSoon, Timer

log = logging.getLogger(__name__)

R = TypeVar("R")
RETRY_S = 0.5


WhenConfigApplied: TypeAlias = Callable[[int, Callable[[], object]], None]
"""Calls back once this broker has applied the config notification of that number."""


class ControllerLoop:
    """The controller of this broker: runs for election, and acts while it is elected."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        settings: ControllerSettings,
        *,
        clock: Clock,
        new_topic_id: Callable[[], Uuid],
        channels: Channels,
        when_config_applied: WhenConfigApplied,
        call_soon: CallSoon,
        call_later: CallLater,
        on_elected: Callable[[], None] = lambda: None,
        store_address: str = "",
    ) -> None:
        """`store_address` is for error messages; a store in this process has none."""
        self.controller_id = NO_LEADER
        self._when_config_applied = when_config_applied
        self._on_elected = on_elected
        self._store_address = store_address
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._channels = channels
        self._call_soon = call_soon
        self._call_later = call_later
        self._controller = Controller(broker_id, settings, new_topic_id)
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._tokens = 0
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._broker_watcher: BrokerWatcher | None = None
        self._live: dict[int, LiveBroker] = {}
        self._live_known = False
        # From a successful claim to the end of the term, including the load of the cluster state.
        self._in_office = False
        self._watching = False
        self._stopped = False
        store.on_session(self._session_changed)

    @property
    def active(self) -> bool:
        """Whether this broker is the controller and has loaded the cluster state."""
        return self._controller.active

    @property
    def store_problem(self) -> str:
        """Why no broker can be elected now; empty while the store answers this one."""
        return self._controller.store_problem

    @property
    def unclean_elections(self) -> int:
        """How many leaders that were not in sync this broker has elected."""
        return self._controller.unclean_elections

    def name_of(self, topic_id: Uuid) -> str | None:
        """Return the name of a topic while this broker is the controller, which knows it first."""
        return self._controller.name_of(topic_id)

    def start(self) -> None:
        """Run for controller now, and again whenever there is none.

        Call it again after each registration: only a registered broker runs for controller.
        """
        if not self._stopped:
            self._watch_controller()
            self._store.get(CONTROLLER, self._controller_read)

    def stop(self) -> None:
        """Stop running for controller; waiting commands are answered NOT_CONTROLLER."""
        self._stopped = True
        self._end_term("this broker stops")

    def use_settings(self, settings: ControllerSettings) -> None:
        self._carry_out_all(self._controller.use_settings(settings))

    def submit(self, command: Command[R], reply: Callable[[R], None]) -> None:
        """Run a command; `reply` is called once, never inside this call."""
        self._tokens += 1
        self._waiting[self._tokens] = reply
        self._on(Submitted(command, self._tokens))

    # -- running for controller

    def _watch_controller(self) -> None:
        def watched(result: Stat | StoreError | None) -> None:
            self._watching = not isinstance(result, StoreError)

        if not self._watching:
            self._watching = True
            self._store.exists(CONTROLLER, watched, self._controller_changed)

    def _controller_changed(self, change: WatchEvent, path: str) -> None:
        self._watching = False
        if change is WatchEvent.DELETED:
            self.controller_id = NO_LEADER
            self._depose("the controller's node is gone")
        self.start()

    def _controller_read(self, node: Znode | StoreError) -> None:
        if self._in_office or self._stopped:
            return
        if not isinstance(node, Znode):
            if node.kind is StoreFailure.NO_NODE:
                self._store.get(CONTROLLER_EPOCH, self._epoch_read)
        elif node.stat.ephemeral_owner == self._store.session_id:
            # This broker's node of an earlier term: nobody can be elected until it is deleted.
            self._store.delete(CONTROLLER, ANY_VERSION, self._or_later)
        else:
            self.controller_id = decode_controller(node.data)

    def _epoch_read(self, node: Znode | StoreError) -> None:
        if self._in_office or self._stopped:
            return
        if isinstance(node, Znode):
            epoch, version = int(node.data), node.stat.version
            ops = claim_controller(self._broker_id, self._clock.wall_ms(), epoch, version)
            self._store.multi(ops, partial(self._claimed, epoch + 1, version + 1))
        elif node.kind is StoreFailure.NO_NODE:
            self._store.create(CONTROLLER_EPOCH, b"0", lambda _: self.start())

    def _claimed(self, epoch: int, version: int, result: list[OpResult] | StoreError) -> None:
        if isinstance(result, StoreError):
            self._or_later(result)
        elif not self._stopped:
            log.info("elected controller, epoch %d", epoch)
            self._in_office = True
            self._begin(epoch, version)

    def _or_later(self, result: object) -> None:
        """Retry after a failure; after a success, the watch reports the change."""
        if isinstance(result, StoreError):
            self._call_later(RETRY_S, self.start)

    def _session_changed(self, session: SessionState) -> None:
        self._watching = False
        expired, address = session is SessionState.EXPIRED, self._store_address
        self._controller.store_problem = (
            f"there is no controller to ask, because the metadata store at {address} does not answer; "
            "start its servers, then try again"
            if expired and address
            else ""
        )
        if expired:
            self._depose("the session of the store has expired")

    # -- one term

    def _begin(self, epoch: int, version: int) -> None:
        """Load the live brokers, then the rest of the state; after that, follow the changes."""

        def changed(brokers: dict[int, LiveBroker] | StoreError) -> None:
            if isinstance(brokers, StoreError):
                self._resign(f"the live brokers could not be read: {brokers}")
                return
            first, self._live = not self._live_known, brokers
            self._channels.follow(brokers)
            self._live_known = True
            _report_racks(brokers)
            if first:
                read_topics(self._store, partial(self._topics_read, epoch, version))
            else:
                self._on(BrokersChanged(brokers))

        self._live_known = False
        self._broker_watcher = BrokerWatcher(self._store, changed)

    def _topics_read(self, epoch: int, version: int, state: ClusterState | StoreError) -> None:
        if isinstance(state, StoreError):
            self._resign(f"the cluster could not be read: {state}")
        elif self._broker_watcher is not None:
            state.brokers.update(self._live)
            self.controller_id = self._broker_id
            self._on(Elected(epoch, version, state))
            self._on_elected()

    def _depose(self, reason: str) -> None:
        if self._in_office:
            log.warning("no longer controller: %s", reason)
        self._end_term(reason)

    def _end_term(self, reason: str) -> None:
        self._in_office = False
        if self._broker_watcher is not None:
            self._broker_watcher.stop()
            self._broker_watcher = None
        self._on(Deposed(reason))
        self._channels.follow({})

    def _resign(self, reason: str) -> None:
        """End the term and run again; `start` deletes this broker's node first."""
        self._depose(reason)
        self.start()

    # -- events and effects

    def _on(self, event: Event) -> None:
        self._carry_out_all(self._controller.on(self._clock.monotonic_ms(), event))

    def _carry_out_all(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._carry_out(effect)
        self._set_timer()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Write(ticket, ops):
                write_surely(self._store, ops, partial(self._written, ticket))
            case Send(ticket, broker_id, message):
                self._channels.send(broker_id, message, partial(self._acknowledged, ticket))
            case Answer(token, outcome, change):
                answer = partial(self._waiting.pop(token), outcome)
                # Later: a reply may submit another command, which must not overtake these effects.
                if change is None:
                    self._call_soon(answer)
                else:
                    self._when_config_applied(change, lambda: self._call_soon(answer))
            case Resume():
                self._call_soon(lambda: self._on(Resumed()))
            case LogEvent(event, loud):
                log.log(logging.WARNING if loud else logging.INFO, "%s", event)
            case Resign(reason):
                self._resign(reason)

    def _written(self, ticket: int, result: list[OpResult] | StoreError) -> None:
        if isinstance(result, StoreError):
            self._on(StoreRefused(ticket, result.kind, result.path))
        else:
            self._on(Stored(ticket, result))

    def _acknowledged(self, ticket: int, response: Any) -> None:
        error = error_of(response)
        if error:
            log.warning("a broker failed to apply a control request: %s", error.name)
        self._on(Acknowledged(ticket, error))

    def _set_timer(self) -> None:
        deadline = self._controller.next_deadline()
        if self._timer is not None:
            if deadline == self._timer_ms:
                return
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            delay_ms = max(0, deadline - self._clock.monotonic_ms())
            self._timer_ms = deadline
            self._timer = self._call_later(delay_ms / 1000, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        self._on(TimePassed())


def _report_racks(brokers: dict[int, LiveBroker]) -> None:
    problem = rack_problem(sites(ClusterState(brokers=brokers)))
    if problem:
        log.warning("replicas cannot spread evenly over racks: %s", problem)
