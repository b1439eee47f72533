"""Hosts, the links between them, and streams over the links, all in memory.

Every loop runs on a host. A stream has two ends on two loops: bytes arrive late, in pieces of any
size, in order, until the stream breaks. The reader may pause, and the writer is paused when too
much is in flight. When a process dies, its peers see the end of the stream, after the bytes in
flight or at once.

A link leads from one host to another and can be cut, in one direction or in both. Bytes sent over a
cut link wait, as TCP would retransmit them, and arrive once the link is healed: the sender notices
only silence, not even that the peer's process has died.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterable
from functools import partial
from ssl import SSLContext
from typing import Any, Protocol
from zlib import crc32

from headwater.seams.accepting import Acceptor
from headwater.seams.files import Buffer
from headwater.seams.network import ListenerHandle, ProtocolFactory
from simulator.loop import Scheduler, SimLoop
from simulator.randomness import Stream

HIGH_WATER = 64 * 1024
LOW_WATER = 16 * 1024
FIRST_PORT = 49152
FIRST_RETRANSMISSION_US, LAST_RETRANSMISSION_US = 200_000, 25_600_000
CONNECT_TRY_S = 1.0
CONNECT_TRIES = 127
"""Linux gives up on a connection after about two minutes."""
STEP_US = 50
"""Arrivals fall on multiples of this, so that some of them share a tick."""


class Tap(Protocol):
    """Hears what processes read and write, and changes nothing."""

    def received(self, reader: "SimTransport", data: bytes) -> None:
        """A process is about to read this."""

    def sent(self, writer: "SimTransport", data: bytes) -> None:
        """A process has written this."""


class _Listener:
    """An open listener."""

    def __init__(self, network: "SimNetwork", port: int, loop: SimLoop, acceptor: Acceptor) -> None:
        self.address = (loop.host, port)
        self.port = port
        self.loop = loop
        self.acceptor = acceptor
        self._network = network

    def close(self) -> None:
        """Accept no more."""
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]


class SimTransport(asyncio.Transport):
    """One end of a stream."""

    def __init__(self, network: "SimNetwork", loop: SimLoop, peername: tuple[str, int]) -> None:
        super().__init__()
        self.loop = loop
        self.protocol: asyncio.BaseProtocol | None = None
        self.peer: SimTransport = self
        self._network = network
        self._peername = peername
        self._inbox: deque[bytes] = deque()
        self._end_seen: Exception | bool | None = False
        """How the peer ended the stream; False while it is open."""
        self._under_way = 0
        self._arrival_us = 0
        self._paused_reading = False
        self._paused_writing = False
        self._closing = False
        self._lost = False
        self.accepted = False
        """Whether the process at this end listened, and did not connect."""
        self.unplugged = False
        """Whether the machine at this end lost power."""
        self.stalled: list[Callable[[], None]] | None = None
        """What this end has sent since the stream stalled."""

    # -- what protocols call

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The peer's address."""
        return self._peername if name == "peername" else default

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._closing

    def get_write_buffer_size(self) -> int:
        """Bytes that the peer has not read yet."""
        return self._under_way

    def write(self, data: Buffer) -> None:
        """Send bytes; they are copied."""
        if self._closing or not data:
            return
        sent = bytes(data)
        if self._network.tap is not None:
            self._network.tap.sent(self, sent)
        self._network.send(self, sent)
        self._under_way += len(sent)
        if self._under_way > HIGH_WATER and not self._paused_writing:
            self._paused_writing = True
            if self.protocol is not None:
                self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send several pieces as one."""
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        """Deliver nothing to the protocol until `resume_reading`."""
        self._paused_reading = True

    def resume_reading(self) -> None:
        """Deliver what has arrived."""
        self._paused_reading = False
        self.loop.call_soon(self.deliver)

    def close(self) -> None:
        """End the stream after the written bytes."""
        if not self._closing:
            self._closing = True
            self._network.end(self, None)
            self.loop.call_soon(self.lose, None)

    def abort(self) -> None:
        """End the stream now."""
        if not self._closing:
            self._closing = True
            self._network.end(self, ConnectionResetError(104, "reset by peer"))
            self.loop.call_soon(self.lose, None)

    # -- what the network calls

    def next_arrival_us(self, earliest_us: int) -> int:
        """Return when the next piece reaches the peer: never before the previous one."""
        at_us = -(-earliest_us // STEP_US) * STEP_US
        if at_us > self._arrival_us:
            self._arrival_us = at_us
        return self._arrival_us

    def arrive(self, piece: bytes) -> None:
        """Receive bytes of the peer."""
        if not self._closing:
            self._inbox.append(piece)
            self.deliver()

    def arrive_end(self, failure: Exception | None) -> None:
        """Receive the end of the stream."""
        self._end_seen = failure
        if failure is not None:
            self._inbox.clear()
            self._closing = True
            self.lose(failure)
        else:
            self.deliver()

    def deliver(self) -> None:
        """Deliver received bytes to the protocol while it reads."""
        inbox = self._inbox
        while inbox and not self._paused_reading and not self._closing:
            taken = self._hand_over(inbox[0])
            self.peer.acknowledge(taken)
            if not inbox:
                break
            if taken == len(inbox[0]):
                inbox.popleft()
            else:
                inbox[0] = inbox[0][taken:]
        if self._end_seen is None and not self._inbox and not self._closing:
            self._closing = True
            self.lose(None)

    def _hand_over(self, piece: bytes) -> int:
        protocol, network = self.protocol, self._network
        network.trace_bytes(self, piece)
        if isinstance(protocol, asyncio.BufferedProtocol):
            room = memoryview(protocol.get_buffer(len(piece)))
            if len(room) < len(piece):
                piece = piece[: len(room)]
            size = len(piece)
            room[:size] = piece
            if network.tap is not None:
                network.tap.received(self, piece)
            protocol.buffer_updated(size)
            return size
        assert isinstance(protocol, asyncio.Protocol)
        protocol.data_received(piece)
        return len(piece)

    def acknowledge(self, size: int) -> None:
        """Note that the peer has read `size` bytes."""
        self._under_way -= size
        if self._paused_writing and self._under_way < LOW_WATER:
            self._paused_writing = False
            if self.protocol is not None and not self._lost:
                self.loop.call_soon(self.protocol.resume_writing)

    def lose(self, failure: Exception | None) -> None:
        """Report the loss of the stream to the protocol, once."""
        if not self._lost:
            self._lost = True
            self._network.forget(self)
            if self.protocol is not None:
                self.protocol.connection_lost(failure)


class SimNetwork:
    """A `seams.Network` that all processes of a run share."""

    def __init__(
        self,
        scheduler: Scheduler,
        chance: Stream,
        slowest_ms: int,
        split: tuple[float, float] = (0.6, 1.0),
    ) -> None:
        self._split = split
        """The numbers, among those from 0 to 1, that let a message arrive in two pieces."""
        self.tap: Tap | None = None
        self.listeners: dict[tuple[str, int], _Listener] = {}
        self._scheduler = scheduler
        self._chance = chance
        self._slowest_us = slowest_ms * 1000
        self._slow_links: dict[tuple[str, str], int] = {}
        """By slow link: how long a message takes at most."""
        self._ends: dict[SimTransport, None] = {}
        self._next_port = FIRST_PORT
        # The messages that wait for each cut link (from host, to host).
        self._cut: dict[tuple[str, str], list[Callable[[], None]]] = {}
        # When the last single message of each link arrives.
        self._arrivals: dict[tuple[str, str], int] = {}

    # -- the seam

    async def serve(self, acceptor: Acceptor, host: str, port: int, backlog: int) -> ListenerHandle:
        """Accept connections on the caller's loop."""
        listener = _Listener(self, port or self._free_port(), _running(), acceptor)
        if listener.address in self.listeners:
            raise OSError(98, "address in use")
        self.listeners[listener.address] = listener
        return listener

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, tls: SSLContext | None = None
    ) -> asyncio.BaseTransport:
        """Open a stream to the process that listens there when the call arrives."""
        loop = _running()
        await asyncio.sleep(self._delay_us((loop.host, host)) / 1e6)
        await self._wait_for_links(loop.host, host)
        listener = self.listeners.get((host, port))
        if listener is None or listener.loop.killed:
            raise ConnectionRefusedError(111, "connection refused")
        accepted = listener.acceptor.accept(_address(loop.host))
        if accepted is None:
            raise ConnectionResetError(104, "connection reset")
        near = SimTransport(self, loop, (host, port))
        far = SimTransport(self, listener.loop, (_address(loop.host), self._free_port()))
        near.peer, far.peer, far.accepted = far, near, True
        self._ends[near] = self._ends[far] = None
        near.protocol, far.protocol = factory(), accepted
        listener.loop.call_soon(far.protocol.connection_made, far)
        near.protocol.connection_made(near)
        return near

    # -- faults

    def reset_some(self, share: float) -> None:
        """Break a share of all streams, possibly in the middle of a message."""
        for end in list(self._ends):
            if self._chance.random() < share and not end.is_closing():
                end.abort()

    def stall_some(self, share: float, senders: Container[str]) -> list[SimTransport]:
        """Stall a share of the streams from these hosts to brokers: what is sent arrives late."""
        ends = [
            one
            for one in self._ends
            if one.loop.host in senders
            and one.peer.loop.host.startswith("broker")
            and self._chance.random() < share
            and not one.is_closing()
        ]
        for end in ends:
            end.stalled = end.stalled or []
        return ends

    def release(self, ends: Iterable[SimTransport]) -> None:
        """Send what has waited in stalled streams."""
        for end in ends:
            waiting, end.stalled = end.stalled or [], None
            for send in waiting:
                send()

    def slow_down(self, slowest_ms: int) -> None:
        """Let a message take up to this long from now on."""
        self._slowest_us = slowest_ms * 1000

    def slow_down_links(self, links: Iterable[tuple[str, str]], slowest_ms: int) -> None:
        """From now on a message over these links takes up to this long; 0: as long as over others."""
        for link in links:
            self._slow_links.pop(link, None)
            if slowest_ms:
                self._slow_links[link] = slowest_ms * 1000

    def process_died(self, loop: SimLoop, *, silently: bool = False) -> None:
        """End the streams of a dead process, with or without the bytes in flight.

        A machine that loses power sends nothing: its peers wait until they send something to the
        restarted machine, which does not know the stream.
        """
        for address, listener in list(self.listeners.items()):
            if listener.loop is loop:
                del self.listeners[address]
        for end in [end for end in self._ends if end.loop is loop]:
            del self._ends[end]
            end.unplugged = silently
            if silently:
                continue
            orderly = self._chance.random() < 0.7
            self.end(end, None if orderly else ConnectionResetError(104, "reset by peer"))

    def cut(self, sender: str, receiver: str) -> None:
        """Cut the link from one host to another; the opposite direction still works."""
        self._scheduler.trace.note(f"{self._scheduler.now_us} cut {sender} -> {receiver}")
        self._cut.setdefault((sender, receiver), [])

    def heal(self, sender: str, receiver: str) -> None:
        """Repair the link and send the waiting messages."""
        self._scheduler.trace.note(f"{self._scheduler.now_us} heal {sender} -> {receiver}")
        for send in self._cut.pop((sender, receiver), []):
            send()

    def isolate(self, host: str, others: Iterable[str]) -> None:
        """Cut a host off from `others`, in both directions."""
        for other in others:
            self.cut(host, other)
            self.cut(other, host)

    def heal_all(self) -> None:
        """Repair every link."""
        for sender, receiver in list(self._cut):
            self.heal(sender, receiver)

    def is_cut(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._cut

    async def _wait_for_links(self, near: str, far: str) -> None:
        """Wait until a connection can be established; OSError if that takes too long."""
        for _ in range(CONNECT_TRIES):
            if not self.is_cut(near, far) and not self.is_cut(far, near):
                return
            await asyncio.sleep(CONNECT_TRY_S)
        raise TimeoutError(110, "connection timed out")

    # -- what transports call

    def send(self, sender: SimTransport, data: bytes) -> None:
        """Send bytes in pieces."""
        if sender.peer.unplugged:
            self._send_to_unplugged(sender)
            return
        for piece in self._pieces(data):
            self._later(sender, sender.peer.arrive, piece)

    def _send_to_unplugged(
        self, sender: SimTransport, pause_us: int = FIRST_RETRANSMISSION_US
    ) -> None:
        """Send again and again, as TCP does, until the machine is back and knows no such stream."""
        host = sender.peer.loop.host
        if sender not in self._ends:
            return
        if any(at == host and not one.loop.killed for (at, _), one in self.listeners.items()):
            reset = ConnectionResetError(104, "reset by peer")
            at_us = self._scheduler.now_us + 2 * self._delay_us((sender.loop.host, host))
            sender.loop.call_at_us(at_us, sender.arrive_end, (reset,))
        elif pause_us <= LAST_RETRANSMISSION_US:
            at_us = self._scheduler.now_us + pause_us
            sender.loop.call_at_us(at_us, self._send_to_unplugged, (sender, 2 * pause_us))

    def end(self, sender: SimTransport, failure: Exception | None) -> None:
        """Send the end of the stream, after the bytes in flight."""
        self._later(sender, sender.peer.arrive_end, failure)

    def forget(self, end: SimTransport) -> None:
        """Drop an ended stream."""
        self._ends.pop(end, None)

    def trace_bytes(self, reader: SimTransport, piece: bytes) -> None:
        """Add the bytes that a process reads to the trace."""
        self._scheduler.trace.note(f"{reader.loop.name} reads", piece)

    def carry(self, link: tuple[str, str], loop: SimLoop, call: Callable[[], object]) -> None:
        """Run `call` on a loop once a message over `link` has arrived; messages keep their order."""

        def send() -> None:
            earliest_us = self._scheduler.now_us + self._delay_us(link)
            at_us = self._arrivals[link] = max(self._arrivals.get(link, 0), earliest_us)
            loop.call_at_us(at_us, call)

        self._send_over(link, send)

    def _later(self, sender: SimTransport, call: Callable[..., None], *args: object) -> None:
        link = (sender.loop.host, sender.peer.loop.host)
        if sender.stalled is None and link not in self._cut:
            self._pass(sender, link, call, args)
            return
        send = partial(self._pass, sender, link, call, args)
        if sender.stalled is None:
            self._send_over(link, send)
        else:
            sender.stalled.append(lambda: self._send_over(link, send))

    def _pass(
        self,
        sender: SimTransport,
        link: tuple[str, str],
        call: Callable[..., None],
        args: tuple[object, ...],
    ) -> None:
        at_us = sender.next_arrival_us(self._scheduler.now_us + self._delay_us(link))
        sender.peer.loop.call_at_us(at_us, call, args)

    def _send_over(self, link: tuple[str, str], send: Callable[[], None]) -> None:
        waiting = self._cut.get(link)
        if waiting is None:
            send()
        else:
            waiting.append(send)

    def _pieces(self, data: bytes) -> Iterable[bytes]:
        if len(data) < 2 or not self._split[0] <= self._chance.random() < self._split[1]:
            return (data,)
        cut = self._chance.randrange(1, len(data))
        return data[:cut], data[cut:]

    def _delay_us(self, link: tuple[str, str]) -> int:
        slowest_us = self._slow_links.get(link, self._slowest_us)
        return int(slowest_us * self._chance.random() ** 3)

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port


def _address(host: str) -> str:
    """Return the same address for the same host in every run."""
    return "10.0.0.1" if host == "clients" else f"10.0.{1 + crc32(host.encode()) % 250}.1"


def _running() -> SimLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop
