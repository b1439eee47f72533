"""A TCP proxy whose link can be cut, frozen and healed: the network between a client and a server."""

import contextlib
import socket
import threading


class CutProxy:
    """Forwards 127.0.0.1:port to `target` while the link is whole."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._streams: list[socket.socket] = []
        self._flowing = threading.Event()
        self._flowing.set()
        self._is_cut = False
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        with self._lock:
            self._is_cut = True
            self._close_streams()

    def freeze(self) -> None:
        """Keep connections open and pass nothing on."""
        self._flowing.clear()

    def heal(self) -> None:
        """Pass on again: what was frozen arrives late, what was cut has to connect again."""
        self._is_cut = False
        self._flowing.set()

    def close(self) -> None:
        self._listener.close()
        self._flowing.set()
        with self._lock:
            self._is_cut = True
            self._close_streams()

    def _close_streams(self) -> None:
        for stream in self._streams:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
            stream.close()
        self._streams.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._flowing.wait()
                with self._lock:
                    if self._is_cut:
                        near.close()
                        continue
                    try:
                        far = socket.create_connection(self._target)
                    except OSError:
                        near.close()
                        continue
                    self._streams += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flowing.wait()
                sink.sendall(data)
        for stream in (source, sink):
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
