"""Requests on their way to the controller."""

from types import SimpleNamespace

import pytest

from headwater.broker.forwarding import Forwarding
from headwater.errors import E, KafkaError
from headwater.security.principals import ANONYMOUS
from headwater.wire.messages.envelope import EnvelopeResponse


class Peer:
    """A connection to the controller; the test answers."""

    def send(self, request, answer, on_reply, *, timeout_ms):
        self.reply = on_reply


class Client:
    """A connection of a client, and the bytes of its requests that it is charged for."""

    def __init__(self):
        self.principal, self.host, self.held = ANONYMOUS, "127.0.0.1", 0

    def hold_bytes(self, size):
        self.held += size


@pytest.mark.parametrize(
    "answer",
    [EnvelopeResponse(response_data=b"answer"), KafkaError(E.REQUEST_TIMED_OUT)],
    ids=["answered", "lost"],
)
def test_a_request_counts_in_the_memory_budget_until_the_controller_answers(answer):
    peer, client, outcomes = Peer(), Client(), []
    context = SimpleNamespace(
        node_id=1,
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        controller=SimpleNamespace(active=False, controller_id=2),
        peers=SimpleNamespace(open=lambda broker_id, purpose: peer),
    )
    request = SimpleNamespace(connection=client, reply_bytes=outcomes.append)
    Forwarding(context).forward(request, b"x" * 1000, lambda: outcomes.append("here"))
    assert (client.held, outcomes) == (1000, [])
    peer.reply(answer)
    expected = b"answer" if isinstance(answer, EnvelopeResponse) else "here"
    assert (client.held, outcomes) == (0, [expected])
