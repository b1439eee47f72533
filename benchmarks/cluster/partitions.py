"""Thousands of partitions: how long a controller takes to fail over, and a cluster to start."""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from kazoo.client import KazooClient

from benchmarks.cluster.clusters import BROKERS, HeadwaterCluster, wait_for
from benchmarks.load import encode, generator
from benchmarks.load.asking import ask
from benchmarks.load.encode import Topic
from benchmarks.load.generator import Load
from benchmarks.load.processes import resident_mebibytes
from benchmarks.load.rounds import Scale
from benchmarks.load.targets import Figure, at_most
from headwater.wire import codec
from headwater.wire.framing import read_response_header, request_frame
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse

FAILOVER_PARTITIONS = 5_000
START_PARTITIONS = 3_000
_PARTITIONS_A_TOPIC = 100
_CREATED_AT_ONCE = 4
_METADATA, _VERSION = 3, 12
_POLL = 0.01


# -- what a broker says


def _metadata(port: int, topics: Sequence[str]) -> MetadataResponse:
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    answer = ask(port, request_frame(_METADATA, _VERSION, 0, "bench", request))
    _, body = read_response_header(answer, _METADATA, _VERSION)
    return codec.decode(MetadataResponse, _VERSION, answer, body)[0]


def _rows(port: int, topic: str) -> list[MetadataResponse.MetadataResponsePartition]:
    return _metadata(port, [topic]).topics[0].partitions


def _wait_until_led(
    ports: Iterable[int], topics: Sequence[Topic], leaders: set[int], in_sync: int
) -> None:
    """Returns when each broker names one of these leaders of every partition.

    It asks for one topic at a time, so that asking costs the brokers little.
    """

    def led(port: int, topic: Topic) -> bool:
        try:
            rows = _rows(port, topic.name)
        except OSError:
            return False
        return len(rows) == topic.partitions and all(
            row.leader_id in leaders and len(row.isr_nodes) >= in_sync for row in rows
        )

    for port in ports:
        for topic in topics:
            wait_for(lambda port=port, topic=topic: led(port, topic), f"{topic.name}", _POLL)  # type: ignore[misc]


# -- the two cases


def _topics_of(cluster: HeadwaterCluster, partitions: int) -> list[Topic]:
    """Makes partitions with three replicas, each written once."""
    count = partitions // _PARTITIONS_A_TOPIC
    with ThreadPoolExecutor(_CREATED_AT_ONCE) as threads:
        topics = list(threads.map(cluster.fresh_topic, [_PARTITIONS_A_TOPIC] * count))
    batch = encode.batch(1, 100)
    frames: dict[int, list[generator.Frame]] = defaultdict(list)
    for topic in topics:
        by_leader: dict[int, list[int]] = defaultdict(list)
        for partition, port in enumerate(cluster.leader_ports(topic)):
            by_leader[port].append(partition)
        for port, numbers in by_leader.items():
            frames[port].append(encode.produce_request(13, -1, topic, numbers, batch))
    for port, requests in frames.items():
        load = Load(tuple(requests), connections=len(requests), requests=len(requests))
        generator.run(load, port, cluster.pids)
    return topics


def controller_failover(scale: Scale) -> list[Figure]:
    """From the end of a dead controller's session to the last partition with a new leader."""
    case = f"failover-{FAILOVER_PARTITIONS}"
    led = Figure(case, "session end to all partitions led, s", limit=at_most(2))
    memory = Figure(case, "RSS of brokers and store, MiB")
    with HeadwaterCluster() as cluster:
        began = time.perf_counter()
        topics = _topics_of(cluster, FAILOVER_PARTITIONS)
        created = Figure(case, "creation, s", [time.perf_counter() - began])
        for _ in range(scale.rounds):
            ports = [int(a.rpartition(":")[2]) for a in cluster.addresses.values()]
            _wait_until_led(ports, topics, set(cluster.brokers), BROKERS)
            memory.values.append(sum(map(resident_mebibytes, cluster.pids)))
            led.values.append(_fail_over(cluster, topics))
    return [led, created, memory]


def _fail_over(cluster: HeadwaterCluster, topics: Sequence[Topic]) -> float:
    """Kills the controller; seconds from the end of its session to leaders of all partitions."""
    ended = threading.Event()
    at: list[float] = []

    def gone(_: object) -> None:
        at.append(time.perf_counter())
        ended.set()

    client = KazooClient(hosts=cluster.zookeeper)
    client.start()
    with closing(client):
        dead = int(json.loads(client.get("/controller")[0])["brokerid"])
        client.exists(f"/brokers/ids/{dead}", watch=gone)
        cluster.brokers[dead].kill()
        ended.wait()
        client.stop()
    alive = set(cluster.brokers) - {dead}
    ports = [int(cluster.addresses[broker].rpartition(":")[2]) for broker in alive]
    _wait_until_led(ports, topics, alive, 1)
    led = time.perf_counter() - at[0]
    cluster.start(dead)
    return led


def start(scale: Scale) -> list[Figure]:
    """Three brokers that stopped in order: from their start to all leaders, and all in sync."""
    case = f"start-{START_PARTITIONS}"
    led = Figure(case, "start of three brokers to all partitions led, s", limit=at_most(8))
    in_sync = Figure(case, "start of three brokers to all replicas in sync, s")
    stopped = Figure(case, "stop, s")
    with HeadwaterCluster() as cluster:
        topics = _topics_of(cluster, START_PARTITIONS)
        everyone = set(cluster.brokers)
        ports = [int(a.rpartition(":")[2]) for a in cluster.addresses.values()]
        for _ in range(scale.rounds):
            began = time.perf_counter()
            cluster.stop(*everyone)
            stopped.values.append(time.perf_counter() - began)
            began = time.perf_counter()
            cluster.start(*everyone)
            _wait_until_led(ports, topics, everyone, 1)
            led.values.append(time.perf_counter() - began)
            _wait_until_led(ports, topics, everyone, BROKERS)
            in_sync.values.append(time.perf_counter() - began)
    return [led, in_sync, stopped]
