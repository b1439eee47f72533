"""Starting, idling, and ten thousand partitions."""

import time

from benchmarks.load import encode, generator
from benchmarks.load.asking import ask
from benchmarks.load.encode import Topic
from benchmarks.load.processes import cpu_seconds, resident_mebibytes
from benchmarks.load.rounds import Scale
from benchmarks.load.servers import Headwater
from benchmarks.load.targets import Figure, at_most

_IDLE_SECONDS = 10.0
_PARTITIONS_A_TOPIC = 100
_PARTITIONS_A_REQUEST = 50
_START_TIMEOUT = 120.0


def seconds_to_first_acknowledgement(server: Headwater, topic: Topic) -> float:
    """Starts the process and produces one record as soon as it is taken."""
    frame, _ = encode.produce_request(7, 1, topic, [0], encode.batch(1, 100))
    began = time.perf_counter()
    server.start()
    while not _acknowledged(server.port, frame, topic):
        if time.perf_counter() - began > _START_TIMEOUT:
            raise TimeoutError(f"no acknowledgement in {_START_TIMEOUT:g} s")
        time.sleep(0.001)
    seconds = time.perf_counter() - began
    server.wait_until_ready()
    return seconds


def _acknowledged(port: int, frame: bytes, topic: Topic) -> bool:
    """Whether a produce (v7, one topic, one partition) was answered without an error code."""
    try:
        answer = ask(port, frame)
    except (TimeoutError, ConnectionError):
        return False
    error_at = 4 + 4 + 2 + len(topic.name) + 4 + 4
    return len(answer) > error_at and answer[error_at : error_at + 2] == b"\x00\x00"


def start_and_idle(scale: Scale) -> list[Figure]:
    """Process start to the first acknowledged produce; memory and CPU of a broker left alone."""
    start = Figure("start", "process start to first acknowledged produce, s", limit=at_most(0.5))
    memory = Figure("idle", "RSS, MiB", limit=at_most(60))
    busy = Figure("idle", "CPU, %", limit=at_most(0.5))
    with Headwater() as server:
        topic = server.fresh_topic(1)
        for _ in range(scale.rounds):
            server.stop()
            start.values.append(seconds_to_first_acknowledgement(server, topic))
        time.sleep(1)
        before = cpu_seconds(server.pid)
        time.sleep(_IDLE_SECONDS)
        busy.values.append((cpu_seconds(server.pid) - before) / _IDLE_SECONDS * 100)
        memory.values.append(resident_mebibytes(server.pid))
    return [start, memory, busy]


def many_partitions(scale: Scale) -> list[Figure]:
    """Thousands of partitions, each written once: memory, and a restart after a clean stop."""
    case = f"{scale.partitions}-partitions"
    with Headwater() as server:
        began = time.perf_counter()
        topics = [
            server.fresh_topic(_PARTITIONS_A_TOPIC)
            for _ in range(scale.partitions // _PARTITIONS_A_TOPIC)
        ]
        created = time.perf_counter() - began
        _write_to_each(server, topics)
        memory = resident_mebibytes(server.pid)
        began = time.perf_counter()
        server.stop()
        stopped = time.perf_counter() - began
        restarted = _seconds_until_all_are_led(server, topics)
        _write_to_each(server, topics)
        memory = max(memory, resident_mebibytes(server.pid))
        for topic in topics:
            server.check(topic)
    return [
        Figure(case, "RSS, MiB", [memory], at_most(400)),
        Figure(case, "restart after clean stop until all are led, s", [restarted], at_most(5)),
        Figure(case, "creation, s", [created]),
        Figure(case, "clean stop, s", [stopped]),
    ]


def _seconds_until_all_are_led(server: Headwater, topics: list[Topic]) -> float:
    began = time.perf_counter()
    server.start()
    server.wait_until_ready()
    for topic in topics:
        server.topics.wait_until_led(topic.name, topic.partitions)
    return time.perf_counter() - began


def _write_to_each(server: Headwater, topics: list[Topic]) -> None:
    """One record to every partition: a request each, on a connection each."""
    batch = encode.batch(1, 100)
    frames = [
        encode.produce_request(7, 1, topic, list(range(at, at + _PARTITIONS_A_REQUEST)), batch)
        for topic in topics
        for at in range(0, topic.partitions, _PARTITIONS_A_REQUEST)
    ]
    load = generator.Load(tuple(frames), connections=len(frames), requests=len(frames))
    generator.run(load, server.port, server.pid)
