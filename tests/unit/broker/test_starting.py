"""A broker that does not serve yet: brokers are let in on every listener, clients wait."""

import logging

import pytest

from headwater.broker import waiting_start
from headwater.errors import E
from headwater.model import NO_LEADER
from headwater.security.plain import PlainClient
from headwater.wire.messages.control import UpdateMetadataRequest, UpdateMetadataResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from tests.unit.broker.live import Closed, Live, until
from tests.unit.broker.test_peers import asked, node_of, run, stale_update
from tests.unit.broker.test_sasl import PLAIN_USERS, authenticate, is_served

BROKERS, OPEN, LOGIN = range(3)
SETTINGS = {
    "listeners": "INTERNAL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": (
        "INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
    ),
    "inter.broker.listener.name": "INTERNAL",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.plain.without.tls": "true",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
}


class Starting:
    """A live broker as it is before it serves."""

    def __init__(self, live: Live, listener: int) -> None:
        self._broker, self._listener = live.broker, live.broker.listeners[listener]
        self.context = live.context
        self._live = live

    @property
    def port(self) -> int:
        return self._listener.port

    def serve(self) -> None:
        def serve() -> None:
            self.context.serving = True
            for connection in list(self.context.connection_quotas.open):
                connection.start_serving(self._live.broker._handler_of(connection.listener))

        self._live.on_loop(serve)


@pytest.fixture
def live(tmp_path):
    with Live(tmp_path, SETTINGS) as running:
        running.context.serving = False
        yield running


async def one_update(peers, network, broker):
    return await asked(peers.open(broker, "test"), stale_update(None), UpdateMetadataResponse)


@pytest.mark.parametrize("listener", [BROKERS, OPEN, LOGIN])
def test_a_broker_is_let_in_on_every_listener_before_this_one_serves(live, listener):
    starting = Starting(live, listener)

    async def scenario(peers, network):
        return await one_update(peers, network, node_of(live))

    assert run(starting, scenario).error_code == E.STALE_CONTROLLER_EPOCH


@pytest.mark.parametrize("listener", [OPEN, LOGIN])
def test_a_stranger_who_acts_as_a_broker_is_not_let_in(live, listener):
    async def scenario(peers, network):
        return await one_update(peers, network, node_of(live))

    refusal = run(Starting(live, listener), scenario, secret=bytes(32))
    assert "does not know the secret" in refusal.message
    with live.client(listener) as client:
        client.send(UpdateMetadataRequest(controller_id=7, controller_epoch=-5), 8)
        until(lambda: waiting(live))
        Starting(live, listener).serve()
        with pytest.raises(Closed):
            client.receive()


def waiting(live):
    return [one for one in live.context.connection_quotas.open if one.waits_for_start]


def test_clients_wait_on_the_listeners_of_clients(live):
    with live.client(OPEN) as anonymous, live.client(LOGIN) as bob:
        anonymous.send(MetadataRequest(topics=[]), 12)
        bob.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        until(lambda: len(waiting(live)) == 2)
        Starting(live, OPEN).serve()
        assert anonymous.answer(MetadataResponse, 12).brokers
        assert bob.answer(SaslHandshakeResponse, 1).error_code == E.NONE
    with live.client(LOGIN) as bob:
        assert authenticate(bob, PlainClient("bob", "bob-secret"), "PLAIN").error_code == E.NONE
        assert is_served(bob)


@pytest.mark.parametrize(
    ("controller", "says"),
    [
        (NO_LEADER, "the cluster has had no controller for"),
        (3, "it has waited for broker 3, the controller, to send it its partitions; the log of"),
    ],
)
def test_a_start_that_waits_says_for_what(live, monkeypatch, caplog, controller, says):
    monkeypatch.setattr(waiting_start, "TOLD_AFTER_S", 0.01)
    monkeypatch.setattr(live.context.controller, "controller_id", controller)
    caplog.set_level(logging.WARNING)
    manager = waiting_start.told_while_waiting(live.context)
    live.on_loop(manager.__enter__)
    until(lambda: says in caplog.text)
    live.on_loop(lambda: manager.__exit__(None, None, None))
