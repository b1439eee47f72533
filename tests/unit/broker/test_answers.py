"""The smaller APIs of a broker: offsets, deletion of records, metadata in pages, versions."""

import threading

import pytest

from headwater.errors import E
from headwater.log.time_lookup import TimeLookup, _View
from headwater.security.acls import AclOperation
from headwater.wire.apis import API
from headwater.wire.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headwater.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from headwater.wire.messages.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from headwater.wire.messages.topics import DeleteRecordsRequest, DeleteRecordsResponse
from tests.unit.broker.live import batch

START = 1_700_000_000_000


# -- ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_api_versions_tells_the_table(live, client, version):
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    answer = client.ask(request, ApiVersionsResponse, version)
    told = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert told == {
        key: (api.advertised.lowest, api.advertised.highest)
        for key, api in API.items()
        if api.advertised is not None
    }
    assert told[0] == (0, 13)
    assert [row.name for row in answer.supported_features] == (
        ["transaction.version"] if version >= 4 else []
    )
    finalized = [(row.name, row.max_version_level) for row in answer.finalized_features]
    assert finalized == ([("transaction.version", 2)] if version >= 3 else [])
    assert answer.finalized_features_epoch == (0 if version >= 3 else -1)


def test_of_a_long_name_of_a_client_the_metrics_repeat_the_beginning(live):
    with live.client(source="127.0.0.3") as client:
        request = ApiVersionsRequest(client_software_name="n" * 9000, client_software_version="1")
        assert client.ask(request, ApiVersionsResponse, 3).error_code == 0
        open_now = live.on_loop(lambda: [*live.context.connection_quotas.open])
        (known,) = [one.client_software for one in open_now if one.host == "127.0.0.3"]
        assert known == ("n" * 64, "1")


@pytest.mark.parametrize("name", ["", "a!", "a" * 9000 + "!", "a.", "-a", "a-", "a\n"])
def test_a_name_of_a_client_that_is_none_is_refused(client, name):
    for software in ({"client_software_name": name}, {"client_software_version": name}):
        texts = {"client_software_name": "a-b.c", "client_software_version": "1", **software}
        answer = client.ask(ApiVersionsRequest(**texts), ApiVersionsResponse, 3)
        assert answer.error_code == E.INVALID_REQUEST


# -- ListOffsets


def offsets(client, topic, timestamp, version=7, **partition):
    wanted = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, **partition
    )
    request = ListOffsetsRequest(
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    answer = client.ask(request, ListOffsetsResponse, version)
    return answer.topics[0].partitions[0]


@pytest.fixture
def timed(topic, client):
    for number in range(5):
        answer = client.produce(topic, batch(b"%d" % number, now=START + 1000 * number))
        assert answer.error_code == 0
    return topic


@pytest.mark.parametrize("version", range(1, 12))
def test_earliest_latest_and_by_time_in_every_version(live, timed, client, version):
    assert offsets(client, timed, -2, version).offset == 0
    assert offsets(client, timed, -1, version).offset == 5
    found = offsets(client, timed, START + 1500, version)
    assert (found.offset, found.timestamp, found.error_code) == (2, START + 2000, 0)
    if version >= 4:
        assert found.leader_epoch == live.replica(timed).partition.leader_epoch


def test_a_time_after_the_last_record_finds_nothing(live, timed, client):
    found = offsets(client, timed, START + 10**6)
    assert (found.offset, found.timestamp, found.error_code) == (-1, -1, 0)


def test_the_greatest_timestamp(live, timed, client):
    assert offsets(client, timed, -3).offset == 4
    assert offsets(client, timed, -3, version=6).error_code == E.UNSUPPORTED_VERSION


@pytest.mark.parametrize("timestamp", [START + 1500, -3])
def test_logs_are_searched_by_time_on_a_file_thread(live, timed, client, timestamp, monkeypatch):
    loop_thread = live.on_loop(threading.get_ident)
    threads = []
    read = _View.read_blocking

    def watched(self, size, position):
        threads.append(threading.get_ident())
        return read(self, size, position)

    monkeypatch.setattr(_View, "read_blocking", watched)
    assert offsets(client, timed, timestamp).error_code == 0
    assert threads
    assert loop_thread not in threads


def test_a_failed_search_is_told_for_its_partition_alone(live, timed, client, monkeypatch):
    def broken(self, timestamp):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(TimeLookup, "at_or_after", broken)
    assert offsets(client, timed, START).error_code == E.UNKNOWN_SERVER_ERROR
    assert offsets(client, timed, -1).offset == 5


def test_unknown_questions_and_places(live, timed, client):
    assert offsets(client, timed, -99).error_code == E.UNSUPPORTED_VERSION
    assert offsets(client, "nowhere", -1).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    epoch = live.replica(timed).partition.leader_epoch
    ahead = offsets(client, timed, -1, current_leader_epoch=epoch + 1)
    assert ahead.error_code == E.UNKNOWN_LEADER_EPOCH


def test_a_partition_asked_for_twice_is_refused(live, timed, client):
    rows = [
        ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=at) for at in (-1, -2)
    ]
    request = ListOffsetsRequest(
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=timed, partitions=rows)]
    )
    answer = client.ask(request, ListOffsetsResponse, 7)
    assert {row.error_code for row in answer.topics[0].partitions} == {E.INVALID_REQUEST}


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch(live, timed, client, version):
    epoch = live.replica(timed).partition.leader_epoch

    def end(asked):
        wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=0, leader_epoch=asked
        )
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=timed, partitions=[wanted])
        answer = client.ask(
            OffsetForLeaderEpochRequest(topics=[topic]), OffsetForLeaderEpochResponse, version
        )
        row = answer.topics[0].partitions[0]
        return row.error_code, row.leader_epoch, row.end_offset

    assert end(epoch) == (0, epoch, 5)
    assert end(epoch + 1) == (0, -1, -1)


# -- DeleteRecords


def delete_records(client, topic, offset, version=2):
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[wanted])],
        timeout_ms=9000,
    )
    answer = client.ask(request, DeleteRecordsResponse, version)
    row = answer.topics[0].partitions[0]
    return row.error_code, row.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(live, timed, client, version):
    assert delete_records(client, timed, 3, version) == (0, 3)
    assert client.fetch(timed, 2).error_code == E.OFFSET_OUT_OF_RANGE
    assert client.fetch(timed, 3).log_start_offset == 3
    assert offsets(client, timed, -2).offset == 3
    assert delete_records(client, timed, 1, version) == (0, 3), "a start never goes back"


def test_everything_up_to_the_high_watermark(live, timed, client):
    assert delete_records(client, timed, -1) == (0, 5)
    assert client.produce(timed, batch()).base_offset == 5


def test_records_that_are_not_there_cannot_be_deleted(live, timed, client):
    assert delete_records(client, timed, 6) == (E.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(client, timed, -2) == (E.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(client, "nowhere", 0) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_records_of_compacted_topics_are_not_deleted(live, client):
    live.create("only-compacted", cleanup_policy="compact")
    assert delete_records(client, "only-compacted", 0)[0] == E.POLICY_VIOLATION


# -- Metadata


def metadata(client, names, version=12, **more):
    wanted = None
    if names is not None:
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return client.ask(MetadataRequest(topics=wanted, **more), MetadataResponse, version)


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_every_version(live, topic, client, version):
    answer = metadata(client, [topic], version)
    (told,) = answer.topics
    assert (told.name, told.error_code, len(told.partitions)) == (topic, 0, 1)
    assert (told.partitions[0].leader_id, told.partitions[0].replica_nodes) == (1, [1])
    (broker,) = answer.brokers
    assert (broker.node_id, broker.port) == (1, live.port)
    if version >= 10:
        assert told.topic_id == live.context.metadata.topic_id(topic)


def test_all_topics_or_none(live, topic, client):
    assert topic in {row.name for row in metadata(client, None).topics}
    assert metadata(client, []).topics == []
    assert topic in {row.name for row in metadata(client, [], version=0).topics}


def test_topics_by_id(live, topic, client):
    wanted = [
        MetadataRequest.MetadataRequestTopic(name=None, topic_id=topic_id)
        for topic_id in (live.context.metadata.topic_id(topic), b"\7" * 16)
    ]
    known, unknown = client.ask(MetadataRequest(topics=wanted), MetadataResponse, 12).topics
    assert (known.name, known.error_code) == (topic, 0)
    assert (unknown.name, unknown.error_code) == (None, E.UNKNOWN_TOPIC_ID)


def test_a_topic_that_is_not_there_is_not_made_unless_configured(live, client):
    (told,) = metadata(client, ["not-there"], allow_auto_topic_creation=True).topics
    assert told.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    (bad,) = metadata(client, ["no/path"]).topics
    assert bad.error_code == E.INVALID_TOPIC_EXCEPTION
    assert "not-there" not in live.context.metadata.topics


def test_operations_are_told_when_asked_for(live, topic, client):
    (told,) = metadata(client, [topic]).topics
    assert told.topic_authorized_operations == -(2**31)
    (asked,) = metadata(client, [topic], include_topic_authorized_operations=True).topics
    assert asked.topic_authorized_operations == sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))


# -- DescribeTopicPartitions


def pages(client, names, limit):
    """Every page, as (topic, partitions) rows."""
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        answer = client.ask(request, DescribeTopicPartitionsResponse, 0)
        yield [
            (topic.name, [row.partition_index for row in topic.partitions])
            for topic in answer.topics
        ]
        if answer.next_cursor is None:
            return
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 100])
def test_pages_tell_every_partition_once(live, client, limit):
    names = ["page-a", "page-b", "page-c"]
    if names[0] not in live.context.metadata.topics:
        for name, count in zip(names, (3, 1, 3), strict=True):
            live.create(name, count)
    told = list(pages(client, names[::-1], limit))
    rows = [(name, index) for page in told for name, indexes in page for index in indexes]
    everything = [(n, i) for n, c in zip(names, (3, 1, 3), strict=True) for i in range(c)]
    assert rows == everything
    assert all(sum(len(indexes) for _, indexes in page) <= limit for page in told)


def test_a_page_shows_who_may_lead_next(live, topic, client):
    def lose_leader():
        partitions = live.context.metadata.topics[topic].partitions
        partitions[0] = partitions[0]._replace(elr=(2, 3), last_known_leader=4)

    live.on_loop(lose_leader)
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=topic)],
        response_partition_limit=10,
    )
    row = client.ask(request, DescribeTopicPartitionsResponse, 0).topics[0].partitions[0]
    assert (row.eligible_leader_replicas, row.last_known_elr) == ([2, 3], [4])


def test_a_page_names_what_is_not_there(live, topic, client):
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in ("nope", "a/b")],
        response_partition_limit=10,
    )
    answer = client.ask(request, DescribeTopicPartitionsResponse, 0)
    assert {row.name: row.error_code for row in answer.topics} == {
        "nope": E.UNKNOWN_TOPIC_OR_PARTITION,
        "a/b": E.INVALID_TOPIC_EXCEPTION,
    }


def test_without_access_rules_every_operation_on_the_cluster_is_shown(client):
    answer = client.ask(
        DescribeClusterRequest(include_cluster_authorized_operations=True),
        DescribeClusterResponse,
        1,
    )
    shown = {bit for bit in range(31) if answer.cluster_authorized_operations >> bit & 1}
    assert shown == {
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    }


# -- while a broker starts


def test_a_connection_accepted_just_before_the_broker_serves_is_served(live, monkeypatch):
    """Its handler was chosen before the start was over, its transport made only afterwards."""
    starting = live.broker.parts.dispatch.frame_while_starting
    monkeypatch.setattr(live.broker, "_handler_of", lambda listener: starting)
    with live.client() as client:
        for _ in range(2):
            assert client.ask(MetadataRequest(topics=[]), MetadataResponse, 12).brokers
