"""What a broker knows after it was stopped or killed, and whose data it refuses."""

import re
import subprocess
import sys

import pytest

import headwater
from headwater.errors import E
from headwater.log.log_dir import LogDirError
from headwater.records.batch import HEADER
from headwater.testing import Broker
from headwater.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from tests.unit.broker.live import Client, Live, batch, until

WINDOW = 5
TOPIC_CONFIG, BROKER_CONFIG = 2, 4


def stop_cleanly(broker: Broker) -> None:
    broker.stop()


def kill_9(broker: Broker) -> None:
    broker.kill()


@pytest.fixture(params=[stop_cleanly, kill_9], ids=["clean stop", "kill -9"])
def end(request):
    return request.param


@pytest.fixture
def broker():
    with Broker(subprocess=True) as process:
        yield process


def connect(broker: Broker) -> Client:
    return Client(broker.port)


def topic_of(client, name):
    wanted = MetadataRequest.MetadataRequestTopic(name=name)
    answer = client.ask(
        MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), MetadataResponse, 12
    )
    return answer, answer.topics[0]


def alter(client, kind, name, key, value) -> None:
    row = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[row]
    )
    answer = client.ask(
        IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, 1
    )
    assert answer.responses[0].error_code == 0, answer


def config_of(client, kind, name, key) -> str:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[key]
    )
    answer = client.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, 4)
    return answer.results[0].configs[0].value


def commit(client, offset) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )

    def done() -> bool:
        client.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)
        code = client.ask(request, OffsetCommitResponse, 8).topics[0].partitions[0].error_code
        return code == 0

    until(done)


def committed(client) -> int:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    request = OffsetFetchRequest(group_id="g", topics=[topic])
    until(lambda: client.ask(request, OffsetFetchResponse, 7).error_code == 0)
    answer = client.ask(request, OffsetFetchResponse, 7)
    return answer.topics[0].partitions[0].committed_offset


def test_topics_configs_ids_records_and_group_offsets_survive(broker, end):
    broker.create_topic("t", 3, {"retention.ms": "123456789"})
    with connect(broker) as client:
        before, topic = topic_of(client, "t")
        alter(client, TOPIC_CONFIG, "t", "max.message.bytes", "54321")
        alter(client, BROKER_CONFIG, "", "log.retention.ms", "1111111")
        for partition in range(3):
            assert client.produce("t", batch(b"a", b"b"), partition=partition).base_offset == 0
        stored = [bytes(client.fetch("t", partition=index).records) for index in range(3)]
        commit(client, 41)
        commit(client, 42)
    end(broker)
    broker.start()
    with connect(broker) as client:
        after, same = topic_of(client, "t")
        assert after.cluster_id == before.cluster_id
        assert (same.topic_id, len(same.partitions)) == (topic.topic_id, 3)
        assert config_of(client, TOPIC_CONFIG, "t", "retention.ms") == "123456789"
        assert config_of(client, TOPIC_CONFIG, "t", "max.message.bytes") == "54321"
        assert config_of(client, BROKER_CONFIG, "", "log.retention.ms") == "1111111"
        assert [bytes(client.fetch("t", partition=index).records) for index in range(3)] == stored
        assert client.fetch("t").high_watermark == 2
        assert committed(client) == 42
        assert client.produce("t", batch(b"c")).base_offset == 2


def test_the_leader_epoch_rises_and_is_in_the_batches_of_its_time(broker, end):
    broker.create_topic("t")
    epochs = []
    for number in range(3):
        with connect(broker) as client:
            _, topic = topic_of(client, "t")
            assert client.produce("t", batch()).base_offset == number
            stored = bytes(client.fetch("t", number).records)
            epochs.append((topic.partitions[0].leader_epoch, HEADER.unpack_from(stored)[2]))
        end(broker)
        broker.start()
    assert [told for told, _ in epochs] == [in_batch for _, in_batch in epochs]
    assert [told for told, _ in epochs] == sorted({told for told, _ in epochs})


def test_all_five_batches_of_a_producers_window_are_still_known(broker, end):
    broker.create_topic("t")
    with connect(broker) as client:
        producer = client.ask(
            InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4
        ).producer_id
        sent = [
            batch(b"%d" % n, producer_id=producer, producer_epoch=0, base_sequence=n)
            for n in range(WINDOW + 2)
        ]
        for number, records in enumerate(sent):
            assert client.produce("t", records).base_offset == number
    end(broker)
    broker.start()
    with connect(broker) as client:
        for number in range(2, WINDOW + 2):
            answer = client.produce("t", sent[number])
            assert (answer.error_code, answer.base_offset) == (0, number), "a duplicate"
        too_old = client.produce("t", sent[0])
        assert too_old.error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
        following = batch(b"n", producer_id=producer, producer_epoch=0, base_sequence=WINDOW + 2)
        assert client.produce("t", following).base_offset == WINDOW + 2
        fresh = client.ask(
            InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4
        ).producer_id
        assert fresh != producer, "an id is never given twice"


def test_the_same_producer_commits_a_transaction_that_was_open(broker, end):
    broker.create_topic("t")
    here, group = headwater.TopicPartition("t", 0), headwater.ConsumerGroupMetadata("g")
    where = {"bootstrap_servers": broker.bootstrap}

    def seen():
        with headwater.Consumer(**where, isolation_level="read_committed") as consumer:
            consumer.assign([here])
            consumer.seek_to_beginning()
            return [record.value for record in consumer.read_to_end()]

    with (
        headwater.Producer(**where, transactional_id="x") as producer,
        headwater.Admin(**where) as admin,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"before")
        producer.flush()
        producer.send_offsets_to_transaction({here: headwater.OffsetAndMetadata(7)}, group)
        end(broker)
        broker.start()
        assert admin.describe_transactions(["x"])["x"].state == "Ongoing"
        assert seen() == []
        assert admin.group_offsets("g") == {}
        producer.send("t", b"after")
        producer.commit_transaction()
        until(lambda: seen() == [b"before", b"after"])
        assert admin.group_offsets("g", stable=True)[here].offset == 7


def test_deleted_topics_stay_deleted(broker, end):
    broker.create_topic("gone", 2)
    with connect(broker) as client:
        client.produce("gone", batch())
    broker.delete_topic("gone")
    end(broker)
    broker.start()
    with connect(broker) as client:
        assert topic_of(client, "gone")[1].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    broker.create_topic("gone", 1)
    with connect(broker) as client:
        assert client.fetch("gone").high_watermark == 0
    assert not list(broker.data_dir.glob("gone-1*"))


def test_a_data_dir_in_use_is_refused_with_a_clear_word(tmp_path):
    with Live(tmp_path) as live:
        live.create("t")
        with pytest.raises(LogDirError, match="in use"), Live(tmp_path):
            raise AssertionError("two brokers on one dir")
        with live.client() as client:
            assert client.produce("t", batch()).error_code == 0, "the first one is unharmed"


def test_the_data_of_another_node_is_refused_with_a_clear_word(tmp_path):
    with Live(tmp_path, {"node.id": "1"}):
        pass
    with (
        pytest.raises(LogDirError, match="belongs to node 1, this is node 2"),
        Live(tmp_path, {"node.id": "2"}),
    ):
        raise AssertionError("another node's data")
    with Live(tmp_path, {"node.id": "1"}) as live:
        live.create("t")


def test_the_command_says_why_in_one_line(tmp_path):
    with Live(tmp_path):
        process = subprocess.run(
            [sys.executable, "-m", "headwater", "up", "--port", "0", "--data-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert process.returncode != 0
    assert process.stdout == ""
    assert re.search(r"in use by another", process.stderr)
    assert "Traceback" not in process.stderr
