"""The reader behind a fetch: a consumer, which reads committed records, or a follower.

A follower reads to the log end and needs the right to act as a broker: its fetch offset moves the high
watermark (CVE-2018-1288).
"""

from functools import lru_cache
from typing import NamedTuple

from headwater.broker.context import Context
from headwater.broker.fetch_session import FINAL_EPOCH, FetchContext, FetchPartition, Key
from headwater.broker.follower_watch import FollowerWatch
from headwater.broker.handlers.fetch_parts import Part, TopicAnswer
from headwater.broker.request import Request
from headwater.broker.turns import each
from headwater.config.broker_keys.replication import RACK_AWARE_SELECTOR
from headwater.errors import E, KafkaError
from headwater.model import NO_EPOCH, READ_COMMITTED
from headwater.replication.isolation import FetchIsolation
from headwater.replication.replica import Replica
from headwater.security.acls import CLUSTER_NAME
from headwater.security.rights import READ_TOPIC
from headwater.wire.messages.fetch import FetchRequest, FetchResponse

CONSUMER = -1
FIRST_WITH_SESSION = 7
FIRST_WITH_RACK = 11
FIRST_WITH_TOPIC_ID = 13


class FetchReader(NamedTuple):
    """The peer behind a fetch; `replica_id` is that of a follower's broker, or CONSUMER."""

    replica_id: int
    broker_epoch: int
    isolation: FetchIsolation
    rack: str = ""
    reads_followers: bool = False
    """Whether a follower may serve it (KIP-392)."""
    is_follower: bool = False

    @classmethod
    def of(cls, body: FetchRequest, version: int) -> "FetchReader":
        replica_id = max(body.replica_id, body.replica_state.replica_id)
        if replica_id > CONSUMER:
            return _follower(replica_id, body.replica_state.replica_epoch)
        return _consumer(body.isolation_level, body.rack_id, version >= FIRST_WITH_RACK)

    def check(self, replica: Replica, want: FetchPartition) -> None:
        """Refuse a reader that the replica cannot serve, before its offset is checked."""
        if self.is_follower and want.current_leader_epoch == NO_EPOCH:
            # Without its epoch, it may follow another leader, and must not be counted (KIP-320).
            raise KafkaError(E.FENCED_LEADER_EPOCH, "a follower names its leader's epoch")
        if self.reads_followers:
            replica.require_readable(want.current_leader_epoch, want.fetch_offset)
        else:
            replica.require_leader(want.current_leader_epoch)

    def check_right_again(self, context: Context, request: Request, part: Part) -> None:
        """Withdraw what was found if the client has lost its right while it waited."""
        if self.is_follower or part.replica is None:
            return
        if not context.permits(request, READ_TOPIC, part.replica.topic_partition.topic):
            part.failure = KafkaError(READ_TOPIC.refusal)
            part.replica = part.records = part.found = None

    def nearest(self, context: Context, replica: Replica, offset: int) -> int:
        """Return the broker that a consumer with a rack is sent to, -1 if this one serves it."""
        if not self.rack or context.settings.replica_selector_class != RACK_AWARE_SELECTOR:
            return -1
        if not replica.is_leader:
            return -1
        racks = {broker.id: broker.rack for broker in context.metadata.brokers.values()}
        found = replica.leading.nearest(self.rack, offset, racks)
        return -1 if found == context.node_id else found

    def count_follower(self, replica: Replica, want: FetchPartition) -> None:
        """Tell the leader how far a follower is; its offset is valid and does not diverge."""
        if self.is_follower:
            replica.leading.follower_fetched(
                self.replica_id, want.fetch_offset, want.log_start_offset, self.broker_epoch
            )


@lru_cache(maxsize=256)
def _consumer(isolation_level: int, rack: str, reads_followers: bool) -> FetchReader:
    """Return the reader of every consumer's fetch with these properties."""
    committed = isolation_level == READ_COMMITTED
    isolation = FetchIsolation.LAST_STABLE if committed else FetchIsolation.HIGH_WATERMARK
    return FetchReader(CONSUMER, -1, isolation, rack, reads_followers)


@lru_cache(maxsize=256)
def _follower(replica_id: int, broker_epoch: int) -> FetchReader:
    """Return the reader of every fetch of a follower's registration."""
    return FetchReader(replica_id, broker_epoch, FetchIsolation.LOG_END, is_follower=True)


def begin_fetch(
    context: Context,
    request: Request,
    body: FetchRequest,
    reader: FetchReader,
    wanted: list[FetchPartition],
) -> FetchContext:
    """Return the request's context in its session; KafkaError for an unknown session."""
    sessionless = body.session_epoch == FINAL_EPOCH and body.session_id == 0
    if request.version < FIRST_WITH_SESSION or (sessionless and not body.forgotten_topics_data):
        return FetchContext(None, False, wanted)
    by_id = request.version >= FIRST_WITH_TOPIC_ID
    forgotten: list[Key] = [
        (topic.topic_id if by_id else topic.topic, partition)
        for topic in body.forgotten_topics_data
        for partition in topic.partitions
    ]
    now_ms = context.clock.monotonic_ms()

    def exists(key: Key) -> bool:
        topic, index = key
        name = context.metadata.name_of.get(topic) if isinstance(topic, bytes) else topic
        return (
            name is not None
            and context.replicas.get(name, index) is not None
            and (reader.is_follower or context.sees(request, READ_TOPIC, name))
        )

    fetch_context = context.sessions.begin(
        now_ms,
        body.session_id,
        body.session_epoch,
        by_id,
        wanted,
        forgotten,
        privileged=reader.is_follower,
        owner=request.client_id if reader.is_follower else None,
        exists=exists,
    )
    session = fetch_context.session
    if reader.is_follower and session is not None:
        watch = session.watch
        if watch is None:
            session.watch = FollowerWatch(reader.replica_id, reader.broker_epoch, session)
        elif isinstance(watch, FollowerWatch) and not watch.is_of(reader.broker_epoch):
            fetch_context.partitions = watch.registered_again(reader.broker_epoch)
    return fetch_context


# -- access


def cluster_of_follower(request: Request, body: FetchRequest) -> str | None:
    """Return the resource that a follower needs a right to; None for a consumer's fetch."""
    if body.replica_id > CONSUMER or body.replica_state.replica_id > CONSUMER:
        return CLUSTER_NAME
    return None


def refuse_follower(request: Request, body: FetchRequest, error: E) -> FetchResponse:
    """Refuse a client that claims to be a follower."""

    def of_partition(partition: FetchRequest.FetchPartition) -> FetchResponse.PartitionData:
        return FetchResponse.PartitionData(
            partition_index=partition.partition,
            error_code=E.TOPIC_AUTHORIZATION_FAILED,
            high_watermark=-1,
            records=b"",
        )

    def of_topic(topic: FetchRequest.FetchTopic) -> TopicAnswer:
        return TopicAnswer(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=each(topic.partitions, of_partition),
        )

    return FetchResponse(responses=each(body.topics, of_topic))
