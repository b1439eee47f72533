"""Several listeners, and how many clients may come and stay."""

import pytest

from headwater.wire.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.broker.live import Client, Closed, Live, until

TWO = {
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "advertised.listeners": "INSIDE://inside.example:1234,OUTSIDE://outside.example:5678",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}


def versions(client: Client):
    return client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)


def test_each_listener_tells_its_own_address(tmp_path):
    with Live(tmp_path, TWO) as live:
        told = []
        for opened in live.broker._opened:
            with Client(opened.port) as client:
                answer = client.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
                cluster = client.ask(DescribeClusterRequest(), DescribeClusterResponse, 0)
                (broker,) = answer.brokers
                (described,) = cluster.brokers
                assert (broker.host, broker.port) == (described.host, described.port)
                told.append((broker.host, broker.port))
        assert told == [("inside.example", 1234), ("outside.example", 5678)]


def test_topics_lead_to_the_listener_one_came_by(tmp_path):
    with Live(tmp_path, TWO) as live, Client(live.broker._opened[1].port) as client:
        answer = client.ask(MetadataRequest(topics=None), MetadataResponse, 9)
        assert all(row.error_code == 0 for topic in answer.topics for row in topic.partitions)


def test_so_many_clients_and_no_more(tmp_path):
    with Live(tmp_path, {"max.connections": "3"}) as live:
        clients = [live.client() for _ in range(3)]
        for client in clients:
            assert versions(client).error_code == 0
        with live.client() as one_too_many:
            assert one_too_many.is_closed()
        assert live.context.connection_quotas.rejected == 1
        clients.pop().socket.close()
        until(lambda: len(live.context.connection_quotas.open) == 2)
        with live.client() as welcome:
            assert versions(welcome).error_code == 0
        for client in clients:
            assert versions(client).error_code == 0
            client.socket.close()


def test_so_many_clients_of_one_address_unless_it_is_named(tmp_path):
    settings = {"max.connections.per.ip": "1"}
    with Live(tmp_path, settings) as live, live.client() as first:
        assert versions(first).error_code == 0
        with live.client() as second:
            assert second.is_closed()
    named = {**settings, "max.connections.per.ip.overrides": "127.0.0.1:2"}
    with Live(tmp_path, named) as live, live.client() as first, live.client() as second:
        assert versions(first).error_code == versions(second).error_code == 0


def test_a_client_that_says_nothing_for_too_long_is_let_go(tmp_path, monkeypatch):
    monkeypatch.setattr("headwater.broker.housekeeping_loop.SWEEP_S", 0.05)
    settings = {"connections.max.idle.ms": "300"}
    with Live(tmp_path, settings) as live, live.client() as quiet, live.client() as busy:
        versions(quiet)

        def quiet_is_gone() -> bool:
            versions(busy)
            return len(live.context.connection_quotas.open) == 1

        until(quiet_is_gone)
        assert quiet.is_closed()
        assert versions(busy).error_code == 0


def test_a_port_that_is_taken_is_named_with_what_to_do(tmp_path):
    with Live(tmp_path / "a") as live:
        taken = {"listeners": f"PLAINTEXT://127.0.0.1:{live.port}"}
        with (
            pytest.raises(OSError, match=r"cannot listen on .*choose another with --port"),
            Live(tmp_path / "b", taken),
        ):
            raise AssertionError("two brokers on one port")
        with live.client() as client:
            assert versions(client).error_code == 0
    with Live(tmp_path / "b"):
        pass


def test_a_client_that_comes_before_the_broker_is_ready_is_served_when_it_is(tmp_path):
    """The port is open while the broker learns what it leads; requests wait, none is lost."""
    with Live(tmp_path) as live, live.client() as client:
        connections = live.context.connection_quotas.open
        until(lambda: len(connections) == 1)
        (server,) = connections
        live.on_loop(server.hold)
        client.send(ApiVersionsRequest(), 0)
        live.on_loop(server.release)
        assert client.answer(ApiVersionsResponse, 0).error_code == 0


def test_a_stopped_broker_hangs_up(tmp_path):
    with Live(tmp_path) as live:
        client = live.client()
        versions(client)
    with pytest.raises(Closed):
        client.receive()
    client.socket.close()
