"""What a fake cluster needs to be read from: fetches, offsets, and a controller that makes topics."""

from headwater.errors import E
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from headwater.wire.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from headwater.wire.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from tests.clients.fake_cluster import HOST, FakeBroker, FakeCluster


class ReadableCluster(FakeCluster):
    """One topic, `t`, whose records are those that the test put into `logs`."""

    def __init__(self, brokers: int = 1, partitions: int = 1) -> None:
        super().__init__(brokers, partitions)
        self.stale: set[int] = set()
        """Brokers that serve as leaders whatever they are."""
        self.handlers[1] = (FetchRequest, self._fetch)
        self.handlers[2] = (ListOffsetsRequest, self._list_offsets)
        self.handlers[19] = (CreateTopicsRequest, self._create_topics)

    def fill(self, count: int, partition: int = 0) -> None:
        """Store records whose values are their offsets."""
        log = self.values("t", partition)
        log += [b"%d" % number for number in range(len(log), len(log) + count)]

    def _fetch(self, broker: FakeBroker, request: FetchRequest) -> FetchResponse:
        """Always in full, without sessions and without waiting."""
        topics, moved = [], set()
        for topic in request.topics:
            rows = []
            for part in topic.partitions:
                row = self._rows(broker, part.partition, part.fetch_offset)
                if row.error_code and self.hints:
                    leader = self.leaders[part.partition]
                    row.current_leader = FetchResponse.LeaderIdAndEpoch(
                        leader_id=leader, leader_epoch=self.leader_epoch
                    )
                    moved.add(leader)
                rows.append(row)
            topics.append(
                FetchResponse.FetchableTopicResponse(
                    topic=topic.topic, topic_id=self.topic_ids["t"], partitions=rows
                )
            )
        return FetchResponse(
            responses=topics,
            node_endpoints=[
                FetchResponse.NodeEndpoint(
                    node_id=number, host=HOST, port=self.brokers[number].port
                )
                for number in moved
            ],
        )

    def _rows(self, broker: FakeBroker, partition: int, offset: int) -> FetchResponse.PartitionData:
        if self.leaders[partition] != broker.id and broker.id not in self.stale:
            return FetchResponse.PartitionData(
                partition_index=partition, error_code=E.NOT_LEADER_OR_FOLLOWER
            )
        log = self.values("t", partition)
        rows = [
            Record(offset=number, value=log[number])
            for number in range(offset, min(offset + 5, len(log)))
        ]
        made = build_batch(rows, base_offset=offset, leader_epoch=1, now=0) if rows else b""
        return FetchResponse.PartitionData(
            partition_index=partition, high_watermark=len(log), records=bytes(made)
        )

    def _list_offsets(self, broker: FakeBroker, request: ListOffsetsRequest) -> ListOffsetsResponse:
        answer = ListOffsetsResponse
        topics = []
        for topic in request.topics:
            rows = []
            for part in topic.partitions:
                mine = self.leaders[part.partition_index] == broker.id
                end = len(self.values(topic.name, part.partition_index))
                rows.append(
                    answer.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index,
                        error_code=E.NONE if mine else E.NOT_LEADER_OR_FOLLOWER,
                        offset=(0 if part.timestamp == -2 else end) if mine else -1,
                        leader_epoch=1,
                    )
                )
            topics.append(answer.ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return answer(topics=topics)

    def _create_topics(
        self, broker: FakeBroker, request: CreateTopicsRequest
    ) -> CreateTopicsResponse:
        code = E.NONE if broker.id == self.controller else E.NOT_CONTROLLER
        return CreateTopicsResponse(
            topics=[
                CreateTopicsResponse.CreatableTopicResult(name=row.name, error_code=code)
                for row in request.topics
            ]
        )
