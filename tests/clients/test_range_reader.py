"""Ranges of offsets as the tasks of a Spark source read them, without Spark, on both brokers."""

import multiprocessing
import socket
import threading

import confluent_kafka
import pytest

import headwater
from headwater.client.blocking_connection import BlockingConnection
from headwater.client.errors import TimedOutError
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from headwater.pipelines.topic_source.broker_client_loop import broker_client
from headwater.pipelines.topic_source.offsets import OffsetRange
from headwater.pipelines.topic_source.range_reader import DataLossError, RangeReader
from headwater.testing import Broker

FEW = {"max_partition_fetch_bytes": "700"}
"""Answers of a batch or two."""


def read_range(bootstrap, topic, start, end, *, timeout_ms=30_000, **client):
    reader = RangeReader(
        broker_client({"bootstrap_servers": bootstrap, **client}),
        headers=True,
        fail_on_data_loss=True,
        timeout_ms=timeout_ms,
    )
    return reader.read(OffsetRange(topic, 0, start, end))


def offsets(batches):
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.fixture
def filled(broker, lane):
    """A thousand records in batches of a few, each with its number."""
    with headwater.Producer(bootstrap_servers=broker.bootstrap, batch_size=500) as producer:
        for number in range(1000):
            headers = [("n", b"%d" % number)] if number % 7 == 0 else ()
            producer.send(lane, b"%d" % number, key=b"k" if number % 2 else None, headers=headers)
    return lane


@pytest.mark.parametrize(("start", "end"), [(0, 1000), (0, 1), (999, 1000), (137, 642), (5, 5)])
def test_a_range_holds_its_offsets_and_no_others(bootstrap, filled, start, end):
    batches = list(read_range(bootstrap, filled, start, end))
    assert offsets(batches) == list(range(start, end))
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert values == [b"%d" % number for number in range(start, end)]


def test_small_answers_are_asked_for_one_after_the_other(bootstrap, filled):
    assert offsets(read_range(bootstrap, filled, 3, 997, **FEW)) == list(range(3, 997))


def test_connections_serve_again(bootstrap, filled, monkeypatch):
    list(read_range(bootstrap, filled, 0, 1000))

    def refused(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "create_connection", refused)
    assert len(offsets(read_range(bootstrap, filled, 0, 1000))) == 1000


def test_a_range_left_half_way_leaves_no_answer_behind(bootstrap, filled):
    for _ in range(3):
        reading = read_range(bootstrap, filled, 0, 1000, **FEW)
        next(reading)
        reading.close()
    assert len(offsets(read_range(bootstrap, filled, 0, 1000))) == 1000


def test_a_child_process_reads_over_connections_of_its_own(bootstrap, filled):
    list(read_range(bootstrap, filled, 0, 1000))

    def work():
        assert offsets(read_range(bootstrap, filled, 0, 1000)) == list(range(1000))

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert offsets(read_range(bootstrap, filled, 0, 1000)) == list(range(1000))


def test_threads_may_read_side_by_side(bootstrap, filled):
    found = []

    def read():
        found.append(offsets(read_range(bootstrap, filled, 0, 1000)))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(1000))] * 4


def test_a_range_beyond_the_end_waits_and_tells_what_it_waited_for(bootstrap, filled):
    reading = read_range(bootstrap, filled, 990, 1010, timeout_ms=300, fetch_max_wait_ms="50")
    assert offsets([next(reading)]) == list(range(990, 1000))
    with pytest.raises(TimedOutError, match=r"from offset 1000 on: .* sent no records"):
        next(reading)


def test_what_comes_while_a_range_waits_is_read(broker, filled):
    reading = read_range(broker.bootstrap, filled, 1000, 1001)
    later = threading.Timer(0.2, lambda: broker.fill(filled, [b"late"]))
    later.start()
    assert offsets(reading) == [1000]
    later.join()


def test_a_range_that_was_deleted_is_an_error(broker, filled):
    with headwater.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(filled, 0): 500})
    with pytest.raises(
        DataLossError, match="offsets 100 to 499 were deleted before they were read"
    ):
        list(read_range(broker.bootstrap, filled, 100, 600))


def test_a_topic_that_is_not_there_is_lost(bootstrap):
    with pytest.raises(DataLossError, match="the topic was deleted"):
        list(read_range(bootstrap, "nowhere", 0, 1, request_timeout_ms="500"))


def test_aborted_transactions_are_left_out_where_asked(broker):
    topic = broker.topic()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": topic}
    )
    producer.init_transactions(30)
    for value in (b"kept", b"dropped", b"kept too"):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        producer.abort_transaction(30) if value == b"dropped" else producer.commit_transaction(30)
    # A transaction is a record and a marker.
    everything = read_range(broker.bootstrap, topic, 0, 6)
    assert offsets(everything) == [0, 2, 4]
    committed = read_range(broker.bootstrap, topic, 0, 6, isolation_level="read_committed")
    assert offsets(committed) == [0, 4]


def test_a_listener_that_never_answers_is_given_up():
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(TimedOutError, match="did not answer"),
    ):
        BlockingConnection(*silent.getsockname(), "test", 0.1)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", "closed the connection"),
        (b"\x00\x00", "closed the connection"),
        ((100).to_bytes(4) + b"half", "closed the connection"),
    ],
)
def test_an_answer_that_is_cut_short_is_told(said, error):
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer_once, args=(server, said))
        thread.start()
        with pytest.raises(KafkaError, match=error):
            BlockingConnection(*server.getsockname(), "test", 5)
        thread.join()


@pytest.mark.parametrize("said", [b"\x00\x00", (100).to_bytes(4) + b"half"])
def test_an_answer_that_stops_half_way_is_given_up(said):
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer_once, args=(server, said, done))
        thread.start()
        with pytest.raises(TimedOutError, match="did not answer"):
            BlockingConnection(*server.getsockname(), "test", 0.1)
        done.set()
        thread.join()


def _answer_once(server, said, done=None):
    """Say this to every client and close: at once, or when asked to."""
    peer, _ = server.accept()
    with peer:
        peer.recv(1000)
        peer.sendall(said)
        if done is not None:
            done.wait(60)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", (2**31 - 1).to_bytes(4)])
def test_a_listener_that_is_no_broker_is_named(said):
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer_once, args=(server, said))
        thread.start()
        with pytest.raises(KafkaError, match="is it a Kafka broker"):
            BlockingConnection(*server.getsockname(), "test", 5)
        thread.join()


def test_a_broker_that_restarts_is_waited_for() -> None:
    with Broker({"log.segment.bytes": "65536"}, subprocess=True) as broker:
        broker.create_topic("t")
        with headwater.Producer(bootstrap_servers=broker.bootstrap, batch_size=500) as producer:
            producer.send_many("t", [b"%d" % number for number in range(1000)])
        reading = read_range(broker.bootstrap, "t", 0, 1000, **FEW)
        first = offsets([next(reading)])
        broker.restart()
        assert first + offsets(reading) == list(range(1000))
