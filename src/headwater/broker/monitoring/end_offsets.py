"""The ends of partitions that groups read, for their lag; also of partitions that other brokers have.

A coordinator knows how far its groups are, but perhaps not how long the logs are. It asks the leaders
after a reading, and knows the answers at the next one: metrics that nobody reads cost nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from headwater.broker.context import Context
from headwater.broker.follower_loop import LeaderConnection
from headwater.broker.turns import Steps
from headwater.errors import KafkaError
from headwater.model import EARLIEST, LATEST, NO_LEADER, TopicPartition
from headwater.wire.messages.offsets import ListOffsetsRequest, ListOffsetsResponse

CONSUMER = -1
MOST_ASKED = 10_000
PARTITIONS_A_REQUEST = 100


class Ends(NamedTuple):
    """Where a log begins, and its high watermark; None if it is not known."""

    start: int | None
    end: int | None


UNKNOWN = Ends(None, None)


class EndOffsets:
    """The ends of local partitions, and those that other brokers reported last."""

    def __init__(self, context: Context, connect: Callable[[int, str], LeaderConnection]) -> None:
        self._context = context
        self._connect = connect
        self._reported: dict[TopicPartition, Ends] = {}
        self._wanted: dict[TopicPartition, None] = {}
        self._connections: dict[int, LeaderConnection] = {}
        self._asked = 0
        """Requests without an answer."""

    def of(self, at: TopicPartition) -> Ends:
        """Return the ends of a partition; one of another broker is asked for later."""
        replica = self._context.replicas.get(*at)
        if replica is not None:
            return Ends(replica.log_start_offset, replica.high_watermark)
        if len(self._wanted) < MOST_ASKED:
            self._wanted[at] = None
        return self._reported.get(at, UNKNOWN)

    def ask_leaders(self) -> Steps[None]:
        """Ask the leaders for what was looked up since the last call, unless they still answer."""
        if self._asked:
            return
        wanted, self._wanted = self._wanted, {}
        self._reported = {at: ends for at, ends in self._reported.items() if at in wanted}
        by_leader: dict[int, list[TopicPartition]] = {}
        for at in wanted:
            info = self._context.metadata.partition(*at)
            if info is not None and info.leader not in (NO_LEADER, self._context.node_id):
                by_leader.setdefault(info.leader, []).append(at)
            yield
        for gone in self._connections.keys() - by_leader.keys():
            self._connections.pop(gone).close()
        for leader, partitions in by_leader.items():
            if leader not in self._connections:
                self._connections[leader] = self._connect(leader, "lag")
            for first in range(0, len(partitions), PARTITIONS_A_REQUEST):
                some = partitions[first : first + PARTITIONS_A_REQUEST]
                for timestamp in (EARLIEST, LATEST):
                    self._ask(leader, some, timestamp)
                for _ in some:
                    yield  # a request is as much work as its partitions

    def close(self) -> None:
        """Ask nothing more: the broker stops."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _ask(self, leader: int, partitions: list[TopicPartition], timestamp: int) -> None:
        self._asked += 1
        self._connections[leader].send(
            _request(partitions, timestamp), ListOffsetsResponse, partial(self._answered, timestamp)
        )

    def _answered(self, timestamp: int, answer: ListOffsetsResponse | KafkaError) -> None:
        self._asked -= 1
        if isinstance(answer, KafkaError):
            return  # the next reading asks again
        for topic in answer.topics:
            for row in topic.partitions:
                if not row.error_code:
                    self._learn(
                        TopicPartition(topic.name, row.partition_index), timestamp, row.offset
                    )

    def _learn(self, at: TopicPartition, timestamp: int, offset: int) -> None:
        known = self._reported.get(at, UNKNOWN)
        self._reported[at] = (
            Ends(offset, known.end) if timestamp == EARLIEST else Ends(known.start, offset)
        )


def _request(partitions: list[TopicPartition], timestamp: int) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
    for at in partitions:
        row = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=at.partition, timestamp=timestamp
        )
        topics.setdefault(at.topic, []).append(row)
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=rows)
            for name, rows in topics.items()
        ],
    )
