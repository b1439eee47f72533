"""A follower that comes back two gigabytes behind: how fast it catches up, and who feels it.

The rate is that of its log files, from the first byte that it fetches to the last. It is compared
with a librdkafka consumer of the same partition, which gets the same bytes and writes nothing; the
table also has a socket that discards what it receives.
"""

import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from benchmarks.cluster.clusters import HeadwaterCluster, wait_for
from benchmarks.load import encode, generator
from benchmarks.load.cold_read import reading
from benchmarks.load.encode import Topic
from benchmarks.load.generator import Load, RunningLoad, Sample
from benchmarks.load.rounds import Scale, touch_memory
from benchmarks.load.targets import Figure, at_least, at_most

_CASE = "catch-up"
_BATCH = encode.batch_of(64 << 10, 1000)
_RATE = 1000.0  # an open loop well below what the brokers can do, so that only waiting shows
_QUIET_SECONDS = 4.0
_UNTIL_STOPPED = 600.0
_POLL = 0.002
_LEADER, _OTHER, _BEHIND = 1, 2, 3


def catch_up(scale: Scale) -> list[Figure]:
    """The rate of a returning follower ÷ a consumer's, and produce p99 meanwhile ÷ before."""
    copies = scale.log_bytes // len(_BATCH)
    total = copies * len(_BATCH)
    share = Figure(_CASE, "follower ÷ librdkafka consumer", limit=at_least(0.6))
    tails = Figure(_CASE, "produce p99 meanwhile ÷ before", limit=at_most(2))
    speed = Figure(_CASE, "follower, MB/s")
    consumer_speed = Figure(_CASE, "librdkafka consumer, MB/s")
    discarded = Figure(_CASE, "reader that discards, MB/s")
    quiet_tail = Figure(_CASE, "produce p99 before, µs")
    with HeadwaterCluster() as cluster:
        for _ in range(min(scale.rounds, 3)):
            topic = cluster.placed_topic([[_LEADER, _OTHER, _BEHIND]])
            producing = cluster.placed_topic([[_LEADER, _OTHER]])
            cluster.stop(_BEHIND)
            _fill(cluster, topic, copies)
            touch_memory()
            quiet = generator.run(_producing(producing, _QUIET_SECONDS), cluster.port, cluster.pid)
            rate, busy = _return(cluster, topic, producing, total)
            consumed = _consumed(cluster, topic, copies)
            read = generator.run(reading(topic, _BATCH, copies), cluster.port, cluster.pid)
            share.values.append(rate / consumed)
            tails.values.append(busy.p99_us / quiet.p99_us)
            speed.values.append(rate)
            consumer_speed.values.append(consumed)
            discarded.values.append(read.megabytes_per_second)
            quiet_tail.values.append(quiet.p99_us)
            cluster.check_replicas(topic, [_LEADER, _BEHIND])
            for used in (topic, producing):
                cluster.drop(used)
    return [share, tails, speed, consumer_speed, discarded, quiet_tail]


def _fill(cluster: HeadwaterCluster, topic: Topic, copies: int) -> None:
    frame = encode.produce_request(13, -1, topic, [0], _BATCH)
    load = Load((frame,), connections=4, depth=2, requests=copies)
    generator.run(load, cluster.leader_ports(topic), cluster.pids)


def _producing(topic: Topic, seconds: float) -> Load:
    frame = encode.produce_request(13, -1, topic, [0], encode.batch(1, 100))
    return Load((frame,), connections=10, depth=16, rate=_RATE, warmup=0.5, seconds=seconds)


def _return(
    cluster: HeadwaterCluster, topic: Topic, producing: Topic, total: int
) -> tuple[float, Sample]:
    """The follower's MB/s, and what producers saw while it fetched."""
    folder = cluster.folder(_BEHIND, topic, 0)
    before = _size(folder)
    cluster.start(_BEHIND)
    wait_for(lambda: _size(folder) > before, "the first byte", _POLL)
    began, first = time.perf_counter(), _size(folder)
    load = RunningLoad(_producing(producing, _UNTIL_STOPPED), cluster.port, cluster.pid)
    wait_for(lambda: _size(folder) >= total, "the last byte", _POLL)
    seconds = time.perf_counter() - began
    load.stop()
    return (total - first) / seconds / 1e6, load.result()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def _consumed(cluster: HeadwaterCluster, topic: Topic, copies: int) -> float:
    """The MB/s of a consumer with librdkafka's defaults but for a queue that never runs full."""
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{cluster.port}",
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 1 << 20,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(topic.name, 0, 0)])
    count, got = copies * encode.record_count(_BATCH), 0
    try:
        got = len(consumer.consume(1, timeout=60))
        began = time.perf_counter()
        while got < count:
            messages = consumer.consume(min(10_000, count - got), timeout=60)
            if not messages:
                raise RuntimeError(f"{got} of {count} messages arrived")
            got += len(messages)
        return copies * len(_BATCH) / (time.perf_counter() - began) / 1e6
    finally:
        consumer.close()
