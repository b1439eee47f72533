"""Who may come in, and how many."""

import asyncio

import pytest

from headwater.config.listeners import Listener
from headwater.seams.accepting import AcceptAll
from headwater.seams.network import TcpNetwork
from headwater.transport.listener import ConnectionLimits, ConnectionQuotas, open_listener
from tests.unit.transport.peer import Peer


def connection_quotas(total=10, per_host=10, **overrides):
    return ConnectionQuotas(ConnectionLimits(total, per_host, overrides))


def test_so_many_in_all():
    keeper = connection_quotas(total=2)
    peers = [Peer() for _ in range(3)]
    assert [keeper.admit(peer, f"host{rank}", "L") for rank, peer in enumerate(peers)] == [
        True,
        True,
        False,
    ]
    keeper.leave(peers[0], "host0", "L")
    assert keeper.admit(peers[2], "host2", "L")
    assert keeper.rejected == 1


def test_never_more_than_there_are_descriptors_for_and_one_warning(caplog):
    keeper = ConnectionQuotas(ConnectionLimits(10, 10, {}, descriptors=2))
    assert [keeper.admit(Peer(), "host", "L") for _ in range(5)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    (warning,) = caplog.records
    assert "ulimit -n" in warning.getMessage()


def test_so_many_from_one_address_with_exceptions():
    keeper = connection_quotas(per_host=1, special=2)
    assert keeper.admit(Peer(), "plain", "L")
    assert not keeper.admit(Peer(), "plain", "L")
    assert [keeper.admit(Peer(), "special", "L") for _ in range(3)] == [True, True, False]


def test_one_that_was_turned_away_does_not_count_when_it_leaves():
    keeper = connection_quotas(per_host=1)
    inside, outside = Peer(), Peer()
    keeper.admit(inside, "a", "L")
    keeper.admit(outside, "a", "L")
    keeper.leave(outside, "a", "L")
    assert not keeper.admit(outside, "a", "L"), "the one inside still counts"
    keeper.leave(inside, "a", "L")
    assert keeper.admit(outside, "a", "L")


def test_a_listener_may_have_a_limit_of_its_own():
    keeper = ConnectionQuotas(ConnectionLimits(3, 10, {}, per_listener={"A": 1, "B": 9}))
    inside = Peer()
    assert keeper.admit(inside, "host", "A")
    assert not keeper.admit(Peer(), "host", "A")
    assert [keeper.admit(Peer(), "host", "B") for _ in range(3)] == [True, True, False]
    keeper.leave(inside, "host", "A")
    assert keeper.admit(Peer(), "host", "A")


@pytest.mark.parametrize(
    "clients", [{"total": 3}, {"descriptors": 3}], ids=["limit", "descriptors"]
)
def test_clients_cannot_keep_brokers_out(clients):
    """Replication goes on while strangers take every connection they can get."""
    limits = ConnectionLimits(
        clients.get("total", 100),
        100,
        {},
        descriptors=clients.get("descriptors", 100),
        of_brokers=frozenset({"BROKERS"}),
    )
    keeper = ConnectionQuotas(limits)
    assert [keeper.admit(Peer(), "host", "CLIENTS") for _ in range(4)] == [True] * 3 + [False]
    assert all(keeper.admit(Peer(), "host", "BROKERS") for _ in range(20))
    assert not keeper.admit(Peer(), "host", "CLIENTS")
    keeper.use(limits._replace(per_listener={"BROKERS": 21}))
    assert [keeper.admit(Peer(), "host", "BROKERS") for _ in range(2)] == [True, False]
    keeper.use(limits._replace(descriptors=3))
    while keeper.admit(Peer(), "host", "BROKERS"):
        assert len(keeper.open) < 40, "brokers are limited, too"


def test_addresses_that_left_are_forgotten():
    keeper = connection_quotas(total=100_000, per_host=1)
    for number in range(1000):
        peer = Peer()
        keeper.admit(peer, str(number), "L")
        keeper.leave(peer, str(number), "L")
    assert not keeper._by_host
    assert not keeper.open


def test_a_taken_port_is_named_with_what_to_do():
    async def body():
        network = TcpNetwork()
        first = await open_listener(
            network, Listener("A", "127.0.0.1", 0, "PLAINTEXT"), AcceptAll(Peer), 10
        )
        taken = Listener("B", "127.0.0.1", first.port, "PLAINTEXT")
        with pytest.raises(OSError, match=rf"cannot listen on .*{first.port}.*choose another"):
            await open_listener(network, taken, AcceptAll(Peer), 10)
        first.close()

    asyncio.run(body())


def test_new_connections_come_at_the_rate_that_is_set():
    keeper = ConnectionQuotas(
        ConnectionLimits(10**6, 10**6, {}, rate=50, rate_per_listener={"A": 10, "B": 1000})
    )

    def admitted_in(listener, until_ms):
        now_ms = admitted = 0
        while now_ms < until_ms:
            pause_s = keeper.pause_s(listener, now_ms)
            if not pause_s and keeper.admit(Peer(), "host", listener):
                admitted += 1
            now_ms += max(1, int(pause_s * 1000))
        return admitted

    assert 58 <= admitted_in("A", 5000) <= 61, "ten at once, then ten a second"
    keeper.use(keeper.limits)
    assert 295 <= admitted_in("B", 5000) <= 301, "the broker's rate counts too"
    keeper.use(keeper.limits._replace(of_brokers=frozenset("B")))
    assert admitted_in("B", 1000) >= 950, "the listener of brokers has only its own rate"
    keeper.use(ConnectionLimits(10**6, 10**6, {}, rate=0))
    assert keeper.pause_s("A", 10**9) > 0, "no connection at all"
