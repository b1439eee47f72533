"""Finds ports for servers that take a number and cannot say which one they bound."""

import random
import socket

_RANGE = range(12_000, 32_000)
"""Below the ports that Linux gives to connections and to binds to port 0."""
_chance = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody takes before the server that gets it has started."""
    untried = [port for port in _RANGE if port not in _given]
    _chance.shuffle(untried)
    for port in untried:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port
    raise OSError(f"no port from {_RANGE.start} to {_RANGE.stop - 1} is free")
