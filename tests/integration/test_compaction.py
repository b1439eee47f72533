"""Compaction by real processes: what clients of others read, and kill -9 in the middle of a pass."""

import asyncio
import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.log.compaction.report import compaction_states
from headwater.log.verify import verify_log
from headwater.processes.child import broker_process
from headwater.processes.local_nodes import unused_port
from headwater.seams.files import OsFiles
from tests.compat.client import Unavailable
from tests.compat.tool_server import program_command
from tests.integration.waiting import until

TOPIC = "compacted"
SMALL = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "min.cleanable.dirty.ratio": "0.01",
}


@pytest.fixture
def start(tmp_path):
    """Starts broker processes over one data folder, one after the other."""
    started = []
    port = unused_port()

    def start_broker(**settings):
        broker = broker_process(
            {
                "log.dirs": str(tmp_path / "data"),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "log.cleaner.backoff.ms": "100",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        broker.launch()
        started.append(broker)
        broker.wait_ready()
        return broker, f"127.0.0.1:{port}"

    yield start_broker
    for broker in started:
        broker.kill()


def producer_of(bootstrap, **settings):
    quiet = {"log_level": 0, "bootstrap.servers": bootstrap}
    return confluent_kafka.Producer({**quiet, **settings})


def create(bootstrap, name=TOPIC, **settings):
    topic = NewTopic(name, 1, 1, config={**SMALL, **settings})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[name].result(60)


def write(producer, count, keys, size=100, start=0, topic=TOPIC):
    failures = []

    def delivered(failure, _):
        if failure is not None:
            failures.append(failure)

    for at in range(start, start + count):
        value = b"%d:" % at + b"x" * size
        producer.produce(topic, value, b"key-%d" % (at % keys), 0, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert failures == []


def folder(tmp_path) -> Path:
    return tmp_path / "data" / f"{TOPIC}-0"


def dirty_bytes(tmp_path) -> int | None:
    """What is left to clean, None before the first pass."""
    states = compaction_states(OsFiles(), str(tmp_path / "data"))
    (state,) = [one for one in states if one.partition == f"{TOPIC}-0"]
    return state.dirty_bytes if state.cleaned_to else None


def confluent_records(bootstrap, offsets, end, isolation="read_committed"):
    """The first record at or after each offset, as librdkafka gives it."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,
        }
    )
    for offset in offsets:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, offset)])
        message = None
        while message is None or code_of(message) == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE:
            # librdkafka goes on behind a batch whose records from the offset on are gone, and says
            # so after some of them.
            message = consumer.poll(60)
        ended = message.error() is not None
        assert not ended or code_of(message) == confluent_kafka.KafkaError._PARTITION_EOF
        yield offset, None if ended else (message.offset(), message.key(), message.value())
    consumer.close()


def code_of(message):
    return message.error() and message.error().code()


def kafka_python_records(bootstrap, offsets, end):
    """The same of kafka-python."""
    partition = kafka.TopicPartition(TOPIC, 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_max_wait_ms=10,
    )
    consumer.assign([partition])
    for offset in offsets:
        consumer.seek(partition, offset)
        found = None
        while found is None and consumer.position(partition) < end:
            for record in consumer.poll(1000, max_records=1).get(partition, []):
                found = (record.offset, record.key, record.value)
        yield offset, found
    consumer.close()


def aiokafka_records(bootstrap, offsets, end):
    """The same of aiokafka."""

    async def read():
        partition = aiokafka.TopicPartition(TOPIC, 0)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_max_wait_ms=10,
        )
        await consumer.start()
        try:
            consumer.assign([partition])
            rows = []
            for offset in offsets:
                consumer.seek(partition, offset)
                found = None
                while found is None and await consumer.position(partition) < end:
                    polled = await consumer.getmany(partition, timeout_ms=1000, max_records=1)
                    for record in polled.get(partition, []):
                        found = (record.offset, record.key, record.value)
                rows.append((offset, found))
            return rows
        finally:
            await consumer.stop()

    return asyncio.run(read())


def java_records(bootstrap, offsets, end):
    """The same of the Java client."""
    command = program_command("EveryOffset", "kafka-clients-4.3.1")
    done = subprocess.run(
        [*command, bootstrap, TOPIC, str(end)], stdout=subprocess.PIPE, text=True, check=True
    )
    for offset, line in zip(offsets, done.stdout.splitlines(), strict=True):
        number, *found = line.split(" ", 3)
        assert int(number) == offset
        yield offset, (int(found[0]), *(part.encode() for part in found[1:])) if found else None


READERS = [confluent_records, kafka_python_records, aiokafka_records, java_records]


def test_real_clients_read_a_compacted_topic_from_every_offset(start, tmp_path):
    broker, bootstrap = start()
    create(bootstrap)
    plain = producer_of(bootstrap)
    transactional = producer_of(bootstrap, **{"transactional.id": "t"})
    transactional.init_transactions(60)
    for first in range(0, 150, 50):
        write(plain, 50, 7, start=first)
    for commit, first in ((True, 150), (False, 160)):
        transactional.begin_transaction()
        write(transactional, 10, 10, start=first)
        (transactional.commit_transaction if commit else transactional.abort_transaction)(60)
    for first in range(170, 290, 10):
        write(plain, 10, 7, size=1000, start=first)
    until(lambda: dirty_bytes(tmp_path) == 0, "the log to be clean")
    end = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    _, high = end.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, 0), 60)
    end.close()

    everything = []
    offset = 0
    while offset < high:
        (_, record), *_ = confluent_records(bootstrap, [offset], high)
        if record is None:
            break
        everything.append(record)
        offset = record[0] + 1
    # The values that were written last, and none of the aborted transaction.
    expected = {b"key-%d" % (at % 7): at for at in (*range(150), *range(170, 290))}
    expected |= {b"key-%d" % at: 150 + at for at in (7, 8, 9)}
    last = {key: int(value.partition(b":")[0]) for _, key, value in everything}
    assert last == expected
    assert len(everything) < 100
    offsets = [record[0] for record in everything]
    assert offsets == sorted(offsets)

    def first_from(offset):
        return next((record for record in everything if record[0] >= offset), None)

    lacking = ""
    for client in READERS:
        try:
            rows = list(client(bootstrap, range(high), high))
        except Unavailable as missing:
            lacking = str(missing)
            continue
        assert [offset for offset, _ in rows] == list(range(high)), client.__name__
        for offset, record in rows:
            assert record == first_from(offset), (client.__name__, offset)
    broker.stop()
    assert verify_log(str(folder(tmp_path)), gaps=True).problems == []
    if lacking:
        pytest.skip(f"all other clients read it: {lacking}")


def workers_of(broker) -> list[int]:
    """The process ids of the broker's cleaning workers."""
    return [
        int(child)
        for task in Path(f"/proc/{broker.pid}/task").iterdir()
        for child in (task / "children").read_text().split()
        if b"headwater.log.compaction.worker" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def worker_of(broker) -> int:
    """The process id of the broker's only cleaning worker."""
    for worker in workers_of(broker):
        return worker
    raise LookupError("there is no worker")


def logs_open_in(worker) -> set[str]:
    """The folders of the logs that a worker reads."""
    folders = set()
    with suppress(FileNotFoundError):
        for fd in Path(f"/proc/{worker}/fd").iterdir():
            with suppress(FileNotFoundError):
                path = Path(os.readlink(fd))
                if path.suffix == ".log":
                    folders.add(path.parent.name)
    return folders


def test_two_workers_clean_two_logs_at_the_same_time(start):
    limits = {"log_cleaner_threads": "2", "log_cleaner_io_max_bytes_per_second": "100000"}
    broker, bootstrap = start(**limits)
    producer = producer_of(bootstrap, **{"batch.size": 10_000})
    names = {TOPIC, "beside"}
    for name in names:
        create(bootstrap, name, **{"segment.bytes": "300000"})
        write(producer, 4000, 500, size=200, topic=name)
    wanted = {f"{name}-0" for name in names}
    seen = []

    def both_read():
        folders = [logs_open_in(worker) for worker in workers_of(broker)]
        seen.append(folders)
        return len(folders) == 2 and all(folders) and set.union(*folders) == wanted

    until(both_read, "a worker for each log")
    assert all(len(folders) <= 1 for row in seen for folders in row), "one log for each worker"


def wait_for_worker(broker, other_than=None) -> int:
    found = []
    until(
        lambda: found.append(worker_of(broker)) or found[-1] != other_than, "a worker of the broker"
    )
    return found[-1]


def is_alive(pid) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_kill_9_of_a_worker_and_of_the_broker_in_a_pass_loses_nothing(start, tmp_path):
    broker, bootstrap = start(log_cleaner_io_max_bytes_per_second="150000")
    log = broker.log_file
    with pytest.raises(LookupError):
        worker_of(broker)  # nothing is dirty
    create(bootstrap, **{"segment.bytes": "300000"})
    producer = producer_of(bootstrap, **{"batch.size": 10_000})
    write(producer, 4000, 500, size=200)

    first = wait_for_worker(broker)
    os.kill(first, signal.SIGKILL)
    died = "a cleaning worker died during the compaction of compacted-0: .* code -9"
    until(lambda: re.search(died, log.read_text()), "the death to be noticed")
    second = wait_for_worker(broker, other_than=first)
    write(producer, 1, 1, start=4000)  # the broker serves meanwhile, this topic and others
    create(bootstrap, "beside")
    for number in range(20):
        producer.produce("beside", b"%d" % number)
    assert producer.flush(30) == 0

    def in_a_pass_or_behind_it():
        names = os.listdir(folder(tmp_path))
        return any(name.endswith(".cleaned") for name in names) or dirty_bytes(tmp_path) == 0

    until(in_a_pass_or_behind_it, "the worker to write")
    broker.kill()
    until(lambda: not is_alive(second), "the worker to end with its broker")

    broker, bootstrap = start()
    until(lambda: dirty_bytes(tmp_path) == 0, "the log to be clean")
    records = {}
    (_, record), *_ = confluent_records(bootstrap, [0], 4001)
    consumer = kafka.KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    while len(records) < 500 or max(records.values()) < 4000:
        for rows in consumer.poll(1000).values():
            for row in rows:
                records[row.key] = int(row.value.partition(b":")[0])
    consumer.close()
    expected = {b"key-%d" % (at % 500): at for at in range(4000)} | {b"key-0": 4000}
    assert records == expected
    assert record[0] > 0
    broker.stop()
    names = os.listdir(folder(tmp_path))
    assert [name for name in names if name.endswith((".cleaned", ".swap"))] == []
    assert verify_log(str(folder(tmp_path)), gaps=True).problems == []
