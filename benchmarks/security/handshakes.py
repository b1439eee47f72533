"""What a TLS connection costs: its handshake, what others feel of many, and its memory when idle."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from benchmarks.load.cases import CASES
from benchmarks.load.generator import Sample
from benchmarks.load.processes import cpu_seconds, resident_mebibytes
from benchmarks.load.rounds import Scale
from benchmarks.load.targets import Figure, at_most
from benchmarks.security.servers import SecureHeadwater, SecureKafka, Stores

_WARM_UP = 1_000
_A_ROUND = 300
_RATE = 200
_IDLE = 500
_BYSTANDERS_RATE = 2_000.0


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _shake_hands(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    stream = socket.create_connection(("127.0.0.1", port), timeout=30)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(stream)


def _cost(server: SecureHeadwater | SecureKafka, context: ssl.SSLContext, count: int) -> float:
    """Return the microseconds of CPU for a full handshake and its connection."""
    before = cpu_seconds(server.pid)
    for _ in range(count):
        _shake_hands(server.secure_port, context).close()
    return (cpu_seconds(server.pid) - before) / count * 1e6


def handshakes(scale: Scale) -> list[Figure]:
    """CPU of a full handshake, beside Apache Kafka after a warm-up for its JIT."""
    context = _context()
    with (
        Stores() as stores,
        SecureKafka(stores, "SSL") as kafka,
        SecureHeadwater(stores, "SSL") as ours,
    ):
        _cost(kafka, context, _WARM_UP)
        costs = [
            (_cost(ours, context, _A_ROUND), _cost(kafka, context, _A_ROUND))
            for _ in range(scale.rounds)
        ]
    return [
        Figure("handshake", "CPU ÷ kafka", [a / b for a, b in costs], at_most(0.6)),
        Figure("handshake", "CPU, µs", [a for a, _ in costs]),
    ]


@contextmanager
def _arriving(port: int) -> Iterator[None]:
    """Connects at a steady rate; fails at the end if the rate was not kept."""
    ended, connected, context = threading.Event(), 0, _context()

    def connect() -> None:
        nonlocal connected
        while not ended.wait(max(0.0, began + connected / _RATE - time.perf_counter())):
            _shake_hands(port, context).close()
            connected += 1

    began = time.perf_counter()
    thread = threading.Thread(target=connect)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    reached = connected / (time.perf_counter() - began)
    if reached < 0.9 * _RATE:
        raise RuntimeError(f"{reached:.0f} handshakes a second instead of {_RATE}")


def bystanders(scale: Scale) -> list[Figure]:
    """The p99 of single records over TLS at a steady rate, while others connect and without them."""
    figure = Figure("handshake", f"p99 of others, {_RATE}/s ÷ none", limit=at_most(2))
    with Stores() as stores, SecureHeadwater(stores, "SSL") as server:
        for _ in range(scale.rounds):
            alone = _steady(server, scale)
            with _arriving(server.secure_port):
                beside = _steady(server, scale)
            figure.values.append(beside.p99_us / alone.p99_us)
    return [figure]


def _steady(server: SecureHeadwater, scale: Scale) -> Sample:
    case = CASES["produce-1rec-10c-new"]
    topic = case.prepare(server)
    load = replace(
        case.load(server, topic),
        rate=_BYSTANDERS_RATE,
        warmup=scale.warmup,
        seconds=scale.latency_samples / _BYSTANDERS_RATE,
    )
    sample = server.measure(load)
    server.drop(topic)
    return sample


def idle_memory(scale: Scale) -> list[Figure]:
    """Resident memory of our broker for an idle TLS connection."""
    figure = Figure("idle", "memory of a TLS connection, KiB", limit=at_most(64))
    context = _context()
    with Stores() as stores:
        for _ in range(scale.rounds):
            with SecureHeadwater(stores, "SSL") as server, ExitStack() as connections:
                _shake_hands(server.secure_port, context).close()
                before = resident_mebibytes(server.pid)
                for _ in range(_IDLE):
                    connections.enter_context(_shake_hands(server.secure_port, context))
                time.sleep(1)
                grown = resident_mebibytes(server.pid) - before
                figure.values.append(grown * 1024 / _IDLE)
    return [figure]
