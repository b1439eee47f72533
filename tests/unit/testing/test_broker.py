"""A broker for users' tests: quick to start, gone without a trace."""

import os

import pytest

from headwater.errors import E, KafkaError
from headwater.testing import Broker, Cluster
from tests.unit.broker.live import Client, batch


def test_a_broker_in_a_thread_leaves_nothing_behind():
    with Broker() as broker:
        assert broker.pid == os.getpid()
        broker.create_topic("t", 2)
        with Client(broker.port) as client:
            assert client.produce("t", batch()).error_code == 0
        data = broker.data_dir
        assert data.exists()
    assert not data.exists()


def test_data_and_address_survive_a_restart():
    with Broker() as broker:
        broker.create_topic("t")
        with Client(broker.port) as client:
            client.produce("t", batch())
        address = broker.bootstrap
        broker.restart()
        assert broker.bootstrap == address
        with Client(broker.port) as client:
            assert client.fetch("t").high_watermark == 1


@pytest.mark.parametrize("subprocess", [False, True])
def test_a_broker_that_is_started_twice_goes_on(subprocess):
    with Broker(subprocess=subprocess) as broker:
        with pytest.raises(RuntimeError, match=rf"runs already, at {broker.bootstrap}: stop it"):
            broker.start()
        broker.create_topic("t")
        broker.stop()
        broker.start()
        with Client(broker.port) as client:
            assert client.produce("t", batch()).error_code == 0


def test_a_topic_needs_a_broker_that_runs():
    with pytest.raises(RuntimeError, match="not started"):
        Broker().create_topic("t")
    with Broker() as broker:
        broker.stop()
        with pytest.raises(RuntimeError, match=r"the broker is stopped: start\(\) it again"):
            broker.create_topic("t")


def test_a_folder_that_was_given_is_kept(tmp_path):
    with Broker(data_dir=tmp_path):
        pass
    assert (tmp_path / "meta.properties").exists()


@pytest.mark.parametrize("kind", [Broker, Cluster])
def test_a_forked_child_that_closes_removes_nothing_of_its_parent(kind):
    made = kind()
    child = os.fork()
    if child == 0:
        try:
            made.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert made.data_dir.exists()
    made.close()
    assert not made.data_dir.exists()


def test_a_forked_child_that_leaves_the_block_leaves_the_broker_as_it_is():
    with Broker() as broker:
        broker.create_topic("t")
        child = os.fork()
        if child == 0:
            try:
                broker.__exit__(SystemExit, SystemExit(0), None)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        with Client(broker.port) as client:
            assert client.produce("t", batch()).error_code == 0
        broker.restart()
        with Client(broker.port) as client:
            assert client.fetch("t").high_watermark == 1


def test_settings_reach_the_broker_and_bad_ones_are_told():
    with Broker({"num.partitions": "4", "auto.create.topics.enable": "false"}) as broker:
        broker.create_topic("t", -1)
        with Client(broker.port) as client:
            assert client.produce("t", batch(), partition=3).error_code == 0
    with pytest.raises(Exception, match=r"num\.partitionz"):
        Broker({"num.partitionz": "4"}).start()


def test_what_cannot_be_made_or_removed_is_an_error():
    with Broker() as broker:
        broker.create_topic("t")
        with pytest.raises(KafkaError) as twice:
            broker.create_topic("t")
        assert twice.value.code is E.TOPIC_ALREADY_EXISTS
        broker.delete_topic("t")
        with pytest.raises(KafkaError) as gone:
            broker.delete_topic("t")
        assert gone.value.code is E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_that_was_not_started_says_so():
    broker = Broker()
    with pytest.raises(RuntimeError, match="the broker is not started"):
        broker.create_topic("orders")
    broker.close()


def test_a_thread_cannot_be_killed():
    with Broker() as broker, pytest.raises(RuntimeError, match="subprocess=True"):
        broker.kill()


def test_a_process_can_be_killed_and_comes_back():
    with Broker(subprocess=True) as broker:
        broker.create_topic("t")
        with Client(broker.port) as client:
            client.produce("t", batch())
        first = broker.pid
        assert first != os.getpid()
        broker.kill()
        broker.start()
        assert broker.pid != first
        with Client(broker.port) as client:
            assert client.fetch("t").high_watermark == 1


def test_a_process_that_cannot_start_says_why():
    broker = Broker({"log.retention.ms": "nonsense"}, subprocess=True)
    with pytest.raises(RuntimeError, match=r"log\.retention\.ms"):
        broker.start()
    broker.close()


def test_the_fixture_is_there_for_whoever_installed_headwater(headwater_broker):
    with Client(headwater_broker.port) as client:
        headwater_broker.create_topic("t")
        assert client.produce("t", batch()).error_code == 0
