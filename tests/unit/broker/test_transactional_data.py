"""Transactional produce, markers and group offsets over the wire, with a coordinator that a test plays."""

import asyncio

import pytest

from headwater.errors import E, KafkaError
from headwater.model import CONSUMER_OFFSETS, READ_COMMITTED
from headwater.records.batch import batches
from headwater.wire.messages.fetch import FetchResponse
from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.messages.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from headwater.wire.messages.produce import ProduceResponse
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.broker.live import Live, batch, fetch_request, produce_request, until

PRODUCER = 70
LATEST = -1


class Coordinator:
    """Plays the coordinators of all transactions: says yes until it is told otherwise."""

    def __init__(self):
        self.asked = []
        self.refusal = None

    def verify(self, at, producer_id, epoch, write, done):
        self.asked.append((at, producer_id, epoch, write))
        refusal = None if self.refusal is None else KafkaError(self.refusal)
        asyncio.get_running_loop().call_soon(done, refusal)


@pytest.fixture
def coordinator(live):
    played, real = Coordinator(), live.context.verifier

    def use(verifier):
        live.context.verifier = verifier

    live.on_loop(lambda: use(played))
    yield played
    live.on_loop(lambda: use(real))


def produce(client, topic, *values, sequence=0, epoch=0, version=9, transactional=True):
    request = produce_request(
        topic,
        batch(
            *values,
            producer_id=PRODUCER,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        ),
        version=version,
    )
    request.transactional_id = "mine"
    answer = client.ask(request, ProduceResponse, version)
    return answer.responses[0].partition_responses[0]


def end(client, topic, *, commit, partition=0, epoch=0, coordinator_epoch=0, version=1, tv=0):
    request = WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=PRODUCER,
                producer_epoch=epoch,
                transaction_result=commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=tv,
                topics=[
                    WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                        name=topic, partition_indexes=[partition]
                    )
                ],
            )
        ]
    )
    answer = client.ask(request, WriteTxnMarkersResponse, version)
    assert answer.markers[0].producer_id == PRODUCER
    assert answer.markers[0].topics[0].name == topic
    return E(answer.markers[0].topics[0].partitions[0].error_code)


def committed(client, topic, offset=0):
    """The base offsets and the aborted transactions that a read_committed consumer gets."""
    request = fetch_request({(topic, 0): offset})
    request.isolation_level = READ_COMMITTED
    answer = client.ask(request, FetchResponse, 12).responses[0].partitions[0]
    assert answer.error_code == 0
    found = [header.base_offset for _, header in batches(answer.records or b"")]
    aborted = [(row.producer_id, row.first_offset) for row in answer.aborted_transactions]
    return found, aborted, answer.last_stable_offset


def latest(client, topic, isolation):
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])],
    )
    return client.ask(request, ListOffsetsResponse, 6).topics[0].partitions[0].offset


def test_records_of_a_transaction_are_stable_after_its_marker(coordinator, topic, client):
    assert produce(client, topic, b"a", b"b").base_offset == 0
    assert produce(client, topic, b"c", sequence=2).base_offset == 2
    assert len(coordinator.asked) == 1
    assert committed(client, topic) == ([], [], 0)
    assert (latest(client, topic, 0), latest(client, topic, READ_COMMITTED)) == (3, 0)
    assert end(client, topic, commit=True) is E.NONE
    assert committed(client, topic) == ([0, 2, 3], [], 4)
    assert produce(client, topic, b"d", sequence=3).base_offset == 4
    assert end(client, topic, commit=False) is E.NONE
    assert committed(client, topic, 4) == ([4, 5], [(PRODUCER, 4)], 6)
    assert latest(client, topic, READ_COMMITTED) == 6


def test_a_waiting_reader_wakes_with_the_marker(coordinator, live, topic, client):
    produce(client, topic, b"a")
    with live.client() as reader:
        request = fetch_request({(topic, 0): 0}, max_wait_ms=60_000, min_bytes=1)
        request.isolation_level = READ_COMMITTED
        number = reader.send(request, 12)
        until(lambda: live.on_loop(lambda: bool(live.context.replicas.get(topic, 0).watchers)))
        end(client, topic, commit=True)
        answer = reader.answer(FetchResponse, 12, number).responses[0].partitions[0]
    assert [header.base_offset for _, header in batches(answer.records)] == [0, 1]


@pytest.mark.parametrize(
    ("version", "said", "told"),
    [
        (10, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (11, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (12, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (11, E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS),
    ],
)
def test_a_batch_that_is_not_verified_is_refused(coordinator, topic, client, version, said, told):
    coordinator.refusal = said
    answer = produce(client, topic, b"a", version=version)
    assert answer.error_code == told
    ((_, _, _, write),) = coordinator.asked
    assert write == ("mine", version >= 12, version >= 11)
    assert latest(client, topic, 0) == 0


def test_markers_are_fenced_and_sent_to_the_leader(coordinator, topic, client):
    produce(client, topic, b"a", epoch=3)
    assert end(client, topic, commit=True, epoch=2) is E.INVALID_PRODUCER_EPOCH
    assert end(client, topic, commit=True, epoch=3, version=2, tv=2) is E.INVALID_PRODUCER_EPOCH
    assert end(client, topic, commit=True, epoch=4, version=2, tv=2, coordinator_epoch=5) is E.NONE
    assert end(client, topic, commit=True, epoch=4, coordinator_epoch=4) is (
        E.TRANSACTION_COORDINATOR_FENCED
    )
    assert end(client, "unknown", commit=True) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert client.ask(WriteTxnMarkersRequest(), WriteTxnMarkersResponse, 1).markers == []


def test_a_marker_that_is_not_committed_in_time_does_not_hold_up_the_others(
    coordinator, live, topic, client, monkeypatch
):
    produce(client, topic, b"a")
    replica, slow = live.replica(topic), []
    monkeypatch.setattr(type(replica.built), "append_marker", lambda *call: slow.append(call))
    markers = [
        WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=PRODUCER,
            topics=[
                WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=[0])
            ],
        )
        for name in (topic, "unknown")
    ]
    number = client.send(WriteTxnMarkersRequest(markers=markers), 1)
    until(lambda: slow)
    live.on_loop(lambda: live.context.purgatory.expire(1 << 62))
    answer = client.answer(WriteTxnMarkersResponse, 1, number)
    assert [row.partitions[0].error_code for row in answer.markers[0].topics] == [
        E.REQUEST_TIMED_OUT,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    live.on_loop(slow[0][2].complete)
    monkeypatch.undo()
    assert end(client, topic, commit=True) is E.NONE


# -- offsets


@pytest.fixture
def group(live, client):
    """A group whose coordinator is ready."""
    client.ask(FindCoordinatorRequest(coordinator_keys=["any"]), FindCoordinatorResponse, 4)
    until(lambda: fetch_offset(client, "any", "any")[0] is E.NONE)
    return f"group-{id(client)}"


def commit_offset(
    client, group, topic, offset, *, version=3, member="", generation=-1, producer_id=PRODUCER
):
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset
    )
    body = TxnOffsetCommitRequest(
        transactional_id="mine",
        group_id=group,
        producer_id=producer_id,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])
        ],
    )
    if version >= 3:
        body.member_id, body.generation_id = member, generation
    answer = client.ask(body, TxnOffsetCommitResponse, version)
    return E(answer.topics[0].partitions[0].error_code)


def fetch_offset(client, group, topic, *, stable=False):
    body = OffsetFetchRequest(
        require_stable=stable,
        groups=[
            OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id=group,
                topics=[
                    OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
                ],
            )
        ],
    )
    found = client.ask(body, OffsetFetchResponse, 9).groups[0]
    if found.error_code:
        return E(found.error_code), -1
    partition = found.topics[0].partitions[0]
    return E(partition.error_code), partition.committed_offset


@pytest.mark.parametrize("version", [0, 2, 3, 4, 5])
def test_offsets_of_a_transaction_are_pending_until_its_marker(
    coordinator, topic, client, group, version
):
    assert commit_offset(client, group, topic, 5, version=version) is E.NONE
    ((at, producer_id, _, write),) = coordinator.asked
    assert (at.topic, producer_id) == (CONSUMER_OFFSETS, PRODUCER)
    assert write == ("mine", version >= 5, version >= 4)
    assert fetch_offset(client, group, topic) == (E.NONE, -1)
    assert fetch_offset(client, group, topic, stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert commit_offset(client, group, topic, 7, version=version) is E.NONE
    assert len(coordinator.asked) == 1
    assert end(client, CONSUMER_OFFSETS, commit=True) is E.NONE
    assert fetch_offset(client, group, topic, stable=True) == (E.NONE, 7)
    commit_offset(client, group, topic, 9, version=version)
    assert end(client, CONSUMER_OFFSETS, commit=False) is E.NONE
    assert fetch_offset(client, group, topic, stable=True) == (E.NONE, 7)


def test_offsets_that_may_not_be_committed_are_refused(coordinator, topic, client, group):
    assert commit_offset(client, group, topic, 5, member="gone", generation=3) is (
        E.ILLEGAL_GENERATION
    )
    assert commit_offset(client, group, "unknown", 5) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert commit_offset(client, "", topic, 5) is E.INVALID_GROUP_ID
    coordinator.refusal = E.NETWORK_EXCEPTION
    end(client, CONSUMER_OFFSETS, commit=False)
    assert commit_offset(client, group, topic, 5) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert commit_offset(client, group, topic, 5, version=1) is E.COORDINATOR_NOT_AVAILABLE
    coordinator.refusal = E.INVALID_PRODUCER_EPOCH
    assert commit_offset(client, group, topic, 5) is E.INVALID_PRODUCER_EPOCH
    assert fetch_offset(client, group, topic, stable=True) == (E.NONE, -1)


def test_the_first_offsets_of_a_broker_are_those_of_a_transaction(tmp_path):
    """The producer adds its group's offsets before anybody asked for the group's coordinator."""

    def answered(ask, *retried):
        answers = []
        until(lambda: answers.append(ask()) or answers[-1].error_code not in retried)
        assert answers[-1].error_code == 0, answers[-1]
        return answers[-1]

    with Live(tmp_path) as live, live.client() as client:
        live.create("read")
        find = FindCoordinatorRequest(key="mine", key_type=1)
        answered(lambda: client.ask(find, FindCoordinatorResponse, 3), 15)
        init = InitProducerIdRequest(transactional_id="mine", transaction_timeout_ms=60_000)
        not_ready = (14, 15, 16)
        who = answered(lambda: client.ask(init, InitProducerIdResponse, 4), *not_ready)
        me = {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
        add = AddOffsetsToTxnRequest(transactional_id="mine", group_id="g", **me)
        answered(lambda: client.ask(add, AddOffsetsToTxnResponse, 3))
        find = FindCoordinatorRequest(key="g", key_type=0)
        answered(lambda: client.ask(find, FindCoordinatorResponse, 3), 15)
        until(
            lambda: (
                commit_offset(client, "g", "read", 5, producer_id=who.producer_id) not in not_ready
            )
        )
        assert fetch_offset(client, "g", "read", stable=True)[0] is E.UNSTABLE_OFFSET_COMMIT
        end = EndTxnRequest(transactional_id="mine", committed=True, **me)
        answered(lambda: client.ask(end, EndTxnResponse, 3))
        until(lambda: fetch_offset(client, "g", "read", stable=True) == (E.NONE, 5))
