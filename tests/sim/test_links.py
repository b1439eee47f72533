"""Hosts that cannot reach each other: clients and brokers, brokers and their metadata store."""

import pytest

from headwater.errors import KafkaError
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from simulator.cluster import Cluster
from simulator.node import PORT
from simulator.store import STORE_HOST
from simulator.workload.client import SimConnection
from tests.sim.support import Scene


async def ask_metadata(cluster, host):
    connection = await SimConnection.open(
        cluster.network, host, PORT, client_id="asker", timeout_s=5.0
    )
    try:
        return await connection.call(MetadataRequest(topics=None), MetadataResponse)
    finally:
        connection.close()


def test_a_client_is_cut_off_from_one_of_two_brokers():
    with Cluster(1, brokers=2) as cluster:
        first, second = cluster.nodes
        assert cluster.start(first)
        assert cluster.start(second)
        cluster.network.isolate("clients", [first.host])
        with pytest.raises(KafkaError, match="did not accept a connection"):
            cluster.run(ask_metadata(cluster, first.host))
        (broker,) = cluster.run(ask_metadata(cluster, second.host)).brokers
        assert (broker.node_id, broker.host) == (2, second.host)
        cluster.network.heal_all()
        (broker,) = cluster.run(ask_metadata(cluster, first.host)).brokers
        assert broker.node_id == 1
        assert cluster.complaints == []


def test_an_answer_that_is_lost_was_still_acknowledged():
    with Cluster(2) as cluster:
        assert cluster.start()
        scene = Scene(cluster)
        scene.create_topic()
        assert scene.produce() == "NONE"
        cluster.network.cut(cluster.node.host, "clients")
        cluster.clients.call_later(3, cluster.network.heal, cluster.node.host, "clients")
        assert scene.produce() == "NONE"
        assert scene.ends() == (0, 2)
        scene.audit()
        assert cluster.complaints == []


def test_a_broker_without_its_store_serves_records_but_creates_no_topics():
    with Cluster(3, remote_store=True) as cluster:
        assert cluster.start()
        scene = Scene(cluster)
        scene.create_topic()
        cluster.network.isolate(cluster.node.host, [STORE_HOST])
        assert scene.produce() == "NONE"
        creation = cluster.clients.create_task(scene.create_later("late"))
        scene.let_pass(5)
        assert not creation.done()
        assert "late" not in scene.topics()
        cluster.network.heal_all()
        cluster.wait(creation.done)
        assert "late" in scene.topics()
        assert cluster.complaints == []
