"""The process at the other end of a connection."""

import os
import socket
import subprocess
import sys

from headwater.testing.socket_owner import owner_of


def test_the_owner_is_found_by_both_ports():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as there:
            local = client.getsockname()[1]
            assert owner_of(local, port, {7: os.getpid()}) == 7
            assert owner_of(local, port, {}) is None
            assert owner_of(local, local, {7: os.getpid()}) is None
            code = f"import socket; kept = socket.create_connection(('127.0.0.1', {port})); input()"
            with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child:
                other, address = server.accept()
                pids = {1: os.getpid(), 2: child.pid}
                assert owner_of(address[1], port, pids) == 2
                other.close()
                child.communicate(b"\n")
            assert there.fileno() >= 0
