"""Requests on their way to the controller."""

import asyncio
from types import SimpleNamespace

import pytest

from headwater.broker.apis import MAX_CHANGED, SERVED
from headwater.broker.forwarding import Forwarding
from headwater.broker.handlers.envelope import handle_envelope
from headwater.broker.server_connection import ENVELOPE_ROOM
from headwater.broker.turns import finish
from headwater.errors import E, KafkaError
from headwater.security.principals import ANONYMOUS, BROKER, Principal
from headwater.wire import framing
from headwater.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from headwater.wire.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from tests.unit.broker.live import Live


class Peer:
    """A connection to the controller; the test answers."""

    def __init__(self):
        self.sent = []
        self.sent_twice = asyncio.Event()

    def send(self, request, answer, on_reply, *, timeout_ms):
        self.sent.append(request.request_data)
        self.reply = on_reply
        if len(self.sent) == 2:
            self.sent_twice.set()


class Client:
    """A connection of a client, and the bytes of its requests that it is charged for."""

    def __init__(self):
        self.principal, self.host, self.held = ANONYMOUS, "127.0.0.1", 0

    def hold_bytes(self, size):
        self.held += size


def context_of(peer):
    return SimpleNamespace(
        node_id=1,
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        controller=SimpleNamespace(active=False, controller_id=2),
        peers=SimpleNamespace(open=lambda broker_id, purpose: peer),
        quotas=None,
    )


@pytest.mark.parametrize(
    "answer",
    [EnvelopeResponse(response_data=b"answer"), KafkaError(E.REQUEST_TIMED_OUT)],
    ids=["answered", "lost"],
)
def test_a_request_counts_in_the_memory_budget_until_the_controller_answers(answer):
    peer, client, outcomes = Peer(), Client(), []
    request = SimpleNamespace(connection=client, row=SERVED[19], reply_bytes=outcomes.append)
    Forwarding(context_of(peer)).forward(request, b"x" * 1000, lambda: outcomes.append("here"))
    assert (client.held, outcomes) == (1000, [])
    peer.reply(answer)
    expected = b"answer" if isinstance(answer, EnvelopeResponse) else "here"
    assert (client.held, outcomes) == (0, [expected])


@pytest.mark.parametrize("lost", [E.NETWORK_EXCEPTION, E.BROKER_NOT_AVAILABLE])
def test_a_request_is_sent_again_if_its_connection_breaks(lost):
    peer, outcomes = Peer(), []
    request = SimpleNamespace(connection=Client(), row=SERVED[19], reply_bytes=outcomes.append)

    async def ask():
        Forwarding(context_of(peer)).forward(request, b"ask", lambda: outcomes.append("here"))
        peer.reply(KafkaError(lost))
        await asyncio.wait_for(peer.sent_twice.wait(), 60)
        peer.reply(EnvelopeResponse(response_data=b"answer"))

    asyncio.run(ask())
    assert (peer.sent, outcomes) == ([b"ask", b"ask"], [b"answer"])


def test_a_forwarded_request_has_the_limit_of_a_direct_one():
    topics = [
        CreateTopicsRequest.CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1)
        for n in range(MAX_CHANGED + 1)
    ]
    frame = b"".join(framing.request(7, 1, "c", CreateTopicsRequest(topics=topics)))[4:]
    envelope = EnvelopeRequest(request_data=frame, client_host_address=b"127.0.0.1")
    context = SimpleNamespace(
        controller=SimpleNamespace(active=True),
        settings=SimpleNamespace(max_request_elements=10 * MAX_CHANGED),
    )
    answers = []
    request = SimpleNamespace(connection=SimpleNamespace(listener="L"), reply=answers.append)
    finish(handle_envelope(context, request, envelope))
    assert [answer.error_code for answer in answers] == [E.UNKNOWN_SERVER_ERROR]


def test_a_broker_applies_a_change_of_configs_before_it_answers():
    peer, outcomes, waiting = Peer(), [], []
    request = SimpleNamespace(connection=Client(), row=SERVED[49], reply_bytes=outcomes.append)
    context = context_of(peer)
    context.configs = SimpleNamespace(catch_up=waiting.append)
    Forwarding(context).forward(request, b"ask", lambda: outcomes.append("here"))
    peer.reply(EnvelopeResponse(response_data=b"answer"))
    assert outcomes == []
    waiting.pop()()
    assert outcomes == [b"answer"]


def test_the_largest_request_of_a_client_fits_into_an_envelope(tmp_path):
    """Else the controller would break the connection that the requests of all clients share."""
    largest = 1_000_000
    with Live(tmp_path, {"socket.request.max.bytes": str(largest)}) as live:
        with live.client() as broker:
            live.log_in(broker, Principal(BROKER, "2"))
            start = b"".join(framing.request(7, 1, "c", CreateTopicsRequest()))[4:]
            envelope = EnvelopeRequest(
                request_data=start + bytes(largest - len(start)),
                request_principal=b"User:" + b"x" * (ENVELOPE_ROOM - 1000),
                client_host_address=b"127.0.0.1",
            )
            assert broker.ask(envelope, EnvelopeResponse, 0).response_data is not None
        with live.client() as client:
            client.send_bytes((largest + 1).to_bytes(4))
            assert client.is_closed()


@pytest.mark.parametrize("version", [4, 7])
def test_a_client_is_muted_for_as_long_as_the_controller_tells_it_to_wait(version):
    peer, muted, answers = Peer(), [], []
    row, context = SERVED[19], context_of(peer)
    context.quotas = SimpleNamespace(mute_for_changes=lambda *told: muted.append(told))
    request = SimpleNamespace(
        connection=Client(), row=row, version=version, reply_bytes=answers.append
    )
    for wait_ms in (0, 2001):
        Forwarding(context).forward(request, b"ask", list)
        response = CreateTopicsResponse(throttle_time_ms=wait_ms)
        data = b"".join(framing.response(7, version, response))[4:]
        peer.reply(EnvelopeResponse(response_data=data))
    assert muted == [(request, 2001)]
    assert len(answers) == 2
