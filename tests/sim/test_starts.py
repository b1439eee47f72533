"""Starts of brokers whose session with the store expires at any moment."""

from itertools import count

from headwater.broker.registration import JoinError
from headwater.broker.store_entry import MOST_SESSIONS
from simulator.cluster import Cluster
from simulator.cluster_plan import SESSION_MS
from simulator.cluster_settings import REPLICATED, SETTINGS

ALONE = {**SETTINGS, **dict.fromkeys(REPLICATED, "1"), "min.insync.replicas": "1"}


def starts(expires_at):
    """Start a broker whose session expires at a request; whether the start was that long."""
    with Cluster(expires_at, ALONE, session_ms=SESSION_MS) as cluster:
        zookeeper, numbers = cluster.zookeeper, count()
        receive = zookeeper.receive

        def receive_or_expire(connection, number, request):
            if next(numbers) == expires_at:
                zookeeper.expire(connection.session)
            else:
                receive(connection, number, request)

        zookeeper.receive = receive_or_expire
        assert cluster.start(), f"the start ended at request {expires_at}"
        assert cluster.complaints == []
        return next(numbers) > expires_at


def test_a_start_goes_on_in_a_new_session_wherever_the_first_one_expires():
    requests = next(number for number in count() if not starts(number))
    assert requests > 40


def test_a_start_that_loses_one_session_after_another_ends():
    with Cluster(1, ALONE, session_ms=SESSION_MS) as cluster:
        zookeeper, node, failures = cluster.zookeeper, cluster.node, []
        zookeeper.receive = lambda connection, *_: zookeeper.expire(connection.session)
        started = node._started

        def noted(life, task):
            failures.append(task.exception())
            started(life, task)

        node._started = noted
        assert not cluster.start()
        assert isinstance(failures[0], JoinError)
        assert str(failures[0]).startswith(f"the start lost {MOST_SESSIONS} sessions with the")
