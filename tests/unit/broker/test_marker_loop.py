"""Markers reach the leaders of their partitions, until the coordinator can complete the transaction."""

from types import SimpleNamespace

import pytest

from headwater.broker.marker_loop import (
    FENCED_RETRY_S,
    MARKERS_PER_REQUEST,
    REQUESTS_IN_FLIGHT,
    RESULTS_PER_TURN,
    RETRY_S,
    MarkerLoop,
)
from headwater.coordination.transactions.commands import PreparedTransaction, ProducerIdentity
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from headwater.wire.messages.transactions import WriteTxnMarkersResponse
from tests.unit.coordination.runtime_harness import Clock

HERE = 1


class Stage:
    """A broker with other brokers, whose answers a test gives by hand."""

    def __init__(self):
        self.clock = Clock()
        self.leaders = {}
        self.sent = []  # (broker, request, on_reply)
        self.completed = []  # (prepared, reply)
        self.coordinated = {}
        self.refusal = None
        self.context = SimpleNamespace(
            node_id=HERE,
            serving=True,
            metadata=SimpleNamespace(partition=self.partition, brokers={HERE, 2, 3}),
            transactions=self,
        )
        self.loop = MarkerLoop(self.context, self.connect, self.write_here, self.clock.call_later)

    # -- what the loop calls

    def partition(self, topic, index):
        leader = self.leaders.get((topic, index))
        return None if leader is None else SimpleNamespace(leader=leader)

    def connect(self, broker, purpose):
        def send(request, answer, on_reply):
            self.sent.append((broker, request, on_reply))

        def close():
            pending = [row for row in self.sent if row[0] == broker]
            self.sent = [row for row in self.sent if row[0] != broker]
            for _, _, on_reply in pending:
                on_reply(KafkaError(E.NETWORK_EXCEPTION))

        return SimpleNamespace(send=send, close=close)

    def write_here(self, request, on_reply):
        self.sent.append((HERE, request, on_reply))

    def coordinates(self, key, epoch):
        return self.coordinated.get(key) == epoch

    def submit(self, key, command, prepared, reply):
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        self.completed.append((prepared, reply))

    # -- what a test does

    def prepare(self, name="t", producer=100, epoch=7, version=0, **leaders):
        """A transaction commits in partitions 0 of topics, led by the brokers given."""
        for topic, leader in leaders.items():
            self.leaders[topic, 0] = leader
        self.coordinated[name] = epoch
        partitions = frozenset(TopicPartition(topic, 0) for topic in leaders)
        prepared = PreparedTransaction(
            name, ProducerIdentity(producer, 3), True, partitions, epoch, version
        )
        self.loop.prepared(prepared)
        self.clock.advance(0)
        return prepared

    def answer(self, place=0, error=E.NONE, **errors):
        """Answer a request; errors by topic."""
        _, request, on_reply = self.sent.pop(place)
        response = WriteTxnMarkersResponse()
        for marker in request.markers:
            topics = [
                WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                            partition_index=index, error_code=errors.get(topic.name, error)
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ]
            response.markers.append(
                WriteTxnMarkersResponse.WritableTxnMarkerResult(
                    producer_id=marker.producer_id, topics=topics
                )
            )
        on_reply(response)

    def written(self):
        return [prepared for prepared, _ in self.completed]

    def brokers(self):
        return sorted(broker for broker, _, _ in self.sent)

    def wait(self):
        self.clock.advance(round(RETRY_S * 1000))
        self.clock.advance(0)


@pytest.fixture
def stage():
    return Stage()


def test_each_leader_gets_its_markers_and_the_last_answer_completes(stage):
    prepared = stage.prepare(version=2, a=HERE, b=2, c=2)
    assert stage.brokers() == [HERE, 2]
    by_broker = {broker: request.markers for broker, request, _ in stage.sent}
    (marker,) = by_broker[2]
    assert sorted(topic.name for topic in marker.topics) == ["b", "c"]
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (100, 3, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (7, 2)
    stage.answer()
    assert stage.written() == []
    stage.answer()
    assert stage.written() == [prepared]


def test_many_transactions_are_not_completed_in_one_round_of_the_loop(stage):
    count = 2 * RESULTS_PER_TURN + 1
    stage.leaders["a", 0] = 2
    at = frozenset({TopicPartition("a", 0)})
    for number in range(count):
        stage.coordinated[str(number)] = 7
        producer = ProducerIdentity(number, 0)
        stage.loop.prepared(PreparedTransaction(str(number), producer, True, at, 7, 0))
    stage.clock.advance(0)
    stage.answer()
    assert len(stage.completed) == RESULTS_PER_TURN
    stage.clock.timers.pop(0).call()
    assert len(stage.completed) == 2 * RESULTS_PER_TURN
    stage.clock.advance(0)
    assert sorted(int(it.transactional_id) for it in stage.written()) == list(range(count))


def test_the_markers_of_several_transactions_share_a_request(stage):
    stage.leaders["a", 0] = 2
    for number in range(3):
        stage.coordinated[str(number)] = 7
        at = frozenset({TopicPartition("a", 0)})
        producer = ProducerIdentity(number, 0)
        stage.loop.prepared(PreparedTransaction(str(number), producer, True, at, 7, 0))
    stage.clock.advance(0)
    ((_, request, _),) = stage.sent
    assert [marker.producer_id for marker in request.markers] == [0, 1, 2]
    stage.answer()
    assert len(stage.completed) == 3


def test_a_transaction_without_partitions_completes_at_once(stage):
    assert stage.written() == [] != [stage.prepare()] == stage.written()


@pytest.mark.parametrize(
    "error",
    [
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.KAFKA_STORAGE_ERROR,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.REQUEST_TIMED_OUT,
    ],
)
def test_a_refused_marker_goes_to_the_leader_of_that_time(stage, error):
    prepared = stage.prepare(a=2, b=2)
    stage.answer(b=error)
    stage.leaders["b", 0] = 3
    assert stage.sent == []
    stage.wait()
    ((broker, request, _),) = stage.sent
    assert broker == 3
    assert [topic.name for topic in request.markers[0].topics] == ["b"]
    stage.answer()
    assert stage.written() == [prepared]


def test_a_marker_that_a_newer_coordinator_fenced_is_sent_again_rarely(stage, caplog):
    prepared = stage.prepare(a=2)
    stage.answer(a=E.TRANSACTION_COORDINATOR_FENCED)
    stage.wait()
    assert stage.sent == []
    assert "a-0 refuses the marker of t" in caplog.text
    stage.clock.advance(round(FENCED_RETRY_S * 1000))
    stage.wait()
    stage.answer()
    assert stage.written() == [prepared]


def test_a_fenced_coordinator_gives_its_transactions_up(stage):
    stage.prepare(a=2)
    stage.answer(a=E.TRANSACTION_COORDINATOR_FENCED)
    stage.coordinated["t"] = 8
    stage.clock.advance(round(FENCED_RETRY_S * 1000))
    stage.wait()
    assert stage.sent == []


def test_markers_are_sent_again_if_the_broker_is_gone(stage):
    prepared = stage.prepare(a=2)
    _, _, on_reply = stage.sent.pop()
    on_reply(KafkaError(E.BROKER_NOT_AVAILABLE))
    stage.wait()
    stage.answer()
    assert stage.written() == [prepared]


def test_markers_for_a_machine_without_power_go_to_the_next_leader_at_once(stage):
    """It never answers, and its connection does not break: only the controller knows."""
    prepared = stage.prepare(a=2, b=3)
    stage.loop.brokers_changed()
    stage.wait()
    assert stage.brokers() == [2, 3]
    stage.context.metadata.brokers = {HERE, 3}
    stage.leaders["a", 0] = 3
    stage.loop.brokers_changed()
    stage.wait()
    assert stage.brokers() == [3, 3]
    stage.answer()
    stage.answer()
    assert stage.written() == [prepared]


def test_a_partition_without_a_leader_waits_for_one(stage):
    prepared = stage.prepare(a=-1)
    stage.wait()
    assert stage.sent == []
    stage.leaders["a", 0] = 2
    stage.wait()
    stage.answer()
    assert stage.written() == [prepared]


def test_a_deleted_topic_needs_no_marker(stage):
    prepared = stage.prepare(a=2, b=2)
    stage.answer(a=E.UNKNOWN_TOPIC_OR_PARTITION)
    del stage.leaders["a", 0]
    stage.wait()
    assert stage.written() == [prepared]


def test_a_broker_that_starts_does_not_take_unknown_topics_for_deleted(stage):
    stage.context.serving = False
    at = frozenset({TopicPartition("a", 0)})
    prepared = PreparedTransaction("t", ProducerIdentity(1, 0), True, at, 7, 0)
    stage.coordinated["t"] = 7
    stage.loop.prepared(prepared)
    stage.wait()
    assert stage.written() == []
    stage.leaders["a", 0] = 2
    stage.context.serving = True
    stage.wait()
    stage.answer()
    assert stage.written() == [prepared]


def test_a_newer_epoch_in_the_partition_means_that_the_transaction_ended_there(stage):
    prepared = stage.prepare(a=2)
    stage.answer(a=E.INVALID_PRODUCER_EPOCH)
    assert stage.written() == [prepared]


def test_a_broker_that_no_longer_coordinates_sends_nothing_more(stage):
    stage.prepare(a=2)
    stage.answer(a=E.NOT_LEADER_OR_FOLLOWER)
    stage.coordinated["t"] = 8
    stage.wait()
    assert stage.sent == []
    assert stage.written() == []


def test_a_transaction_that_was_loaded_again_replaces_the_earlier_one(stage):
    stage.prepare(a=2)
    again = stage.prepare(epoch=8, a=2)
    stage.answer()
    assert stage.written() == [], "an answer to the earlier coordinator"
    stage.answer()
    assert stage.written() == [again]


def test_completing_is_tried_again_while_the_topic_of_the_coordinator_refuses_it(stage):
    prepared = stage.prepare(a=2)
    stage.answer()
    _, reply = stage.completed.pop()
    reply(KafkaError(E.COORDINATOR_NOT_AVAILABLE))
    stage.wait()
    assert stage.written() == [prepared]
    stage.completed.pop()[1](E.NONE)
    stage.wait()
    assert stage.written() == []


def test_completing_is_left_to_the_next_coordinator(stage):
    stage.prepare(a=2)
    stage.refusal = E.NOT_COORDINATOR
    stage.answer()
    stage.refusal = None
    stage.wait()
    assert stage.written() == []


def test_an_outcome_that_was_not_committed_writes_nothing(stage):
    stage.loop.prepared(KafkaError(E.NOT_COORDINATOR))
    stage.wait()
    assert stage.sent == []


def test_large_transactions_are_sent_in_pieces_and_a_broker_gets_few_at_a_time(stage):
    count = (REQUESTS_IN_FLIGHT + 1) * MARKERS_PER_REQUEST
    partitions = frozenset(TopicPartition("a", index) for index in range(count))
    stage.leaders |= dict.fromkeys(partitions, 2)
    prepared = PreparedTransaction("t", ProducerIdentity(1, 0), True, partitions, 7, 0)
    stage.loop.prepared(prepared)
    stage.clock.advance(0)
    assert len(stage.sent) == REQUESTS_IN_FLIGHT
    for _ in range(REQUESTS_IN_FLIGHT + 1):
        assert stage.written() == []
        stage.answer()
        stage.clock.advance(0)
    assert stage.written() == [prepared]


def test_a_closed_loop_ignores_answers(stage):
    stage.prepare(a=2)
    stage.loop.close()
    stage.answer()
    stage.prepare(b=2)
    assert stage.sent == []
    assert stage.written() == []


@pytest.mark.parametrize("written", range(4))
def test_a_coordinator_that_dies_between_its_markers_leaves_them_to_the_next_one(written):
    old, new = Stage(), Stage()
    led = {"a": HERE, "b": 2, "c": 3}
    stored = {topic: [] for topic in led}

    def write_next(stage):
        _, request, _ = stage.sent[0]
        (marker,) = request.markers
        for topic in marker.topics:
            stored[topic.name].append((marker.coordinator_epoch, marker.transaction_result))
        stage.answer()

    first = old.prepare(epoch=7, **led)
    for _ in range(written):
        write_next(old)
    old.loop.close()
    old.wait()
    assert old.written() == ([first] if written == len(led) else []), "nothing of it is stored"
    assert sum(map(len, stored.values())) == written
    again = new.prepare(epoch=8, **led)
    while new.sent:
        assert new.written() == []
        write_next(new)
    assert new.written() == [again]
    assert {tuple(rows[-1:]) for rows in stored.values()} == {((8, True),)}
