"""Who may come in, and how many."""

import asyncio

import pytest

from headwater.config.listeners import Listener
from headwater.seams.network import TcpNetwork
from headwater.transport.listener import ConnectionLimits, ConnectionQuotas, open_listener
from tests.unit.transport.peer import Peer


def connection_quotas(total=10, per_host=10, **overrides):
    return ConnectionQuotas(ConnectionLimits(total, per_host, overrides))


def test_so_many_in_all():
    keeper = connection_quotas(total=2)
    peers = [Peer() for _ in range(3)]
    assert [keeper.admit(peer, f"host{rank}") for rank, peer in enumerate(peers)] == [
        True,
        True,
        False,
    ]
    keeper.leave(peers[0], "host0")
    assert keeper.admit(peers[2], "host2")
    assert keeper.rejected == 1


def test_never_more_than_there_are_descriptors_for_and_one_warning(caplog):
    keeper = ConnectionQuotas(ConnectionLimits(10, 10, {}, descriptors=2))
    assert [keeper.admit(Peer(), "host") for _ in range(5)] == [True, True, False, False, False]
    (warning,) = caplog.records
    assert "ulimit -n" in warning.getMessage()


def test_so_many_from_one_address_with_exceptions():
    keeper = connection_quotas(per_host=1, special=2)
    assert keeper.admit(Peer(), "plain")
    assert not keeper.admit(Peer(), "plain")
    assert [keeper.admit(Peer(), "special") for _ in range(3)] == [True, True, False]


def test_one_that_was_turned_away_does_not_count_when_it_leaves():
    keeper = connection_quotas(per_host=1)
    inside, outside = Peer(), Peer()
    keeper.admit(inside, "a")
    keeper.admit(outside, "a")
    keeper.leave(outside, "a")
    assert not keeper.admit(outside, "a"), "the one inside still counts"
    keeper.leave(inside, "a")
    assert keeper.admit(outside, "a")


def test_addresses_that_left_are_forgotten():
    keeper = connection_quotas(total=100_000, per_host=1)
    for number in range(1000):
        peer = Peer()
        keeper.admit(peer, str(number))
        keeper.leave(peer, str(number))
    assert not keeper._by_host
    assert not keeper.open


def test_a_taken_port_is_named_with_what_to_do():
    async def body():
        network = TcpNetwork()
        first = await open_listener(network, Listener("A", "127.0.0.1", 0, "PLAINTEXT"), Peer, 10)
        taken = Listener("B", "127.0.0.1", first.port, "PLAINTEXT")
        with pytest.raises(OSError, match=rf"cannot listen on .*{first.port}.*choose another"):
            await open_listener(network, taken, Peer, 10)
        first.close()

    asyncio.run(body())
