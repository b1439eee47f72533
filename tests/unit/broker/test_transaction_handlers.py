"""Transactions on the wire of one broker: what the coordinator answers, stores and does in time."""

import time

import pytest

from headwater.errors import E
from headwater.model import (
    TRANSACTION_STATE,
    TopicPartition,
)
from headwater.security.principals import BROKER, Principal
from headwater.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from headwater.wire.primitives import LONGEST_STRING
from tests.unit.broker.live import WAIT_S, Closed, Live

SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def live(data_dir):
    with Live(data_dir, SETTINGS) as broker, broker.client() as client:
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
        (found,) = client.ask(find, FindCoordinatorResponse, 6).coordinators
        assert found.error_code == 0
        yield broker


@pytest.fixture
def name(topic):
    """A transactional id of this test's own."""
    return f"id-{topic}"


def init(client, name, version=5, timeout_ms=60_000):
    """A new instance; the answer once the earlier one's transaction is over."""
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    give_up = time.monotonic() + WAIT_S
    while True:
        answer = client.ask(request, InitProducerIdResponse, version)
        loading = E.COORDINATOR_LOAD_IN_PROGRESS, E.CONCURRENT_TRANSACTIONS
        if answer.error_code not in loading or time.monotonic() > give_up:
            return answer


def add(client, name, who, topic, version=3):
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])
        ],
    )
    answer = client.ask(request, AddPartitionsToTxnResponse, version)
    return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code


def end(client, name, who, version=4, commit=True):
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        committed=commit,
    )
    return client.ask(request, EndTxnResponse, version)


def described(client, name):
    request = DescribeTransactionsRequest(transactional_ids=[name])
    return client.ask(request, DescribeTransactionsResponse, 0).transaction_states[0]


def wait_for(client, name, state):
    give_up = time.monotonic() + WAIT_S
    while (found := described(client, name)).transaction_state != state:
        assert time.monotonic() < give_up, found
    return found


def test_the_topic_of_the_coordinator_has_its_settings(live, client):
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=TRANSACTION_STATE
    )
    answer = client.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, 4)
    configs = {row.name: row.value for row in answer.results[0].configs}
    assert configs["cleanup.policy"] == "compact"
    assert configs["compression.type"] == "uncompressed"
    assert configs["min.insync.replicas"] == "2"
    assert configs["unclean.leader.election.enable"] == "false"
    assert live.on_loop(lambda: live.context.metadata.partition_count(TRANSACTION_STATE)) == 2


@pytest.mark.parametrize("version", range(5))
def test_a_transaction_in_every_version_without_bumps(live, client, topic, name, version):
    who = init(client, name, version)
    assert add(client, name, who, topic, min(version, 3)) == E.NONE
    assert end(client, name, who, version).error_code == E.NONE
    wait_for(client, name, "CompleteCommit")
    assert live.replica(topic).log.log_end_offset == 1, "the marker"
    assert add(client, name, who, topic, min(version, 3)) == E.NONE


def test_an_id_that_no_record_can_have_ends_the_connection(client):
    """A hash of all of it would hold the loop: a request may have a hundred million characters."""
    assert init(client, "x" * LONGEST_STRING).error_code == E.NONE
    assert init(client, "").error_code == E.INVALID_REQUEST
    with pytest.raises(Closed):
        init(client, "x" * (LONGEST_STRING + 1))


def test_a_transaction_with_a_bump(live, client, topic, name):
    who = init(client, name)
    assert add(client, name, who, topic) == E.NONE
    ended = end(client, name, who, 5)
    assert (ended.error_code, ended.producer_id) == (E.NONE, who.producer_id)
    assert ended.producer_epoch == who.producer_epoch + 1
    wait_for(client, name, "CompleteCommit")
    again = end(client, name, who, 5)
    assert (again.error_code, again.producer_epoch) == (E.NONE, ended.producer_epoch)
    assert add(client, name, ended, topic) == E.NONE


def test_older_clients_know_another_word_for_fenced(client, topic, name):
    old, _ = init(client, name), init(client, name)
    for version in range(4):
        fenced = E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED
        assert add(client, name, old, topic, version) == fenced
        assert end(client, name, old, version).error_code == fenced
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=old.producer_id, group_id="g"
        )
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        client.ask(find, FindCoordinatorResponse, 6)
        assert client.ask(request, AddOffsetsToTxnResponse, version).error_code == fenced
    for version in (3, 4):
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=60_000,
            producer_id=old.producer_id,
            producer_epoch=old.producer_epoch,
        )
        fenced = E.INVALID_PRODUCER_EPOCH if version < 4 else E.PRODUCER_FENCED
        assert client.ask(request, InitProducerIdResponse, version).error_code == fenced


def test_only_brokers_add_the_partitions_of_others(client, topic, name):
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(transactional_id=name)
    request = AddPartitionsToTxnRequest(transactions=[transaction])
    for version in (4, 5):
        answer = client.ask(request, AddPartitionsToTxnResponse, version)
        assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED


def test_brokers_add_and_verify_in_batches(live, client, topic, name):
    who = init(client, name)

    def transaction(verify_only, transactional_id=name, to=topic):
        return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=to, partitions=[0])],
        )

    live.log_in(client, Principal(BROKER, "7"))

    def ask(*transactions):
        request = AddPartitionsToTxnRequest(transactions=list(transactions))
        answer = client.ask(request, AddPartitionsToTxnResponse, 5)
        return [
            result.topic_results[0].results_by_partition[0].partition_error_code
            for result in answer.results_by_transaction
        ]

    assert ask(transaction(True)) == [E.TRANSACTION_ABORTABLE]
    assert ask(transaction(False), transaction(True, "nobody"), transaction(False, to="no")) == [
        E.NONE,
        E.INVALID_PRODUCER_ID_MAPPING,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert ask(transaction(True)) == [E.NONE]
    assert ask(transaction(True, "")) == [E.INVALID_REQUEST]
    assert ask() == []


def test_a_transaction_times_out(live, client, topic, name):
    who = init(client, name, timeout_ms=1)
    assert add(client, name, who, topic) == E.NONE
    wait_for(client, name, "CompleteAbort")
    assert live.replica(topic).log.log_end_offset == 1, "the marker"
    assert end(client, name, who).error_code == E.PRODUCER_FENCED
    assert add(client, name, who, topic) == E.PRODUCER_FENCED
    assert init(client, name).producer_epoch > who.producer_epoch


def test_offsets_of_a_group_join_the_transaction(live, client, name):
    who = init(client, name)
    request = AddOffsetsToTxnRequest(
        transactional_id=name,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        group_id="g",
    )
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    client.ask(find, FindCoordinatorResponse, 6)
    assert client.ask(request, AddOffsetsToTxnResponse, 4).error_code == E.NONE
    (topic,) = described(client, name).topics
    assert (topic.topic, topic.partitions) == ("__consumer_offsets", [0])


class HidesIds:
    """Says no to transactional ids."""

    def authorize(self, principal, host, operation, resource_type, name):
        return resource_type.name != "TRANSACTIONAL_ID"

    def reason(self, *question):
        return "ids are hidden"


def test_descriptions_show_what_the_client_may_see(live, client, topic, name):
    who = init(client, name)
    add(client, name, who, topic)
    found = described(client, name)
    assert found.transaction_state == "Ongoing"
    assert (found.producer_id, found.producer_epoch) == (who.producer_id, who.producer_epoch)
    assert [(row.topic, row.partitions) for row in found.topics] == [(topic, [0])]
    assert described(client, "nobody").error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert described(client, "").error_code == E.INVALID_REQUEST

    def listed(**filters):
        answer = client.ask(ListTransactionsRequest(**filters), ListTransactionsResponse, 2)
        assert answer.error_code == 0
        return answer

    rows = listed(state_filters=["Ongoing", "Odd"], producer_id_filters=[who.producer_id])
    assert rows.unknown_state_filters == ["Odd"]
    assert [(row.transactional_id, row.transaction_state) for row in rows.transaction_states] == [
        (name, "Ongoing")
    ]
    assert len(listed().transaction_states) >= 1
    by_name = listed(transactional_id_pattern=f"{name[:-1]}.").transaction_states
    assert [row.transactional_id for row in by_name] == [name]
    assert listed(transactional_id_pattern=name[:-1]).transaction_states == []
    bad = ListTransactionsRequest(transactional_id_pattern="(")
    refused = client.ask(bad, ListTransactionsResponse, 2)
    assert refused.error_code == E.INVALID_REGULAR_EXPRESSION
    before = live.context.authorizer
    live.context.authorizer = HidesIds()
    try:
        assert listed().transaction_states == []
        assert described(client, name).error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    finally:
        live.context.authorizer = before


def test_state_is_loaded_again_and_prepared_transactions_are_completed(live, client, topic, name):
    """The leader of the partition with the state is elected again between prepare and markers."""
    who = init(client, name)
    assert add(client, name, who, topic) == E.NONE
    context = live.context
    markers, write_here = context.markers, context.markers._write_here
    live.on_loop(lambda: setattr(markers, "_write_here", lambda request, done: None))
    assert end(client, name, who).error_code == E.NONE
    assert described(client, name).transaction_state == "PrepareCommit"

    def elect_again():
        markers._write_here = write_here
        at = TopicPartition(TRANSACTION_STATE, context.transactions.partition_of(name))
        context.coordinators.elected(at, 7)

    live.on_loop(elect_again)
    wait_for(client, name, "CompleteCommit")
    assert live.replica(topic).log.log_end_offset == 1
