"""The server of `headwater collect http`, from binding its socket to the last response."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn

from headwater.collect.event_producer_loop import EventProducer, delivery_settings
from headwater.collect.http_limits import limited_config
from headwater.collect.http_loop import HttpEndpoint, HttpOptions
from headwater.seams.clock import SystemClock
from headwater.seams.signals import stop_signals

_LOOK_S = 0.1
"""How often a second Ctrl-C is looked for."""


@dataclass(frozen=True)
class HttpServerOptions:
    """Where the server listens, and its limits per connection."""

    host: str = "127.0.0.1"
    port: int = 8080
    read_timeout_s: float = 20.0
    max_connections: int = 1000


class _Server(uvicorn.Server):
    """A uvicorn server that closes the producer at its end and exits with code 0."""

    def __init__(
        self, config: uvicorn.Config, storing: EventProducer, ack_timeout_s: float
    ) -> None:
        super().__init__(config)
        self._storing = storing
        self._ack_timeout_s = ack_timeout_s

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal; a second Ctrl-C waits neither for clients nor for the broker."""
        before = {number: signal.signal(number, self.handle_exit) for number in stop_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the open requests, then send what the producer holds.

        A second Ctrl-C breaks off both; uvicorn would log each request that this cancels.
        """
        await super().shutdown(sockets)
        closing = asyncio.ensure_future(self._storing.close(self._ack_timeout_s))
        while not closing.done():
            if self.force_exit:
                logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
                closing.cancel()  # the remaining records fail
            await asyncio.wait([closing], timeout=_LOOK_S)
        if not closing.cancelled():
            closing.result()


async def serve(
    topic: str,
    options: HttpOptions,
    listening: HttpServerOptions,
    settings: dict[str, Any],
    ready: Callable[[str], None],
) -> None:
    """Serve until a signal stops it, then finish accepted requests."""
    clock = SystemClock()
    with _bound(listening) as server_socket:
        storing = EventProducer(
            topic, clock, {**delivery_settings(options.ack_timeout_s), **settings}
        )
        try:
            await storing.start()
        except BaseException:
            await storing.close(0)
            raise
        config = limited_config(
            HttpEndpoint(options, storing, clock).app(),
            read_timeout_s=listening.read_timeout_s,
            max_connections=listening.max_connections,
            stop_timeout_s=options.ack_timeout_s,
        )
        server_socket.listen(2048)
        ready(_url(server_socket))
        await _Server(config, storing, options.ack_timeout_s).serve(sockets=[server_socket])


def _bound(listening: HttpServerOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((listening.host, listening.port))
    except OSError as problem:
        bound.close()
        place = f"{listening.host}:{listening.port}"
        advice = f"{problem.strerror}; choose another address with --host and --port"
        raise OSError(problem.errno, advice, place) from None
    return bound


def _url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
