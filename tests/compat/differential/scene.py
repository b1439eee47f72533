"""What a scene works with: it asks, and what it asked and heard is written down."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from headwater.wire.apis import API
from headwater.wire.messages.metadata import MetadataRequest
from headwater.wire.messages.offsets import ListOffsetsRequest
from headwater.wire.messages.topics import CreateTopicsRequest
from headwater.wire.schema import Struct
from tests.compat.differential.peer import CLIENT_ID, WAIT_S, Line, Peer
from tests.compat.differential.plain import Plain

SCENES: "dict[str, Callable[[Scene], None]]" = {}


class Step(NamedTuple):
    """One question and what came back, as plain data."""

    label: str
    answer: object


def scene(play: "Callable[[Scene], None]") -> "Callable[[Scene], None]":
    """Adds a scene to those that are played."""
    assert play.__name__ not in SCENES, f"two scenes are called {play.__name__}"
    SCENES[play.__name__] = play
    return play


def versions(request: type[Struct], lowest: int = 0) -> list[int]:
    """The oldest, a middle and the newest served version, none below `lowest`."""
    served = API[request.__schema__.api_key or 0].served
    low = max(served.lowest, lowest)
    return sorted({low, (low + served.highest) // 2, served.highest})


def newest(request: type[Struct]) -> int:
    """The newest version that is served."""
    return API[request.__schema__.api_key or 0].served.highest


class Scene:
    """One run of a scene on one broker."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.transcript: list[Step] = []
        self.topic_ids: dict[str, bytes] = {}
        self._plain = Plain()
        self._line: Line | None = None
        self._lines: dict[str, Line] = {}

    def ask(
        self,
        label: str,
        message: Struct,
        version: int | None = None,
        *,
        client_id: str | None = CLIENT_ID,
        wait_s: float = WAIT_S,
    ) -> Any:
        """Send on the scene's own connection, which is opened again after it was closed."""
        if self._line is None:
            self._line = self.peer.line()
        version = newest(type(message)) if version is None else version
        self._line.send(message, version, client_id)
        return self.hear(f"{label} (v{version})", self._line, wait_s)

    def ask_as(self, user: str, label: str, message: Struct, version: int | None = None) -> Any:
        """Send on the connection of a user, which is opened again after it was closed."""
        if user not in self._lines:
            self._lines[user] = self.peer.line_of(user)
        version = newest(type(message)) if version is None else version
        self._lines[user].send(message, version)
        answer = self.hear(f"{label} (v{version})", self._lines[user])
        if isinstance(answer, str):
            self._lines.pop(user).close()
        return answer

    def hear(self, label: str, line: Line, wait_s: float = WAIT_S) -> Any:
        """Write down the next answer on `line`."""
        answer = line.receive(wait_s)
        self.note(label, answer)
        if isinstance(answer, str) and line is self._line:
            line.close()
            self._line = None
        return answer

    def note(self, label: str, value: object) -> None:
        """Write down anything else that both brokers must agree on."""
        self.transcript.append(Step(label, self._plain.of(value)))

    @contextmanager
    def line(self) -> Iterator[Line]:
        """Another connection."""
        with self.peer.line() as line:
            yield line

    def topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> bytes:
        """Make a topic, wait until it is led, and return its id."""
        new = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )
        result = self.peer.call(CreateTopicsRequest(topics=[new]), 7).topics[0]
        assert result.error_code == 0, f"{self.peer.name} made no topic {name}: {result}"
        while not self._is_led(name, partitions):
            pass
        self.topic_ids[name] = result.topic_id
        return bytes(result.topic_id)

    def _is_led(self, name: str, partitions: int) -> bool:
        wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        found = self.peer.call(wanted, 12).topics[0].partitions
        return len(found) == partitions and self._is_served(name, partitions)

    def _is_served(self, name: str, partitions: int) -> bool:
        """Whether the leader knows that it leads: Apache Kafka tells its clients before that."""
        ends = [
            ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=-1)
            for number in range(partitions)
        ]
        topic = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=ends)
        answer = self.peer.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
        return all(it.error_code == 0 for it in answer.topics[0].partitions)

    def end(self) -> None:
        """Close what is open."""
        if self._line is not None:
            self._line.close()
        for line in self._lines.values():
            line.close()


def play(name: str, peer: Peer) -> list[Step]:
    """Run one scene on one broker."""
    scene = Scene(peer)
    try:
        SCENES[name](scene)
    finally:
        scene.end()
    return scene.transcript
