"""A loop turned by hand, files in memory, and one broker's controller on top of them."""

import errno
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from headwater.broker.config_changes import ConfigChanges
from headwater.broker.quota_nodes import entity_at
from headwater.broker.registration import Registration, prepare_store
from headwater.controller.channel_loop import Channels
from headwater.controller.commands import Command
from headwater.controller.controller_loop import ControllerLoop
from headwater.controller.state import LiveBroker
from headwater.controller.store.embedded_store import EmbeddedStore
from headwater.controller.store.metadata_store import Stat
from headwater.controller.store.znodes import BrokerEndpoint, BrokerNode
from headwater.controller.topic_rules import ControllerSettings
from headwater.seams.files import Buffer
from headwater.security.quotas import QuotaTable, stored_quotas
from headwater.security.scram_users import ScramUsers
from headwater.wire.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

ANSWERS = {
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    StopReplicaRequest: StopReplicaResponse,
}


class FakeLoop:
    """call_soon, call_later and a clock that moves only when told to."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self._soon: deque[Callable[[], None]] = deque()
        self._later: list[_Timer] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> "_Timer":
        timer = _Timer(self.now_ms + int(delay_s * 1000), call)
        self._later.append(timer)
        return timer

    def off_loop(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        failure: BaseException | None = None
        try:
            work()
        except OSError as raised:
            failure = raised
        self.call_soon(lambda: done(failure))

    def run(self) -> None:
        while self._soon:
            self._soon.popleft()()

    def step(self) -> bool:
        """One call; whether there was one."""
        if self._soon:
            self._soon.popleft()()
            return True
        return False

    def sleep(self, ms: int) -> None:
        self.now_ms += ms
        due = [timer for timer in self._later if timer.at_ms <= self.now_ms]
        self._later = [timer for timer in self._later if timer.at_ms > self.now_ms]
        for timer in due:
            timer.fire()
        self.run()

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class _Timer:
    def __init__(self, at_ms: int, call: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self._call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self._call = None

    def fire(self) -> None:
        if self._call is not None:
            self._call()


class MemoryFiles:
    """The part of Files that a store needs. `full` and `broken_sync` make the disk fail."""

    def __init__(self) -> None:
        self.content: dict[str, bytearray] = {}
        self.full = False
        self.broken_sync = False
        self.syncs = 0
        self._open: dict[int, str] = {}

    def open(
        self, path: str, *, create: bool = False, write: bool = True, exclusive: bool = False
    ) -> int:
        if create:
            self.content.setdefault(path, bytearray())
        if path not in self.content:
            raise FileNotFoundError(path)
        fd = max(self._open, default=2) + 1
        self._open[fd] = path
        return fd

    def close(self, fd: int) -> None:
        del self._open[fd]

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(buffers)
        content = self.content[self._open[fd]]
        if self.full and offset + len(data) > len(content):
            content[offset:] = data[:7]
            raise OSError(errno.ENOSPC, "no space left")
        content[offset : offset + len(data)] = data
        return len(data)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return bytes(self.content[self._open[fd]][offset : offset + size])

    def size(self, fd: int) -> int:
        return len(self.content[self._open[fd]])

    def truncate(self, fd: int, size: int) -> None:
        content = self.content[self._open[fd]]
        del content[size:]
        content.extend(bytes(size - len(content)))

    def fdatasync(self, fd: int) -> None:
        self.syncs += 1
        if self.broken_sync:
            raise OSError(errno.EIO, "input/output error")

    def sync_dir(self, path: str) -> None: ...

    def mkdir(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None:
        self.content[new] = self.content.pop(old)
        self._open = {fd: new if path == old else path for fd, path in self._open.items()}

    def exists(self, path: str) -> bool:
        return path in self.content


def embedded(loop: FakeLoop, files: MemoryFiles) -> EmbeddedStore:
    return EmbeddedStore(files, "/store", loop.call_soon, loop.off_loop, loop)  # type: ignore[arg-type]


def no_other_broker(broker: LiveBroker) -> NoReturn:
    raise AssertionError(f"there is no {broker}")


class OneBroker:
    """One life of one broker on an embedded store; give the same files to the next life."""

    def __init__(
        self,
        files: MemoryFiles | None = None,
        settings: ControllerSettings | None = None,
        *,
        start: bool = True,
    ) -> None:
        self.files = files or MemoryFiles()
        self.loop = FakeLoop()
        self.store = embedded(self.loop, self.files)
        self.received: list[Any] = []
        self.held: list[Callable[[], None]] | None = None
        """A list while the broker takes its time to apply messages."""
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.user_configs: dict[str, dict[str, str]] = {}
        self.quotas = SimpleNamespace(table=QuotaTable())
        self.users = ScramUsers(b"a secret of the cluster")
        self.epoch = -1
        self.cluster_id = self.call(lambda reply: prepare_store(self.store, "a-cluster", reply))
        node = BrokerNode(0, (BrokerEndpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),))
        self.registration = Registration(
            self.store, node, "a-cluster", self._registered, self.loop.call_later
        )
        self.configs = ConfigChanges(
            self.store,
            0,
            lambda name, overrides: self.topic_configs.update({name: dict(overrides)}),
            lambda scope, overrides: self.broker_configs.update({scope: dict(overrides)}),
            self._client_changed,
        )
        self.configs.start(lambda: None)
        self.channels = Channels(self.loop.call_soon, no_other_broker)
        self.channels.attach(0, self._receive)
        self._ids = iter(range(1, 1 << 20))
        self.controller = ControllerLoop(
            self.store,
            0,
            settings or ControllerSettings(),
            clock=self.loop,
            new_topic_id=lambda: next(self._ids).to_bytes(16, "big"),
            channels=self.channels,
            when_config_applied=self.configs.when_applied,
            call_soon=self.loop.call_soon,
            call_later=self.loop.call_later,
        )
        self.loop.run()
        if start:
            self.controller.start()
            self.loop.run()

    def _registered(self, stat: Stat) -> None:
        self.epoch = stat.czxid

    def _client_changed(self, kind: str, name: str, overrides: Mapping[str, str]) -> None:
        entity = entity_at(kind, name)
        self.quotas.table.set(entity, stored_quotas(entity, overrides))
        if kind == "users":
            self.user_configs[name] = dict(overrides)
            assert self.users.replace(name, overrides) == []

    def _receive(self, message: Any, reply: Callable[[Any], None]) -> None:
        """As a broker must: overrides are known before a log is opened, and forgotten with it."""
        if isinstance(message, LeaderAndIsrRequest):
            topics = [topic.topic_name for topic in message.topic_states]
            self.configs.learn(topics, lambda: self._apply(message, reply))
            return
        if isinstance(message, StopReplicaRequest):
            for topic in message.topic_states:
                self.configs.forget(topic.topic_name)
        self._apply(message, reply)

    def _apply(self, message: Any, reply: Callable[[Any], None]) -> None:
        self.received.append(message)
        response = ANSWERS[type(message)]()
        if self.held is None:
            reply(response)
        else:
            self.held.append(lambda: reply(response))

    def call(self, ask: Callable[[Callable[[Any], None]], object]) -> Any:
        """Ask something that answers later, and turn the loop until it has."""
        answers: list[Any] = []
        ask(answers.append)
        self.loop.run()
        assert len(answers) == 1, f"{len(answers)} answers"
        return answers[0]

    def submit(self, command: Command[Any]) -> Any:
        return self.call(lambda reply: self.controller.submit(command, reply))

    def data(self, path: str) -> bytes:
        return self.call(lambda reply: self.store.get(path, reply)).data

    def messages(self, kind: type) -> list[Any]:
        return [message for message in self.received if isinstance(message, kind)]
