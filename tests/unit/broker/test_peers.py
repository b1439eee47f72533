"""Connections between brokers: proven identity, order, timeouts, and streams that break."""

import asyncio
import threading
from dataclasses import replace

import pytest

from headwater.broker.peers import Address, Peers
from headwater.errors import E, KafkaError
from headwater.seams.network import TcpNetwork
from headwater.seams.randomness import SystemRandomness
from headwater.transport.client_connection import ClientConnection
from headwater.wire.messages.control import UpdateMetadataRequest, UpdateMetadataResponse
from headwater.wire.messages.fetch import FetchResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.unit.broker.live import WAIT_S, fetch_request


class Network(TcpNetwork):
    """Counts connections, and keeps them so that a test can break them."""

    def __init__(self):
        self.opened = []

    async def connect(self, factory, host, port, tls=None):
        transport = await super().connect(factory, host, port, tls)
        self.opened.append(transport)
        return transport


def run(live, scenario, *, timeout_ms=9000, **other):
    """Run a scenario as another broker of the cluster; `other` changes its credentials."""

    async def play():
        port = live.port
        credentials = replace(live.context.credentials, broker_id=7, **other)
        network = Network()
        peers = Peers(
            network, SystemRandomness(), credentials,
            lambda broker: Address("127.0.0.1", port) if broker < 5 else None, timeout_ms,
        )  # fmt: skip
        try:
            return await asyncio.wait_for(scenario(peers, network), WAIT_S)
        finally:
            peers.close()
            await asyncio.sleep(0)

    return asyncio.run(play())


def asked(connection, request, answer, **options):
    future = asyncio.get_running_loop().create_future()
    connection.send(request, answer, future.set_result, **options)
    assert not future.done()
    return future


def stale_update(live):
    """A control request that changes nothing: it is of an older controller."""
    return UpdateMetadataRequest(controller_id=7, controller_epoch=-5)


def node_of(live):
    return live.context.node_id


def test_a_broker_sends_what_clients_may_not(live, topic):
    async def scenario(peers, network):
        connection = peers.open(node_of(live), "test")
        control = await asked(connection, stale_update(live), UpdateMetadataResponse)
        request = fetch_request({(topic, 0): 0}, version=12)
        request.replica_id = 7
        fetched = await asked(connection, request, FetchResponse, version=12)
        return control, fetched, len(network.opened)

    control, fetched, streams = run(live, scenario)
    assert control.error_code == E.STALE_CONTROLLER_EPOCH
    assert fetched.responses[0].partitions[0].error_code != E.TOPIC_AUTHORIZATION_FAILED
    assert streams == 1


def test_answers_come_in_order_and_connections_are_independent(live):
    async def scenario(peers, network):
        one, two = peers.open(node_of(live), "one"), peers.open(node_of(live), "two")
        order = []
        last = asyncio.get_running_loop().create_future()
        for number in range(20):
            one.send(
                MetadataRequest(topics=[]), MetadataResponse, lambda _, n=number: order.append(n)
            )
        one.send(MetadataRequest(topics=[]), MetadataResponse, last.set_result)
        other = asked(two, MetadataRequest(topics=[]), MetadataResponse)
        await last
        await other
        return order, len(network.opened)

    assert run(live, scenario) == (list(range(20)), 2)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"secret": bytes(32)}, "does not know the secret"),
        ({"cluster_id": "another"}, "does not know the secret"),
    ],
)
def test_a_stranger_is_refused(live, other, reason):
    async def scenario(peers, network):
        return await asked(
            peers.open(node_of(live), "test"), MetadataRequest(topics=[]), MetadataResponse
        )

    refusal = run(live, scenario, **other)
    assert isinstance(refusal, KafkaError)
    assert refusal.code is E.BROKER_NOT_AVAILABLE
    assert reason in refusal.message


def test_another_broker_at_the_address_is_noticed(live):
    async def scenario(peers, network):
        return await asked(
            peers.open(node_of(live) + 1, "test"), MetadataRequest(topics=[]), MetadataResponse
        )

    assert "wanted broker" in run(live, scenario).message


def test_a_client_neither_sees_nor_passes_the_handshake(live):
    async def scenario(peers, network):
        stream = await ClientConnection.open(network, "127.0.0.1", live.port)
        with pytest.raises(KafkaError, match="has no UpdateMetadata"):
            stream.version_for(UpdateMetadataRequest())
        chosen = await stream.call_version(
            SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1
        )
        begun = await stream.call_version(
            SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), SaslAuthenticateResponse, 2
        )
        with pytest.raises(KafkaError):
            await stream.call_version(stale_update(live), UpdateMetadataResponse, 8)
        return chosen, begun

    chosen, begun = run(live, scenario)
    assert (chosen.error_code, chosen.mechanisms) == (E.ILLEGAL_SASL_STATE, [])
    assert begun.error_code == E.ILLEGAL_SASL_STATE


def test_a_broken_stream_is_opened_again(live):
    async def scenario(peers, network):
        connection = peers.open(node_of(live), "test")
        await asked(connection, MetadataRequest(topics=[]), MetadataResponse)
        assert connection.connected
        broken = asked(connection, MetadataRequest(topics=[]), MetadataResponse)
        network.opened[0].abort()
        first = await broken
        second = await asked(connection, MetadataRequest(topics=[]), MetadataResponse)
        return first, second

    first, second = run(live, scenario)
    assert isinstance(first, KafkaError)
    assert first.code is E.NETWORK_EXCEPTION
    assert second.brokers


def test_a_broker_that_does_not_live_or_does_not_answer(live):
    async def scenario(peers, network):
        gone = peers.open(9, "gone")
        first = await asked(gone, MetadataRequest(topics=[]), MetadataResponse)
        silent = peers.open(node_of(live), "silent")
        await asked(silent, MetadataRequest(topics=[]), MetadataResponse)
        live._loop.call_soon_threadsafe(stall)
        await asyncio.to_thread(stalled.wait, WAIT_S)
        both = [
            asked(silent, MetadataRequest(topics=[]), MetadataResponse, timeout_ms=20),
            asked(silent, MetadataRequest(topics=[]), MetadataResponse),
        ]
        late = [await one for one in both]
        over.set()
        again = await asked(silent, MetadataRequest(topics=[]), MetadataResponse)
        silent.close()
        closed = await asked(silent, MetadataRequest(topics=[]), MetadataResponse)
        return first, late, again, closed

    stalled, over = threading.Event(), threading.Event()

    def stall():
        stalled.set()
        over.wait(WAIT_S)

    first, late, again, closed = run(live, scenario)
    assert first.code is E.BROKER_NOT_AVAILABLE
    assert [one.code for one in late] == [E.REQUEST_TIMED_OUT] * 2
    assert again.brokers
    assert closed.code is E.BROKER_NOT_AVAILABLE
