"""A client beyond its quota waits on every connection; nobody else does."""

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from headwater.broker.accepting import BrokerAcceptor
from headwater.broker.client_quotas import (
    CONNECTION_BURST_S,
    RELEASED_AT_ONCE,
    RELEASED_BYTES,
    ClientQuotas,
)
from headwater.broker.listening import ListenerSecurity
from headwater.errors import E
from headwater.log.slices import FileSlice
from headwater.seams.clock import SystemClock
from headwater.security.quota_buckets import BURST_S
from headwater.security.quotas import DEFAULT, QuotaEntity
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.fetch import FetchResponse
from headwater.wire.messages.groups import DescribeGroupsRequest, DescribeGroupsResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.produce import ProduceResponse
from headwater.wire.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.unit.broker.live import Closed, batch, fetch_request, produce_request, until

ANYONE = QuotaEntity("ANONYMOUS")


@pytest.fixture
def quotas(live):
    """Sets quotas, and removes them in the end."""
    used = set()

    def set_(entity=ANYONE, **values):
        used.add(entity)
        live.on_loop(lambda: live.context.client_quotas.set(entity, values))

    yield set_
    for entity in used:
        set_(entity)
    assert live.context.quotas is None
    assert live.on_loop(lambda: live.context.client_quotas._queues) == {}
    assert live.on_loop(lambda: live.context.client_quotas._queues_of) == {}


def produced(client, topic, records, acks=-1):
    return client.ask(produce_request(topic, records, acks=acks), ProduceResponse, 9)


def test_a_client_beyond_its_quota_is_answered_and_waits_on_new_connections_too(
    live, topic, quotas
):
    quotas(producer_byte_rate=100_000)
    big = batch(bytes(60_000))
    with live.client() as first, live.client() as other:
        begun = time.monotonic()
        answer = produced(first, topic, big)
        assert 0 < answer.throttle_time_ms <= 620
        assert first.send(produce_request(topic, batch()), 9)
        assert produced(other, topic, batch()).responses[0].partition_responses[0].error_code == 0
        assert time.monotonic() - begun >= answer.throttle_time_ms / 1000 - 0.001
        first.answer(ProduceResponse, 9)
    with live.client() as client:
        produced(client, topic, big)
    with live.client() as client:
        produced(client, topic, big)
    with live.client() as client:
        produced(client, topic, batch())
        assert time.monotonic() - begun >= 1.6


@pytest.mark.parametrize(
    ("entity", "owner"),
    [
        (QuotaEntity("ANONYMOUS"), ("ANONYMOUS", "")),
        (QuotaEntity(None, "metered"), ("", "metered")),
        (QuotaEntity("ANONYMOUS", "metered"), ("ANONYMOUS", "metered")),
        (QuotaEntity(DEFAULT, DEFAULT), ("ANONYMOUS", "metered")),
    ],
)
def test_how_long_clients_were_told_to_wait_is_shown_by_entity(live, topic, quotas, entity, owner):
    def told_ms():
        name = "headwater_quota_throttle_seconds_total"
        found = {row: s for row, s in live.samples().items() if row.startswith(name)}
        labels = 'quota="producer_byte_rate",user="{}",client_id="{}"'.format(*owner)
        shown = found.pop(f"{name}{{{labels}}}", 0)
        return 1000 * shown, found

    before_ms, others = told_ms()
    quotas(entity, producer_byte_rate=100_000)
    with live.client() as client:
        client.send(produce_request(topic, batch(bytes(60_000))), 9, client_id="metered")
        throttle_ms = client.answer(ProduceResponse, 9).throttle_time_ms
    after_ms, the_same = told_ms()
    assert throttle_ms > 0
    assert throttle_ms - 1 < after_ms - before_ms <= throttle_ms
    assert the_same == others, "no other entity waited"


def test_the_fast_path_serves_a_client_within_its_quota(live, topic, quotas):
    quotas(producer_byte_rate=10_000_000)
    counters = live.context.metrics.topic(topic)
    with live.client() as client:
        for _ in range(10):
            assert client.produce(topic, batch()).error_code == 0
    assert counters.fast_requests == 9


def test_without_acks_there_is_no_answer_but_the_client_waits(live, topic, quotas):
    quotas(producer_byte_rate=100_000)
    with live.client() as client:
        begun = time.monotonic()
        client.send(produce_request(topic, batch(bytes(60_000)), acks=0), 9)
        assert produced(client, topic, batch()).responses[0].partition_responses[0].error_code == 0
        assert time.monotonic() - begun >= 0.5


def test_a_consumer_gets_its_share_on_all_connections_together(live, topic, quotas):
    with live.client() as client:
        for _ in range(20):
            client.produce(topic, batch(bytes(50_000)))
    quotas(consumer_byte_rate=500_000)

    def read(_: int) -> int:
        got = offset = 0
        with live.client() as client:
            while got < 300_000:
                wanted = fetch_request({(topic, 0): offset}, max_wait_ms=100)
                answer = client.ask(wanted, FetchResponse, 12)
                for part in answer.responses[0].partitions if answer.responses else ():
                    size = len(part.records or b"")
                    assert size <= 250_000, "half a second of the quota"
                    got += size
                    offset += size // 50_000
        return got

    begun = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        total = sum(pool.map(read, range(4)))
    took = time.monotonic() - begun
    # What the last answers took is paid afterwards.
    assert total <= 500_000 * (took + 2 * BURST_S + 0.5)


def test_a_change_of_the_quota_ends_the_wait(live, topic, quotas):
    quotas(producer_byte_rate=10)
    with live.client() as first, live.client() as second:
        assert produced(first, topic, batch(bytes(5_000))).throttle_time_ms > 400_000
        first.send(produce_request(topic, batch()), 9)
        second.send(produce_request(topic, batch()), 9)
        until(
            lambda: (
                live.on_loop(lambda: sum(c.held for c in live.context.connection_quotas.open)) == 2
            )
        )
        quotas(producer_byte_rate=100_000_000)
        first.answer(ProduceResponse, 9)
        second.answer(ProduceResponse, 9)


class Waiting:
    """A connection that waits for its quota with some bytes of requests."""

    def __init__(self, waiting_bytes):
        self.waiting_bytes = waiting_bytes
        self.released = 0

    def release(self):
        self.released += 1


@pytest.mark.parametrize(
    ("waiting_bytes", "at_once"), [(0, RELEASED_AT_ONCE), (RELEASED_BYTES + 1, 1)]
)
def test_connections_that_wait_are_released_a_few_in_a_round(waiting_bytes, at_once):
    """A change of quotas while thousands wait does not let all of them act in one round."""

    async def run():
        quotas = ClientQuotas(SystemClock(), {}, lambda _: None)
        waiting = [Waiting(waiting_bytes) for _ in range(2000)]
        quotas._releasing = dict.fromkeys(waiting, 2)
        quotas._release_some()
        most = released = sum(one.released for one in waiting)
        while quotas._releasing:
            await asyncio.sleep(0)
            before, released = released, sum(one.released for one in waiting)
            most = max(most, released - before)
        assert [one.released for one in waiting] == [2] * 2000
        return most

    assert asyncio.run(run()) == 2 * at_once


def test_a_client_that_leaves_while_it_waits_is_forgotten(live, topic, quotas):
    quotas(producer_byte_rate=10)
    with live.client() as client:
        produced(client, topic, batch(bytes(5_000)))
    with live.client() as client:
        client.send(produce_request(topic, batch()), 9)
        until(
            lambda: live.on_loop(
                lambda: [c for q in live.context.client_quotas._queues.values() for c in q.waiters]
            )
        )

    def close_all():
        for connection in list(live.context.connection_quotas.open):
            connection.abort()

    live.on_loop(close_all)
    until(
        lambda: (
            not live.on_loop(
                lambda: any(q.waiters for q in live.context.client_quotas._queues.values())
            )
        )
    )


def test_each_client_id_has_the_default_quota_of_client_ids(live, topic, quotas):
    quotas(QuotaEntity(None, DEFAULT), producer_byte_rate=10)
    with live.client() as client:
        for name in ("one", "two", None):
            client.send(produce_request(topic, batch(bytes(100))), 9, client_id=name)
            assert client.answer(ProduceResponse, 9).throttle_time_ms > 10_000
            live.on_loop(live.context.client_quotas._release_all)
        assert client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


def test_requests_are_throttled_by_the_time_that_they_take(live, topic, quotas):
    quotas(request_percentage=1.0)
    throttled = [0]
    with live.client() as client, live.client() as other:
        while not any(throttled):
            throttled = [
                one.ask(ApiVersionsRequest(), ApiVersionsResponse, 2).throttle_time_ms
                for one in (client, other)
            ]
    [by_time] = live.on_loop(live.context.client_quotas.throttled)
    assert by_time.owner.key == "request_percentage"
    assert by_time.throttled_us > 0


def create(client, version, name, partitions=1):
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    answer = client.ask(request, CreateTopicsResponse, version)
    return answer.topics[0].error_code, answer.throttle_time_ms


class HandClock:
    """A moment, until somebody moves it."""

    def __init__(self) -> None:
        self.now_us = 1_000_000

    def monotonic_us(self) -> int:
        return self.now_us


@pytest.fixture
def clock(live, monkeypatch):
    """The clock of the broker's quotas."""
    clock = HandClock()
    monkeypatch.setattr(live.context.client_quotas, "_clock", clock)
    return clock


def test_changes_of_topics_beyond_the_quota_are_refused_or_throttled(live, clock, quotas):
    quotas(controller_mutation_rate=1.0)
    waiting = live.context.client_quotas._queues
    with live.client() as client:
        # An idle client may save up eleven seconds of the rate; waits are rounded up.
        assert create(client, 7, "m-1", partitions=11) == (0, 0)
        assert create(client, 7, "m-2") == (0, 0), "it has no debt yet"
        assert create(client, 7, "m-3") == (E.THROTTLING_QUOTA_EXCEEDED, 1001)
        assert live.on_loop(lambda: dict(waiting)) == {}
        assert create(client, 5, "m-3") == (0, 2001)
        deletion = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name="m-1")], timeout_ms=30_000
        )
        client.send(deletion, 6)
        assert live.on_loop(lambda: [c.held for q in waiting.values() for c in q.waiters]) == [True]
        clock.now_us += 2_001_000
        live.on_loop(live.context.client_quotas._release_all)
        assert client.answer(DeleteTopicsResponse, 6).responses[0].error_code == 0


def test_a_connection_that_is_lost_is_looked_for_where_it_waited(live, topic, quotas):
    """And not in the queues of all clients: thousands of connections may be lost at once."""
    quotas(QuotaEntity(client_id=DEFAULT), producer_byte_rate=1000)
    many = 5
    with contextlib.ExitStack() as stack:
        for number in range(many):
            client = stack.enter_context(live.client())
            client.send(produce_request(topic, batch(bytes(60_000))), 9, f"client-{number}")
        limits = live.context.client_quotas
        until(lambda: live.on_loop(lambda: len(limits._queues)) == many)
        queues = live.on_loop(lambda: list(map(len, limits._queues_of.values())))
        assert queues == [1] * many
        live.on_loop(lambda: [peer.abort() for peer in list(limits._queues_of)])
    until(lambda: not live.on_loop(lambda: limits._queues_of))
    waiters = live.on_loop(lambda: [queue.waiters for queue in limits._queues.values()])
    assert waiters == [{}] * many


def test_long_client_ids_take_no_more_memory_and_have_a_bucket_each(live, quotas):
    quotas(QuotaEntity(client_id=DEFAULT), request_percentage=100.0)
    names = ["é" * 16_000 + end for end in ("one", "two", "one")]
    with live.client() as client:
        for name in names:
            client.send(ApiVersionsRequest(), 0, name)
            client.answer(ApiVersionsResponse, 0)
    owners = live.on_loop(lambda: list(live.context.client_quotas._buckets._by_owner))
    assert len(owners) == len({owner.client_id for owner in owners}) == 2
    assert all(len(owner.client_id) < 512 for owner in owners)


def test_fetches_that_read_the_disk_at_the_same_time_share_the_quota(
    live, topic, clock, quotas, monkeypatch
):
    with live.client() as client:
        for _ in range(4):
            produced(client, topic, batch(bytes(50_000)))
    quotas(consumer_byte_rate=100_000)
    monkeypatch.setattr(FileSlice, "bytes_for", lambda *_: None)  # nothing is in the page cache
    off_loop, waiting = live.context.off_loop, []
    live.on_loop(lambda: setattr(live.context, "off_loop", lambda *call: waiting.append(call)))
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(live.client()) for _ in range(4)]
        for offset, client in enumerate(clients):
            client.send(fetch_request({(topic, 0): offset}), 12)
        until(lambda: len(waiting) == len(clients))
        live.on_loop(lambda: setattr(live.context, "off_loop", off_loop))
        live.on_loop(lambda: [off_loop(*call) for call in waiting])
        answers = [client.answer(FetchResponse, 12) for client in clients]
    got = [one.responses[0].partitions[0].records for one in answers]
    assert sum(map(bool, got)) == 1
    assert all(one.throttle_time_ms for one in answers)


def test_a_client_waits_for_changes_that_another_broker_counted(live, clock, quotas):
    quotas(controller_mutation_rate=1.0)
    waiting = live.context.client_quotas._queues
    with live.client() as client:
        create(client, 7, "forwarded")

        def mute():
            [peer] = live.context.connection_quotas.open
            request = SimpleNamespace(connection=peer, client_id="test")
            live.context.client_quotas.mute_for_changes(request, 5000)
            [bucket] = waiting
            return peer.held, bucket.wait_us(clock.now_us)

        held, wait_us = live.on_loop(mute)
        assert held
        assert abs(wait_us - 5_000_000) < 1000
        quotas()  # a debt ends with its quota
        until(lambda: create(client, 7, "forwarded")[0] == E.TOPIC_ALREADY_EXISTS)


def test_a_client_that_left_before_its_answer_is_counted_but_does_not_wait(live, clock, quotas):
    quotas(controller_mutation_rate=1.0)
    limits = live.context.client_quotas
    with live.client() as client:
        create(client, 7, "left")
        [peer] = live.on_loop(lambda: list(live.context.connection_quotas.open))
    until(lambda: not live.on_loop(lambda: list(live.context.connection_quotas.open)))
    request = SimpleNamespace(connection=peer, client_id="test")
    live.on_loop(lambda: limits.mute_for_changes(request, 5000))
    [bucket] = live.on_loop(limits.throttled)
    assert bucket.left < 0
    assert live.on_loop(lambda: (limits._queues_of, limits._queues)) == ({}, {})


def test_topics_made_on_demand_count_as_those_that_are_asked_for(live, clock, quotas, monkeypatch):
    monkeypatch.setitem(vars(live.context.settings), "auto_create_topics_enable", True)
    quotas(controller_mutation_rate=1.0)

    def missing(client, *names):
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
        answer = client.ask(request, MetadataResponse, 9)
        return [topic.name for topic in answer.topics if topic.error_code]

    names = [f"on-demand-{number}" for number in range(20)]
    with live.client() as client:
        assert missing(client, *names) == names
        live.on_loop(live.context.client_quotas._release_all)
    made = 12  # eleven seconds of the rate are saved up; the last one makes the debt
    for _ in range(3):
        with live.client() as client:
            until(lambda client=client: set(missing(client, *names)) == set(names[made:]))
    clock.now_us += 1_100_000
    with live.client() as client:
        missing(client, names[made])
        until(lambda: not missing(client, names[made]))


def test_an_address_opens_connections_no_faster_than_its_quota(live, clock, quotas):
    quotas(QuotaEntity(ip=DEFAULT), connection_creation_rate=10)
    quotas(QuotaEntity(ip="10.9.8.7"), connection_creation_rate=1)

    def served():
        count = 0
        for _ in range(3 * 10):
            with contextlib.suppress(Closed, OSError), live.client() as client:
                client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
                count += 1
        return count

    before = live.context.client_quotas.rejected_connections
    most = int(10 * CONNECTION_BURST_S) + 1
    assert served() == most
    assert live.context.client_quotas.rejected_connections == before + 3 * 10 - most
    clock.now_us += 500_000
    assert served() == 5


def test_an_address_without_a_quota_has_the_rate_of_the_settings():
    quotas = ClientQuotas(HandClock(), {}, lambda _: None, ("INTERNAL",), rate_per_address=2)
    quotas.table.set(QuotaEntity(ip="10.0.0.2"), {"connection_creation_rate": 1000.0})

    def admitted(host, listener="CLIENTS"):
        return sum(quotas.admits_connection(host, listener) for _ in range(50))

    assert 0 < admitted("10.0.0.1") < 10
    assert [admitted(host) for host in ("10.0.0.2", "127.0.0.1", "::1")] == [50, 50, 50]
    assert admitted("10.0.0.1", "INTERNAL") == 50


def test_an_address_is_limited_under_both_of_its_names(live):
    acceptor = BrokerAcceptor(
        live.context, ListenerSecurity("PLAINTEXT", "PLAINTEXT"), lambda _: None
    )
    connection_quotas = live.context.connection_quotas
    before = connection_quotas.limits
    overrides = {"10.0.0.2": 3}

    def accepted(*hosts):
        found = [one for one in map(acceptor.accept, hosts) if one is not None]
        for one in found:
            connection_quotas.leave(one, one.host, one.listener)
        return [one.host for one in found]

    def accept():
        connection_quotas.use(before._replace(per_host=1, per_host_overrides=overrides))
        try:
            first = accepted("10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1")
            return first, accepted(*["::ffff:10.0.0.2"] * 5)
        finally:
            connection_quotas.use(before)

    assert live.on_loop(accept) == (["10.0.0.1", "2001:db8::1"], ["10.0.0.2"] * 3)


def test_the_time_of_a_long_request_counts_in_all_its_steps(live, quotas):
    quotas(request_percentage=10.0)
    groups = [f"group-{number}" for number in range(3000)]
    with live.client() as client:
        begun = time.monotonic()
        for _ in range(3):
            client.ask(DescribeGroupsRequest(groups=groups), DescribeGroupsResponse, 5)
        spent = live.on_loop(live.context.client_quotas.throttled)
        by_time = next(one for one in spent if one.owner.key == "request_percentage")
        client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        took_us = (time.monotonic() - begun) * 1_000_000
    # Three requests of many milliseconds each, at a tenth of the time.
    assert by_time.throttled_us > 100_000
    assert took_us >= 0.8 * by_time.throttled_us
