"""How long a producer pauses when a leader changes, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

from headwater import aio
from headwater.client.backoff import OutageBackoff
from headwater.errors import E
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse
from simulator.clock import SimClock
from simulator.loop import Scheduler, SimLoop
from simulator.network import SimNetwork
from simulator.randomness import SimRandomness, stream
from simulator.trace import Trace
from tests.clients.fake_cluster import HOST, FakeBroker, FakeCluster

METADATA = 3
OUTAGES_S = (0.5, 1.5, 1.1, 1.8, 2.3, 3.0)


class OneThreadLoop(SimLoop):
    """All threads of a simulated process are one."""

    call_soon_threadsafe = SimLoop.call_soon


def run(
    cluster: FakeCluster,
    work: Callable[[aio.Producer, SimNetwork], Awaitable[None]],
    **options: object,
) -> None:
    scheduler = Scheduler(Trace())

    async def main() -> None:
        network = SimNetwork(scheduler, stream(1, "network"), 4)
        await cluster.serve(network)
        async with aio.Producer(
            bootstrap_servers=cluster.bootstrap,
            clock=SimClock(scheduler),
            network=network,
            randomness=SimRandomness(stream(1, "client")),
            **options,
        ) as producer:
            await producer.send_and_wait("t", b"first", partition=0)
            await work(producer, network)

    OneThreadLoop(scheduler, "client", HOST).run(main(), 3600)
    assert scheduler.complaints == []


def questions(cluster: FakeCluster) -> int:
    return sum(broker.requests.count(METADATA) for broker in cluster.brokers.values())


def test_a_new_leader_is_found_soon_after_a_crash_without_a_flood_of_questions() -> None:
    cluster = FakeCluster(3)

    async def work(producer: aio.Producer, network: SimNetwork) -> None:
        leader = 1
        for outage_s in OUTAGES_S:
            asked = questions(cluster)
            cluster.brokers[leader].die()
            sent = asyncio.ensure_future(producer.send_and_wait("t", b"v", partition=0))
            await asyncio.sleep(outage_s)
            dead, leader = leader, 3 - leader
            cluster.live.discard(dead)
            cluster.move(0, leader)
            async with asyncio.timeout(0.25):  # of virtual time
                await sent
            assert questions(cluster) - asked <= 5 + 12 * outage_s
            await cluster.brokers[dead].serve(network)
            cluster.live.add(dead)
            await asyncio.sleep(5)

    run(cluster, work)


def test_an_outage_that_lasts_is_asked_about_less_and_less() -> None:
    cluster = FakeCluster(2)

    async def work(producer: aio.Producer, _: SimNetwork) -> None:
        cluster.brokers[1].die()
        sent = asyncio.ensure_future(producer.send_and_wait("t", b"v", partition=0))
        await asyncio.sleep(60)
        asked = questions(cluster)
        await asyncio.sleep(60)
        assert 40 <= questions(cluster) - asked <= 80
        cluster.move(0, 2)
        await sent

    run(cluster, work, delivery_timeout_ms=600_000)


def test_all_batches_that_a_deposed_leader_refuses_go_to_the_new_one_at_once() -> None:
    cluster = FakeCluster(2)

    async def work(producer: aio.Producer, _: SimNetwork) -> None:
        cluster.move(0, 2)
        async with asyncio.timeout(1):
            await asyncio.gather(
                *[producer.send_and_wait("t", b"%d" % number, partition=0) for number in range(5)]
            )

    run(cluster, work, batch_size=60, linger_ms=0, retry_backoff_ms=10_000)
    assert cluster.values("t") == [b"first", b"0", b"1", b"2", b"3", b"4"]


def test_a_leader_that_does_not_know_yet_that_it_leads_is_asked_again_soon() -> None:
    cluster = FakeCluster(2)

    def produce(broker: FakeBroker, request: ProduceRequest) -> ProduceResponse | None:
        answer = cluster._produce(broker, request)
        if broker.id == 2 and len(cluster.attempts) < 5 and answer is not None:
            row = answer.responses[0].partition_responses[0]
            row.current_leader.leader_id, row.current_leader.leader_epoch = 1, 1
        return answer

    def fault(attempt: object) -> E | None:
        return E.NOT_LEADER_OR_FOLLOWER if len(cluster.attempts) < 5 else None

    async def work(producer: aio.Producer, _: SimNetwork) -> None:
        cluster.handlers[0] = (ProduceRequest, produce)
        cluster.move(0, 2)
        cluster.fault = fault
        async with asyncio.timeout(0.15):
            await producer.send_and_wait("t", b"moved", partition=0)
        assert [attempt.broker for attempt in cluster.attempts] == [1, 1, 2, 2, 2]

    run(cluster, work)


def test_rests_in_an_outage_are_a_share_of_its_length() -> None:
    backoff = OutageBackoff(100, 1000, SimRandomness(stream(1, "rests")))
    for now_ms, expected_ms in ((0, 100), (1900, 100), (4000, 200), (6000, 300)):
        assert 0.8 * expected_ms <= backoff.rest_ms(now_ms) <= 1.2 * expected_ms
    for now_ms in range(6000, 40_000, 1000):
        assert backoff.rest_ms(now_ms) <= 1200
    assert backoff.rest_ms(50_000) <= 120, "a calm time has ended the outage"
