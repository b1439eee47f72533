"""The commands of a transaction shard: who is fenced, who waits, and what ends how."""

import pytest

from headwater.coordination.transactions.commands import ListTransactions, ProducerIdentity
from headwater.coordination.transactions.metadata import (
    FENCING_EPOCH,
    LAST_EPOCH,
    TransactionMetadata,
)
from headwater.coordination.transactions.settings import TransactionSettings
from headwater.coordination.transactions.shard import (
    EXPIRED_PER_TURN,
    WAIT_FOR_MARKERS_MS,
    TransactionShard,
)
from headwater.coordination.transactions.states import TransactionState
from headwater.errors import E
from headwater.model import TopicPartition
from tests.unit.coordination.transaction_driver import TIMEOUT_MS, Driver, as_stored, partitions

S = TransactionState
YEAR_MS = 365 * 86_400_000


@pytest.fixture
def driver():
    return Driver()


def begun(driver, version=0, name="t"):
    """A producer with an ongoing transaction on one partition."""
    producer = driver.init(name).producer
    assert driver.add(producer, "a", name=name, version=version) is E.NONE
    return producer


def at_epoch(driver, epoch, state=S.EMPTY, name="t"):
    """A producer that has come to an epoch, without a step for each."""
    open_in = partitions("a") if state is S.ONGOING else frozenset()
    version = 0 if state is S.EMPTY else 2
    stored = TransactionMetadata(
        driver.new_id(), epoch, TIMEOUT_MS, state, open_in, 0, 0, client_version=version
    )
    producer = driver.store(stored, name)
    driver.restart()
    return producer


def bumped(producer, by=1):
    return producer._replace(epoch=producer.epoch + by)


# -- InitProducerId


def test_the_first_producer_gets_a_new_id_and_epoch_0(driver):
    assert driver.init().producer == (101, 0)
    assert driver.known().state is S.EMPTY


def test_a_second_instance_gets_the_next_epoch_and_fences_the_first(driver):
    first = driver.init().producer
    second = driver.init().producer
    assert second == bumped(first)
    assert driver.add(first, "a") is E.PRODUCER_FENCED
    assert driver.add(second, "a") is E.NONE


@pytest.mark.parametrize(("server_version", "marker_version"), [(1, 0), (2, 2)])
def test_a_second_instance_aborts_what_the_first_left_open(server_version, marker_version):
    driver = Driver(TransactionSettings(server_version=server_version))
    first = begun(driver)
    assert driver.init().error is E.CONCURRENT_TRANSACTIONS
    (prepared,) = driver.prepared
    assert not prepared.commit
    assert prepared.producer == bumped(first)
    assert prepared.transaction_version == marker_version
    assert driver.init().error is E.CONCURRENT_TRANSACTIONS, "until the markers are written"
    assert driver.end(first).error is E.PRODUCER_FENCED
    assert driver.write_markers() == [E.NONE]
    assert driver.init().producer == bumped(first, 2)


def test_a_producer_bumps_its_own_epoch_and_may_retry(driver):
    first = driver.init().producer
    second = driver.init(expected=first).producer
    assert second == bumped(first)
    assert driver.init(expected=first).producer == second, "a retry"
    assert driver.init(expected=second).producer == bumped(first, 2)
    assert driver.init(expected=first).error is E.PRODUCER_FENCED
    other = ProducerIdentity(7, 0)
    assert driver.init(expected=other).error is E.PRODUCER_FENCED


def test_a_new_instance_cannot_be_fenced_by_a_retry_of_the_old_one(driver):
    first = driver.init().producer
    second = driver.init().producer
    assert driver.init(expected=first).error is E.PRODUCER_FENCED
    assert driver.add(second, "a") is E.NONE


def test_a_producer_gets_a_new_id_when_its_epochs_are_used_up(driver):
    first = at_epoch(driver, LAST_EPOCH - 1)
    last = driver.init(expected=first).producer
    assert last == bumped(first)
    rotated = driver.init(expected=last).producer
    assert rotated.producer_id != first.producer_id
    assert rotated.epoch == 0
    assert driver.init(expected=last).producer == rotated, "a retry"


def test_an_id_that_is_unknown_takes_what_the_producer_expected_for_new(driver):
    assert driver.init(expected=ProducerIdentity(7, 3)).producer == (101, 0)


# -- partitions


def test_partitions_are_added_only_by_the_current_producer(driver):
    producer = driver.init().producer
    assert driver.add(producer, "a", name="other") is E.INVALID_PRODUCER_ID_MAPPING
    assert driver.add(producer._replace(producer_id=7), "a") is E.INVALID_PRODUCER_ID_MAPPING
    assert driver.add(bumped(producer), "a") is E.PRODUCER_FENCED
    assert driver.known().state is S.EMPTY
    assert driver.add(producer, "a") is E.NONE
    assert driver.add(producer, "b", "a") is E.NONE
    stored = len(driver.log)
    assert driver.add(producer, "a") is E.NONE
    assert len(driver.log) == stored, "nothing changed"
    assert driver.known().partitions == partitions("a", "b")


def test_leaders_learn_which_partitions_are_in_the_transaction(driver):
    producer = begun(driver)
    here, missing = TopicPartition("a", 0), TopicPartition("b", 0)
    assert driver.verify(producer, "a", "b") == {here: E.NONE, missing: E.TRANSACTION_ABORTABLE}
    assert driver.verify(bumped(producer), "a") == {here: E.PRODUCER_FENCED}
    assert driver.verify(producer, "a", name="x") == {here: E.INVALID_PRODUCER_ID_MAPPING}
    driver.end(producer)
    assert driver.verify(producer, "a") == {here: E.CONCURRENT_TRANSACTIONS}
    driver.write_markers()
    assert driver.verify(producer, "a") == {here: E.TRANSACTION_ABORTABLE}


def test_the_next_transaction_waits_for_the_markers_of_the_last_one(driver):
    producer = begun(driver)
    driver.end(producer)
    assert driver.add(producer, "b") is None
    assert driver.add(producer, "c") is None
    assert driver.write_markers() == [E.NONE]
    assert not driver.waiting
    assert driver.known().state is S.ONGOING
    assert driver.known().partitions == partitions("b", "c")
    assert as_stored(driver.replayed()) == as_stored(driver.shard)


@pytest.mark.parametrize("commit", [True, False])
def test_a_fenced_producer_does_not_get_the_epoch_of_a_newer_one_without_bumps(driver, commit):
    fenced = driver.init().producer
    newer = driver.init().producer
    assert newer == bumped(fenced)
    assert driver.add(newer, "a") is E.NONE
    assert driver.end(newer, commit).error is E.NONE
    driver.write_markers()
    assert driver.end(fenced, commit, version=2).error is E.PRODUCER_FENCED


def test_the_next_transaction_is_told_to_retry_if_the_markers_take_long(driver):
    producer = begun(driver)
    driver.end(producer)
    assert driver.add(producer, "b") is None
    token = driver.tokens
    assert driver.shard.parked() == [token]
    driver.advance(WAIT_FOR_MARKERS_MS)
    assert driver.answers[token] is E.CONCURRENT_TRANSACTIONS
    assert driver.shard.parked() == []


# -- EndTxn before version 2


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_decides_then_writes_markers_then_completes(driver, commit):
    producer = begun(driver)
    assert driver.end(producer, commit) == (E.NONE, (-1, -1), False)
    assert driver.known().state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    (prepared,) = driver.prepared
    assert prepared == ("t", producer, commit, partitions("a"), 0, 0)
    assert driver.end(producer, commit).error is E.CONCURRENT_TRANSACTIONS
    assert driver.end(producer, not commit).error is E.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    assert driver.known().state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert driver.end(producer, commit).error is E.NONE, "a retry"
    assert driver.end(producer, not commit).error is E.INVALID_TXN_STATE


def test_an_end_is_refused_to_others_and_without_a_transaction(driver):
    producer = driver.init().producer
    assert driver.end(producer).error is E.INVALID_TXN_STATE
    assert driver.end(producer, commit=False).error is E.INVALID_TXN_STATE
    assert driver.end(bumped(producer)).error is E.PRODUCER_FENCED
    assert driver.end(producer._replace(producer_id=7)).error is E.INVALID_PRODUCER_ID_MAPPING
    assert driver.end(producer, name="x").error is E.INVALID_PRODUCER_ID_MAPPING


# -- EndTxn since version 2

BETWEEN = {
    # state: {(commit, retry): error}; None means that the epoch is bumped
    S.EMPTY: {
        (False, True): E.PRODUCER_FENCED,
        (False, False): None,
        (True, True): E.PRODUCER_FENCED,
        (True, False): E.INVALID_TXN_STATE,
    },
    S.COMPLETE_ABORT: {
        (False, True): E.NONE,
        (False, False): None,
        (True, True): E.INVALID_TXN_STATE,
        (True, False): E.INVALID_TXN_STATE,
    },
    S.COMPLETE_COMMIT: {
        (False, True): E.INVALID_TXN_STATE,
        (False, False): None,
        (True, True): E.NONE,
        (True, False): E.INVALID_TXN_STATE,
    },
}


@pytest.mark.parametrize("state", BETWEEN)
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("retry", [True, False])
def test_an_end_between_transactions_with_bumps(driver, state, commit, retry):
    if state is S.EMPTY:
        driver.init()
        current = driver.init().producer
    else:
        current = driver.end(begun(driver, 2), state is S.COMPLETE_COMMIT, version=2).producer
        driver.write_markers()
    assert driver.known().state is state
    expected = BETWEEN[state][commit, retry]
    answer = driver.end(bumped(current, -1) if retry else current, commit, version=2)
    if expected is None:
        assert answer == (E.NONE, bumped(current), False)
        assert [one.partitions for one in driver.prepared] == [frozenset()]
    else:
        assert answer == (expected, current if expected is E.NONE else (-1, -1), False)
        assert driver.known().state is state


def test_an_end_with_bumps_gives_the_epoch_of_the_next_transaction(driver):
    first = begun(driver, 2)
    assert driver.end(first, version=2) == (E.NONE, bumped(first), False)
    (prepared,) = driver.prepared
    assert (prepared.producer, prepared.transaction_version) == (bumped(first), 2)
    assert driver.end(first, version=2).error is E.CONCURRENT_TRANSACTIONS, "a retry"
    assert driver.end(first, commit=False, version=2).error is E.CONCURRENT_TRANSACTIONS
    early = driver.end(bumped(first), commit=False, version=2)
    assert early.error is E.CONCURRENT_TRANSACTIONS, "the end of the next one"
    driver.write_markers()
    assert driver.add(first, "a") is E.PRODUCER_FENCED, "late"
    assert driver.add(bumped(first), "a", version=2) is E.NONE
    assert driver.end(first, version=2).error is E.PRODUCER_FENCED, "a late end of the last one"


def test_an_end_in_the_last_epoch_gives_a_new_producer_id(driver):
    producer = at_epoch(driver, LAST_EPOCH)
    driver.add(producer, "a", version=2)
    answer = driver.end(producer, version=2)
    assert answer.producer.epoch == 0
    assert answer.producer.producer_id != producer.producer_id
    assert driver.prepared[0].producer == bumped(producer), "the markers end the old id"
    driver.restart()
    assert driver.end(answer.producer, version=2).error is E.CONCURRENT_TRANSACTIONS
    assert driver.add(answer.producer, "b", version=2) is None, "it waits for the markers"
    driver.advance(WAIT_FOR_MARKERS_MS)
    driver.write_markers()
    assert driver.end(producer, version=2) == (E.NONE, answer.producer, False), "a retry"
    assert driver.add(answer.producer, "b", version=2) is E.NONE


# -- the last epoch is fenced


@pytest.mark.parametrize("server_version", [1, 2])
@pytest.mark.parametrize("how", ["timeout", "new instance"])
def test_a_producer_that_is_fenced_in_its_last_epoch_is_followed_by_a_new_id(server_version, how):
    driver = Driver(TransactionSettings(server_version=server_version))
    last = at_epoch(driver, LAST_EPOCH)
    driver.add(last, "a", version=2 if server_version == 2 else 0)
    driver.advance(TIMEOUT_MS) if how == "timeout" else driver.init()
    assert [one.producer for one in driver.prepared] == [bumped(last)]
    driver.write_markers()
    new = driver.init().producer
    assert (new.producer_id == last.producer_id, new.epoch) == (False, 0)
    assert driver.add(last, "a") is E.INVALID_PRODUCER_ID_MAPPING
    assert driver.end(last, commit=False, version=2).error is not E.NONE
    assert driver.init(expected=last).error is E.PRODUCER_FENCED
    assert driver.add(new, "a") is E.NONE


def test_an_abort_after_a_timeout_in_the_last_epoch_gives_a_new_producer_id(driver):
    last = at_epoch(driver, LAST_EPOCH)
    driver.add(last, "a", version=2)
    driver.advance(TIMEOUT_MS)
    assert driver.end(last, commit=False, version=2).error is E.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    assert driver.end(last, version=2).error is E.INVALID_TXN_STATE, "it was aborted"
    new = driver.end(last, commit=False, version=2).producer
    assert (new.producer_id == last.producer_id, new.epoch) == (False, 0)
    assert driver.end(last, commit=False, version=2).error is E.CONCURRENT_TRANSACTIONS
    driver.restart()
    driver.write_markers()
    assert driver.end(last, commit=False, version=2).producer == new, "a retry"
    assert driver.add(new, "a", version=2) is E.NONE
    assert driver.end(new, version=2).producer == bumped(new)


def test_a_bump_after_a_timeout_in_the_last_epoch_gives_a_new_producer_id(driver):
    last = at_epoch(driver, LAST_EPOCH)
    driver.add(last, "a")
    driver.advance(TIMEOUT_MS)
    assert driver.init(expected=last).error is E.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    new = driver.init(expected=last).producer
    assert (new.producer_id == last.producer_id, new.epoch) == (False, 0)
    assert driver.init(expected=last).producer == new, "a retry"
    assert driver.add(new, "a") is E.NONE


def a_timeout(driver, producer):
    driver.advance(TIMEOUT_MS)


def a_new_instance(driver, producer):
    assert driver.init().error is E.CONCURRENT_TRANSACTIONS


def an_end(version, commit):
    def end(driver, producer):
        assert driver.end(producer, commit, version=version).error is E.NONE

    return end


@pytest.mark.parametrize("server_version", [1, 2])
@pytest.mark.parametrize(
    "finish", [a_timeout, a_new_instance, an_end(0, True), an_end(2, True), an_end(2, False)]
)
def test_a_transaction_that_an_older_broker_began_in_the_fencing_epoch_ends(server_version, finish):
    driver = Driver(TransactionSettings(server_version=server_version))
    stuck = at_epoch(driver, FENCING_EPOCH, S.ONGOING)
    finish(driver, stuck)
    for _ in range(2):
        (prepared,) = driver.prepared
        assert (prepared.producer, prepared.partitions) == (stuck, partitions("a"))
        assert prepared.transaction_version == 0, "leaders take version 2 in this epoch for late"
        driver.restart()
    assert driver.write_markers() == [E.NONE]
    assert driver.add(stuck, "a") in (E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING)
    new = driver.init().producer
    assert new.producer_id != stuck.producer_id
    assert driver.add(new, "a") is E.NONE


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_no_transaction_begins_in_the_fencing_epoch(driver, state):
    stuck = at_epoch(driver, FENCING_EPOCH, state)
    assert driver.add(stuck, "a") is E.PRODUCER_FENCED
    assert driver.known().state is state
    new = driver.init(expected=stuck).producer
    assert (new.producer_id == stuck.producer_id, new.epoch) == (False, 0)


# -- time


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(driver):
    producer = begun(driver)
    driver.advance(TIMEOUT_MS - 1)
    assert driver.known().state is S.ONGOING
    driver.advance(1)
    assert driver.known().state is S.PREPARE_ABORT
    assert driver.prepared[0].producer == bumped(producer)
    assert driver.end(producer).error is E.PRODUCER_FENCED
    driver.write_markers()
    assert driver.known().state is S.COMPLETE_ABORT


def test_a_transaction_keeps_its_deadline_when_partitions_are_added_or_the_coordinator_moves(
    driver,
):
    producer = begun(driver)
    driver.advance(TIMEOUT_MS // 2)
    driver.add(producer, "b")
    driver.restart()
    driver.advance(TIMEOUT_MS - TIMEOUT_MS // 2)
    assert driver.known().state is S.PREPARE_ABORT


@pytest.mark.parametrize("hours", [-300, -5, 5, 300])
def test_a_wall_clock_that_jumps_moves_no_deadline(driver, hours):
    producer = begun(driver)
    driver.wall_error_ms = hours * 3_600_000
    driver.advance(TIMEOUT_MS // 2)
    assert driver.add(producer, "b") is E.NONE
    driver.advance(TIMEOUT_MS // 2 - 1)
    assert driver.known().state is S.ONGOING
    driver.advance(driver.settings.timeout_check_interval_ms)
    assert driver.known().state is S.PREPARE_ABORT


def test_a_transaction_that_was_open_for_a_year_is_aborted_once_it_is_loaded(driver):
    producer = begun(driver)
    driver.wall_error_ms = YEAR_MS
    driver.restart()
    driver.advance(0)
    assert driver.known().state is S.PREPARE_ABORT
    driver.write_markers()
    assert driver.end(producer, version=2).error is E.INVALID_TXN_STATE
    assert driver.init().producer == bumped(producer, 2)


def test_a_refused_abort_is_tried_again(driver):
    begun(driver)
    driver.monotonic_ms = driver.shard.next_deadline()
    driver.shard.expire(driver.now)  # its records are lost
    assert driver.known().state is S.ONGOING
    driver.advance(driver.settings.timeout_check_interval_ms)
    assert driver.known().state is S.PREPARE_ABORT


def test_an_id_without_transactions_is_forgotten(driver):
    producer = begun(driver)
    driver.init("open", timeout_ms=2**31 - 1)
    driver.end(producer)
    driver.write_markers()
    driver.advance(driver.settings.id_expiration_ms - 1)
    assert set(driver.shard.transactions) == {"t", "open"}
    driver.advance(driver.settings.id_expiration_check_interval_ms)
    assert driver.shard.transactions == {}
    assert driver.replayed().transactions == {}
    assert driver.shard.next_deadline() is None or driver.advance(10**9) is None


@pytest.mark.parametrize("next_coordinator", [False, True])
def test_a_clock_that_goes_back_keeps_no_transaction_open(driver, next_coordinator):
    begun(driver)
    driver.wall_error_ms = -YEAR_MS
    if next_coordinator:
        driver.restart()
    driver.advance(TIMEOUT_MS + driver.settings.timeout_check_interval_ms)
    assert [it.commit for it in driver.prepared] == [False]


def test_many_timeouts_are_handled_in_turns(driver):
    count = 2 * EXPIRED_PER_TURN + 1
    for number in range(count):
        begun(driver, name=str(number))
    driver.monotonic_ms = driver.shard.next_deadline()
    turns = 0
    while len(driver.prepared) < count:
        driver.run(driver.shard.expire(driver.now))
        turns += 1
    assert turns == 3


def test_a_timeout_whose_record_cannot_be_encoded_holds_up_no_other(driver, caplog):
    begun(driver, name="broken")
    known = driver.known("broken")._replace(producer_id=2**63)
    driver.shard.transactions["broken"] = known
    for name in "tu":
        begun(driver, name=name)
    driver.advance(TIMEOUT_MS + 2 * driver.settings.timeout_check_interval_ms)
    assert {one.transactional_id for one in driver.prepared} == {"t", "u"}
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "transactional id broken cannot be expired, its record is refused"
    ]


# -- coordinators


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_writes_the_markers_of_a_prepared_transaction(driver, commit):
    producer = begun(driver)
    driver.end(producer, commit)
    late = driver.prepared[0]
    driver.restart()
    assert driver.prepared == [late._replace(coordinator_epoch=1)]
    assert driver.ask(TransactionShard.complete, late) is E.INVALID_TXN_STATE
    assert driver.write_markers() == [E.NONE]
    assert driver.known().state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)


def test_a_transaction_is_completed_once(driver):
    producer = begun(driver)
    driver.end(producer)
    (prepared,) = driver.prepared
    assert driver.write_markers() == [E.NONE]
    assert driver.add(producer, "b") is E.NONE
    assert driver.ask(TransactionShard.complete, prepared) is E.INVALID_TXN_STATE
    driver.end(producer)
    assert driver.known().state is S.PREPARE_COMMIT


# -- descriptions


def test_filters_of_a_list(driver):
    begun(driver, name="old")
    driver.advance(5_000)
    begun(driver, name="new")
    driver.init("idle")

    def listed(**filters):
        found = driver.ask(TransactionShard.list, ListTransactions(**filters))
        return {one.transactional_id for one in found}

    assert listed() == {"old", "new", "idle"}
    assert listed(states=frozenset({"Ongoing"})) == {"old", "new"}
    assert listed(producer_ids=frozenset({103, 7})) == {"idle"}
    assert listed(states=frozenset({"Ongoing"}), longer_than_ms=1_000) == {"old"}
