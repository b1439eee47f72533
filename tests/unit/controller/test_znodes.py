"""The nodes' text, as Kafka 3.9 writes and reads it."""

import json

import pytest

from headwater.controller.store.znodes import (
    BrokerEndpoint,
    BrokerNode,
    ProducerIdBlock,
    StateNode,
    TopicNode,
    config_path,
    decode_cluster_id,
    decode_config,
    decode_config_change,
    decode_controller,
    encode_cluster_id,
    encode_config,
    encode_config_change,
    encode_controller,
)
from headwater.model import ZERO_UUID

SAMPLE_BROKER = (
    b'{"features":{},"listener_security_protocol_map":{"IN":"SASL_SSL","OUT":"PLAINTEXT"},'
    b'"endpoints":["IN://[::1]:9093","OUT://b.example:9092"],"jmx_port":-1,"port":9092,'
    b'"host":"b.example","version":5,"timestamp":"17","rack":"r1"}'
)


def test_a_registration_reads_and_writes_every_listener():
    node = BrokerNode.decode(3, SAMPLE_BROKER)
    assert node == BrokerNode(
        3,
        (
            BrokerEndpoint("IN", "::1", 9093, "SASL_SSL"),
            BrokerEndpoint("OUT", "b.example", 9092, "PLAINTEXT"),
        ),
        "r1",
        17,
    )
    assert json.loads(node.encode()) == json.loads(SAMPLE_BROKER)


def test_a_broker_without_plain_listener_has_no_host_for_old_readers():
    value = json.loads(BrokerNode(1, (BrokerEndpoint("S", "h", 1, "SSL"),)).encode())
    assert (value["host"], value["port"]) == (None, -1)
    assert "rack" not in value


def test_a_topic_reads_and_writes_assignments():
    node = TopicNode(bytes(range(16)), {0: (1, 2), 10: (2, 1)}, {0: (3,)}, {0: (1,)})
    value = json.loads(node.encode())
    assert value["partitions"] == {"0": [1, 2], "10": [2, 1]}
    assert value["adding_replicas"] == {"0": [3]}
    assert TopicNode.decode("t", node.encode()) == node


def test_a_topic_from_before_ids_has_none():
    assert TopicNode.decode("t", b'{"version":1,"partitions":{"0":[1]}}').topic_id == ZERO_UUID


@pytest.mark.parametrize("recovering", [False, True])
def test_a_state_reads_and_writes_itself(recovering):
    node = StateNode(1, 4, (1, 2), 7, recovering)
    value = json.loads(node.encode())
    assert ("leader_recovery_state" in value) is recovering
    assert StateNode.decode("t", 0, node.encode()) == node
    assert StateNode.path("t", 0) == "/brokers/topics/t/partitions/0/state"


def test_a_state_has_eligible_leaders_beside_what_kafka_reads():
    node = StateNode(-1, 4, (1,), 7, elr=(2, 3), last_known_leader=1)
    assert StateNode.decode("t", 0, node.encode()) == node
    ours = {"elr", "last_known_leader"}
    kafkas = json.loads(StateNode(-1, 4, (1,), 7).encode())
    assert json.loads(node.encode()).keys() - kafkas.keys() == ours


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"leader":1}'])
def test_a_state_that_makes_no_sense_names_its_path(data):
    with pytest.raises(ValueError, match="/brokers/topics/t/partitions/0/state"):
        StateNode.decode("t", 0, data)


def test_controller_and_cluster_id():
    assert json.loads(encode_controller(3, 5)) == {
        "version": 2,
        "brokerid": 3,
        "timestamp": "5",
        "kraftControllerEpoch": -1,
    }
    assert decode_controller(encode_controller(3, 5)) == 3
    assert decode_cluster_id(encode_cluster_id("x")) == "x"


def test_entities_of_configs_are_one_safe_segment():
    assert config_path("users", "a/b c") == "/config/users/a%2Fb%20c"
    assert config_path("brokers", "<default>") == "/config/brokers/<default>"
    assert decode_config_change(encode_config_change("users", "a/b c")) == ("users", "a/b c")
    assert decode_config("/p", encode_config({"a": "1"})) == {"a": "1"}
    assert decode_config("/p", b"") == {}


def test_a_block_of_producer_ids():
    block = ProducerIdBlock(2, 1000, 1999)
    assert json.loads(block.encode())["block_start"] == "1000"
    assert ProducerIdBlock.decode(block.encode()) == block
    assert ProducerIdBlock.decode(b"") is None
