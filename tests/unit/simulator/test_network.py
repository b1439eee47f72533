"""Streams in memory: order, back-pressure, and every way to end."""

import asyncio

import pytest

from headwater.seams.accepting import AcceptAll
from simulator.loop import Scheduler, SimLoop
from simulator.network import HIGH_WATER, SimNetwork
from simulator.randomness import stream
from simulator.trace import Trace


class Peer(asyncio.Protocol):
    """Collects what it hears."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.events: list[str] = []

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc) -> None:
        self.events.append("lost" if exc is None else type(exc).__name__)


class Buffered(asyncio.BufferedProtocol):
    """Takes at most seven bytes at a time."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.room = bytearray(7)

    def connection_made(self, transport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.heard += self.room[:nbytes]


class Wire:
    """A stream between two processes."""

    def __init__(self, seed: int = 1, protocol=Peer) -> None:
        self.scheduler = Scheduler(Trace())
        self.server_loop = SimLoop(self.scheduler, "server", "broker")
        self.client_loop = SimLoop(self.scheduler, "client")
        self.network = SimNetwork(self.scheduler, stream(seed, "network"), slowest_ms=5)
        self.server, self.client = protocol(), Peer()
        self.server_loop.run(self.network.serve(AcceptAll(lambda: self.server), "broker", 9092, 10))
        self.client_loop.run(self.network.connect(lambda: self.client, "broker", 9092))
        self.settle()

    def settle(self) -> None:
        done = []
        self.client_loop.call_later(1, done.append, True)
        self.scheduler.run_until(lambda: bool(done), 2)


@pytest.mark.parametrize("protocol", [Peer, Buffered])
@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_whole_and_in_order_in_pieces_of_any_size(seed, protocol):
    wire = Wire(seed, protocol)
    sent = b"".join(b"%d," % number for number in range(200))
    for start in range(0, len(sent), 50):
        wire.client.transport.write(sent[start : start + 50])
    wire.settle()
    assert wire.server.heard == sent


def test_a_reader_that_pauses_gets_the_rest_when_it_goes_on():
    wire = Wire()
    wire.server.transport.pause_reading()
    wire.client.transport.write(b"hello")
    wire.settle()
    assert wire.server.heard == b""
    wire.server.transport.resume_reading()
    wire.settle()
    assert wire.server.heard == b"hello"


def test_a_writer_is_told_when_too_much_is_under_way():
    wire = Wire()
    wire.server.transport.pause_reading()
    wire.client.transport.write(bytes(HIGH_WATER + 1))
    assert wire.client.events == ["pause"]
    wire.server.transport.resume_reading()
    wire.settle()
    assert wire.client.events == ["pause", "resume"]
    assert wire.client.transport.get_write_buffer_size() == 0


def test_a_close_lets_what_was_written_arrive_first():
    wire = Wire()
    wire.client.transport.write(b"last words")
    wire.client.transport.close()
    wire.settle()
    assert wire.server.heard == b"last words"
    assert wire.server.events == ["lost"]
    assert wire.client.events == ["lost"]


def test_what_a_stalled_stream_carries_arrives_late():
    wire = Wire()
    stalled = wire.network.stall_some(1.0, {"clients"})
    wire.client.transport.write(b"late ")
    wire.client.transport.write(b"words")
    wire.client.transport.close()
    wire.settle()
    assert wire.server.heard == b""
    wire.network.release(stalled)
    wire.settle()
    assert wire.server.heard == b"late words"
    assert wire.server.events == ["lost"]


def test_an_abort_is_a_reset_for_the_peer():
    wire = Wire()
    wire.client.transport.abort()
    wire.settle()
    assert wire.server.events == ["ConnectionResetError"]
    assert wire.client.events == ["lost"]


def test_a_dead_process_ends_its_streams_and_listens_no_more():
    wire = Wire()
    wire.server_loop.kill()
    wire.network.process_died(wire.server_loop)
    wire.settle()
    assert len(wire.client.events) == 1
    assert wire.client.transport.is_closing()
    with pytest.raises(ConnectionRefusedError):
        wire.client_loop.run(wire.network.connect(Peer, "broker", 9092))


def test_nobody_listens_where_nobody_serves():
    wire = Wire()
    with pytest.raises(ConnectionRefusedError):
        wire.client_loop.run(wire.network.connect(Peer, "broker", 1))


def test_hosts_have_ports_of_their_own():
    wire = Wire()
    other = SimLoop(wire.scheduler, "other", "elsewhere")
    there = Peer()
    other.run(wire.network.serve(AcceptAll(lambda: there), "elsewhere", 9092, 10))
    near = Peer()
    wire.client_loop.run(wire.network.connect(lambda: near, "elsewhere", 9092))
    near.transport.write(b"hello")
    wire.settle()
    assert (there.heard, wire.server.heard) == (b"hello", b"")


def test_a_link_that_is_cut_one_way_still_works_the_other_way():
    wire = Wire()
    wire.network.cut("clients", "broker")
    wire.client.transport.write(b"question")
    wire.server.transport.write(b"news")
    wire.settle()
    assert (wire.server.heard, wire.client.heard) == (b"", b"news")
    wire.network.heal("clients", "broker")
    wire.client.transport.write(b"!")
    wire.settle()
    assert wire.server.heard == b"question!"


def test_nobody_hears_of_a_death_behind_a_cut_link():
    wire = Wire()
    wire.network.isolate("broker", ["clients"])
    wire.server_loop.kill()
    wire.network.process_died(wire.server_loop)
    wire.settle()
    assert wire.client.events == []
    wire.network.heal_all()
    wire.settle()
    assert len(wire.client.events) == 1


@pytest.mark.parametrize("link", [("clients", "broker"), ("broker", "clients")])
def test_a_connection_waits_for_both_directions_and_gives_up_in_the_end(link):
    wire = Wire()
    wire.network.cut(*link)
    with pytest.raises(TimeoutError):
        wire.client_loop.run(wire.network.connect(Peer, "broker", 9092))
    wire.client_loop.call_later(5, wire.network.heal, *link)
    wire.client_loop.run(wire.network.connect(Peer, "broker", 9092))


def test_single_messages_keep_their_order_and_wait_for_their_link():
    wire = Wire()
    heard = []
    link = ("broker", "store")
    wire.network.cut(*link)
    for number in range(20):
        wire.network.carry(link, wire.server_loop, lambda number=number: heard.append(number))
    wire.settle()
    assert heard == []
    wire.network.heal(*link)
    wire.settle()
    assert heard == list(range(20))
