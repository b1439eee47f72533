"""One question, one answer, one connection: for what happens beside a load."""

import socket


def ask(port: int, frame: bytes) -> bytes:
    """Sends a frame; the answer without its length."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
        peer.sendall(frame)
        size = int.from_bytes(peer.recv(4, socket.MSG_WAITALL))
        return peer.recv(size, socket.MSG_WAITALL)
