"""Brokers of one cluster know each other by its secret; nobody else passes, and nothing can be replayed."""

import pytest

from headwater.security.broker_handshake import (
    BrokerCredentials,
    CalledBroker,
    CallingBroker,
    HandshakeError,
)

SECRET = bytes(range(32))


def credentials(broker_id, secret=SECRET, cluster_id="c"):
    return BrokerCredentials(broker_id, cluster_id, secret)


def pair(caller=None, called=None, callee=2, nonces=(b"a" * 32, b"b" * 32)):
    return (
        CallingBroker(caller or credentials(1), callee, nonces[0]),
        CalledBroker(called or credentials(2), nonces[1]),
    )


def test_both_sides_prove_the_secret():
    calling, called = pair()
    proof = calling.next(called.feed(calling.first()).token)
    assert str(called.feed(proof).principal) == "Broker:1"


@pytest.mark.parametrize("other", [{"secret": bytes(32)}, {"cluster_id": "d"}])
def test_a_broker_of_another_cluster_is_refused_by_either_side(other):
    calling, called = pair(called=credentials(2, **other))
    with pytest.raises(HandshakeError, match="does not know the secret"):
        calling.next(called.feed(calling.first()).token)
    calling, called = pair(called=credentials(2, **other))
    honest = pair()[1]
    hello = calling.first()
    called.feed(hello)
    with pytest.raises(HandshakeError, match="does not know the secret"):
        called.feed(calling.next(honest.feed(hello).token))


def test_an_overheard_exchange_is_of_no_use():
    calling, called = pair()
    hello = calling.first()
    challenge = called.feed(hello).token
    proof = calling.next(challenge)
    later = pair(nonces=(b"a" * 32, b"c" * 32))[1]
    later.feed(hello)
    with pytest.raises(HandshakeError, match="does not know"):
        later.feed(proof)
    with pytest.raises(HandshakeError, match="does not know"):
        later.feed(challenge[32:])  # the proof of the other role
    impatient = pair(nonces=(b"d" * 32, b"b" * 32))[0]
    with pytest.raises(HandshakeError, match="does not know"):
        impatient.next(challenge)


def test_a_call_for_another_broker_and_nonsense_are_refused():
    calling, called = pair(callee=3)
    with pytest.raises(HandshakeError, match="wanted broker 3, this is broker 2"):
        called.feed(calling.first())
    for nonsense in (b"", b"x" * 41, b"\x01" * 7):
        with pytest.raises(HandshakeError, match="cannot be read"):
            called.feed(nonsense)
    with pytest.raises(HandshakeError, match="wrong size"):
        calling.next(b"short")


def test_the_secret_is_not_shown():
    assert SECRET.hex() not in repr(credentials(1))
    assert repr(SECRET) not in repr(credentials(1))
