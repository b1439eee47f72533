"""The client's picture of a cluster, from a real broker and from peers that answer badly."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest
import uvloop

import headwater.aio
from headwater.client.admin.admin_core import AdminCore
from headwater.client.cluster import Cluster
from headwater.client.errors import (
    InvalidTopicError,
    NetworkError,
    TimedOutError,
    UnknownTopicOrPartitionError,
)
from headwater.client.topology import (
    Node,
    PartitionView,
    TopicView,
    topic_view,
    without_older_leaders,
)
from headwater.config.client import AdminSettings
from headwater.errors import E
from headwater.model import TopicPartition
from headwater.seams.clock import SystemClock
from headwater.seams.network import TcpNetwork
from headwater.seams.randomness import SystemRandomness
from headwater.seams.tasks import LoopTasks
from headwater.testing import Broker
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.groups import DescribeGroupsRequest, DescribeGroupsResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse


@pytest.fixture(scope="module")
def broker():
    with Broker({"auto.create.topics.enable": "false"}) as running:
        running.create_topic("t", partitions=3)
        yield running


def with_cluster(bootstrap: str, work: Callable[[Cluster], Awaitable[None]], **settings) -> None:
    async def run() -> None:
        cluster = Cluster(
            AdminSettings.of({"bootstrap_servers": bootstrap, **settings}),
            TcpNetwork(),
            SystemClock(),
            SystemRandomness(),
            LoopTasks(),
        )
        try:
            await work(cluster)
        finally:
            await cluster.close()

    uvloop.run(run())  # as blocking clients do


def test_two_reasons_to_refresh_at_once_are_one_refresh(broker):
    async def work(cluster: Cluster) -> None:
        cluster.suspect()
        cluster.suspect()
        assert "t" in await cluster.all_topics()

    with_cluster(broker.bootstrap, work, retry_backoff_ms=0, retry_backoff_max_ms=0)


def test_topics_leaders_controller_and_coordinator_are_learnt(broker) -> None:
    async def work(cluster: Cluster) -> None:
        assert cluster.leader(TopicPartition("t", 0)) is None
        topics = await cluster.metadata(["t"])
        assert [row.partition for row in topics["t"].partitions] == [0, 1, 2]
        assert topics["t"].topic_id != bytes(16)
        leader = cluster.leader(TopicPartition("t", 2))
        assert leader is not None
        assert f"{leader.host}:{leader.port}" == broker.bootstrap
        assert cluster.leader(TopicPartition("t", 3)) is None
        assert await cluster.controller() == leader
        assert await cluster.coordinator("group") == leader
        assert "t" in await cluster.all_topics()

    with_cluster(broker.bootstrap, work)


def test_one_question_serves_all_who_ask_at_once(broker) -> None:
    async def work(cluster: Cluster) -> None:
        answers = 0

        def count() -> None:
            nonlocal answers
            answers += 1

        cluster.listeners.append(count)
        await asyncio.gather(*(cluster.refresh() for _ in range(10)))
        assert answers == 1

    with_cluster(broker.bootstrap, work)


def test_connections_are_shared_and_opened_anew_when_broken(broker) -> None:
    async def work(cluster: Cluster) -> None:
        node = await cluster.any_node()
        first, second = await asyncio.gather(cluster.connection(node), cluster.connection(node))
        assert first is second
        first.close()
        third = await cluster.connection(node)
        assert third is not first
        answer = await cluster.ask(
            node,
            ApiVersionsRequest(client_software_name="t", client_software_version="1"),
            ApiVersionsResponse,
        )
        assert answer.error_code == 0

    with_cluster(broker.bootstrap, work)


def test_an_address_that_does_not_answer_is_passed_over(broker) -> None:
    async def work(cluster: Cluster) -> None:
        assert "t" in await cluster.metadata(["t"], timeout_ms=10_000)

    with_cluster(f"127.0.0.1:1,{broker.bootstrap}", work)


def test_a_missing_topic_is_waited_for_and_then_named(broker) -> None:
    async def work(cluster: Cluster) -> None:
        with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
            await cluster.metadata(["t", "nowhere"], timeout_ms=200)
        with pytest.raises(InvalidTopicError):
            await cluster.metadata(["not a name"], timeout_ms=10_000)

    with_cluster(broker.bootstrap, work)


@pytest.mark.parametrize("lists_all", [False, True])
def test_a_missing_topic_is_an_error_for_everyone_who_asks_at_once(broker, lists_all) -> None:
    async def work(cluster: Cluster) -> None:
        if lists_all:
            await cluster.all_topics()
        asked = [cluster.metadata(["missing"], timeout_ms=30_000) for _ in range(3)]
        errors = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(error) for error in errors} == {UnknownTopicOrPartitionError}
        assert (await cluster.metadata(["t"]))["t"].name == "t"

    with_cluster(broker.bootstrap, work)


def test_all_topics_are_asked_for_although_fewer_are_being_asked_for(broker) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.refresh()
        asking = cluster._question

        def question() -> MetadataRequest:
            asked.set()
            return asking()

        cluster._question, asked = question, asyncio.Event()  # type: ignore[method-assign]
        some = asyncio.ensure_future(cluster.refresh())
        await asked.wait()
        assert "t" in await cluster.all_topics()
        await some

    with_cluster(broker.bootstrap, work)


def test_only_new_topics_are_asked_about_when_others_are_known() -> None:
    names = [f"t{number}" for number in range(30)]
    asked: list[int] = []

    async def work(cluster: Cluster) -> None:
        applied = cluster._apply

        def apply(answer: MetadataResponse, *, everything: bool) -> None:
            asked.append(len(answer.topics))
            applied(answer, everything=everything)

        cluster._apply = apply  # type: ignore[method-assign]
        for name in names:
            await cluster.metadata([name])
        assert asked == [1] * 30, "a client of many topics asks about each once"
        with pytest.raises(UnknownTopicOrPartitionError):
            await cluster.metadata(["missing"], timeout_ms=30_000)
        asked.clear()
        await cluster.refresh()
        assert asked == [30]
        assert sorted(cluster.topics) == sorted(names)

    with Broker({"auto.create.topics.enable": "false"}) as many:
        for name in names:
            many.create_topic(name)
        with_cluster(many.bootstrap, work)


def test_no_broker_at_all_is_told_with_the_address() -> None:
    async def work(cluster: Cluster) -> None:
        with pytest.raises(TimedOutError, match=r"no broker answers at 127\.0\.0\.1:1"):
            await cluster.metadata(["t"], timeout_ms=100)

    with_cluster("127.0.0.1:1", work)


def test_a_failed_connection_is_freed_without_the_garbage_collector() -> None:
    async def work(cluster: Cluster) -> None:
        gc.disable()
        try:
            try:
                await cluster.connection(Node(1, "127.0.0.1", 1))
            except NetworkError as refused:
                left = weakref.ref(refused)
            await asyncio.sleep(0)
            assert left() is None
        finally:
            gc.enable()

    with_cluster("127.0.0.1:1", work)


def test_a_cluster_that_moved_is_found_through_the_bootstrap_address() -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.refresh()
        broker.restart()
        cluster.nodes = {number: node._replace(port=1) for number, node in cluster.nodes.items()}
        async with asyncio.timeout(20):
            await cluster.refresh()
        assert {node.port for node in cluster.nodes.values()} == {broker.port}

    with Broker() as broker:
        with_cluster(broker.bootstrap, work)


def test_a_hint_at_the_leader_counts_only_when_it_is_news(broker) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.metadata(["t"])
        here = TopicPartition("t", 0)
        row = cluster.topics["t"].partitions[0]
        other = next(iter(cluster.nodes.values()))._replace(id=77)
        assert not cluster.leader_moved(here, 77, row.leader_epoch, [other])
        assert not cluster.leader_moved(here, 78, row.leader_epoch + 1)
        assert not cluster.leader_moved(TopicPartition("t", 9), 77, 99, [other])
        assert cluster.leader(here) != other
        assert cluster.leader_moved(here, 77, row.leader_epoch + 1, [other])
        assert cluster.leader(here) == other

    with_cluster(broker.bootstrap, work)


def test_a_partition_without_a_leader_is_asked_about_until_it_has_one(broker) -> None:
    """Nobody sends requests to such a partition, so no refusal would lead to a refresh."""

    async def work(cluster: Cluster) -> None:
        applied, answers = cluster._apply, 0

        def apply(answer: MetadataResponse, *, everything: bool) -> None:
            nonlocal answers
            answers += 1
            for topic in answer.topics if answers < 4 else ():
                topic.partitions[0].error_code = E.LEADER_NOT_AVAILABLE
            applied(answer, everything=everything)

        cluster._apply = apply  # type: ignore[method-assign]
        await cluster.metadata(["t"])
        assert cluster.leader(TopicPartition("t", 0)) is None
        led = asyncio.Event()
        cluster.listeners.append(
            lambda: led.set() if cluster.leader(TopicPartition("t", 0)) else None
        )
        async with asyncio.timeout(60):
            await led.wait()

    with_cluster(broker.bootstrap, work)


def test_a_broker_that_lags_behind_does_not_bring_a_former_leader_back(broker) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.metadata(["t"])
        here = TopicPartition("t", 0)
        known = cluster.topics["t"]
        newer = known.partitions[0]._replace(leader=77, leader_epoch=9)
        cluster.topics["t"] = known._replace(partitions=(newer, *known.partitions[1:]))
        await cluster.refresh()
        assert cluster.topics["t"].partitions[0] == newer
        assert cluster.leader(here) is None, "no live broker has this id; it is asked for again"
        cluster.topics["t"] = cluster.topics["t"]._replace(topic_id=b"x" * 16)
        await cluster.refresh()
        assert cluster.topics["t"] == known, "another topic of this name has epochs of its own"

    with_cluster(broker.bootstrap, work)


def test_a_broker_that_moved_is_asked_at_its_new_address(broker) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.metadata(["t"])
        here = TopicPartition("t", 0)
        node = cluster.leader(here)
        assert node is not None
        connection = await cluster.connection(node)
        epoch = cluster.topics["t"].partitions[0].leader_epoch
        assert cluster.leader_moved(here, node.id, epoch + 1, [node])
        assert connection.is_open
        assert cluster.leader_moved(here, node.id, epoch + 2, [node._replace(port=1)])
        assert not connection.is_open
        assert cluster.connected(node) is None

    with_cluster(broker.bootstrap, work)


def test_partitions_are_in_the_order_of_their_numbers_however_they_are_told() -> None:
    part = MetadataResponse.MetadataResponsePartition
    rows = [part(partition_index=number, leader_id=number) for number in (2, 0, 1)]
    told = MetadataResponse.MetadataResponseTopic(name="t", partitions=rows)
    assert [row.leader for row in topic_view("t", told).partitions] == [0, 1, 2]


def test_a_topic_that_was_deleted_is_not_known_any_more(broker) -> None:
    broker.create_topic("short-lived")

    async def work(cluster: Cluster) -> None:
        await cluster.metadata(["short-lived", "t"])
        async with headwater.aio.Admin(bootstrap_servers=broker.bootstrap) as admin:
            await admin.delete_topics(["short-lived"])
        await cluster.refresh()
        assert set(cluster.topics) == {"t"}
        assert cluster.leader(TopicPartition("short-lived", 0)) is None

    with_cluster(broker.bootstrap, work)


def test_an_admin_forgets_a_coordinator_that_cannot_be_reached() -> None:
    forgotten: list[str] = []

    class Unreachable:
        async def coordinator(self, group: str) -> Node:
            return Node(1, "127.0.0.1", 1)

        async def connection(self, node: Node) -> None:
            raise NetworkError("gone")

        def forget_coordinator(self, group: str) -> None:
            forgotten.append(group)

    async def run() -> None:
        calls = AdminCore({"bootstrap_servers": "127.0.0.1:1"}).calls
        calls._connected = Unreachable()
        with pytest.raises(NetworkError):
            await calls.ask_coordinator("g", DescribeGroupsRequest(), DescribeGroupsResponse)

    asyncio.run(run())
    assert forgotten == ["g"]


def test_a_broker_that_slept_does_not_bring_its_old_leaders_back() -> None:
    def view(topic_id: bytes, *leaders: tuple[int, int]) -> TopicView:
        rows = [PartitionView(n, at, epoch, (), (), ()) for n, (at, epoch) in enumerate(leaders)]
        return TopicView("orders", topic_id, False, tuple(rows))

    known = view(b"a" * 16, (1, 5), (2, 3))
    old = view(b"a" * 16, (3, 4), (3, 4), (3, 0))
    assert without_older_leaders(old, known) == view(b"a" * 16, (1, 5), (3, 4), (3, 0))
    recreated = view(b"b" * 16, (3, 0))
    assert without_older_leaders(recreated, known) == recreated
    without_epochs = view(b"a" * 16, (3, -1), (3, -1))
    assert without_older_leaders(without_epochs, known) == without_epochs
