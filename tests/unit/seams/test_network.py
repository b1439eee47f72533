"""What cannot be connected to is an OSError, whatever a broker advertises."""

import asyncio

import pytest

from headwater.client.blocking_connection import _connected
from headwater.seams.network import TcpNetwork

CANNOT_BE = [("a..example", 9092), ("x" * 64 + ".example", 9092), ("nul\0", 9092)]


@pytest.mark.parametrize(("host", "port"), [*CANNOT_BE, ("127.0.0.1", 1 << 16)])
def test_an_address_that_cannot_be_one_is_an_oserror(host, port):
    with pytest.raises(OSError, match="is not an address"):
        asyncio.run(TcpNetwork().connect(asyncio.Protocol, host, port))


@pytest.mark.parametrize(("host", "port"), CANNOT_BE[:2])
def test_it_is_one_for_readers_without_a_loop_too(host, port):
    with pytest.raises(OSError, match="is not an address"):
        _connected(host, port, 1.0, None)
