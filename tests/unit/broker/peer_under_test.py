"""A connection to another broker whose answers a test gives."""

import asyncio

from headwater.errors import E, KafkaError
from headwater.wire import codec


class FakePeer:
    """Keeps requests until they are answered; each must fit its newest version."""

    def __init__(self, broker, purpose):
        self.broker, self.purpose = broker, purpose
        self.sent = []
        self.requests = []
        self.closed = False

    def send(self, request, answer, on_reply, *, timeout_ms=None):
        codec.encode_bytes(request, request.__schema__.versions.highest)
        self.requests.append(request)
        self.sent.append((request, on_reply))

    def reply(self, result):
        """Answer the oldest request."""
        _, on_reply = self.sent.pop(0)
        on_reply(result)

    def close(self):
        self.closed = True
        for _, on_reply in self.sent:
            gone = KafkaError(E.NETWORK_EXCEPTION, "the connection is closed")
            asyncio.get_running_loop().call_soon(on_reply, gone)
        self.sent = []


class FakePeers:
    """All connections that were opened, by broker and purpose."""

    def __init__(self):
        self.opened = {}

    def open(self, broker, purpose):
        peer = self.opened[broker, purpose] = FakePeer(broker, purpose)
        return peer


async def rounds(count: int = 5) -> None:
    """Let what is due on the loop happen."""
    for _ in range(count):
        await asyncio.sleep(0)
