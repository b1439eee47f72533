"""A transaction shard under any order of requests, retries, timeouts, markers and restarts."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.coordination.transactions.commands import ProducerAnswer, ProducerIdentity
from headwater.coordination.transactions.metadata import (
    EPOCH_BUMPS_AT_END,
    FENCING_EPOCH,
    LAST_EPOCH,
    TransactionMetadata,
)
from headwater.coordination.transactions.settings import TransactionSettings
from headwater.coordination.transactions.states import STATES, TransactionState
from headwater.errors import E
from headwater.model import NO_EPOCH
from tests.unit.coordination.transaction_driver import (
    TIMEOUT_MS,
    Driver,
    as_stored,
    partitions,
)

NAMES = st.sampled_from(["t", "u"])
PARTITIONS = st.lists(st.sampled_from("abc"), min_size=1, max_size=2)
PICK = st.integers(0, 5)
VERSIONS = st.sampled_from([0, 2])


class TransactionShardMachine(RuleBasedStateMachine):
    """Clients that do anything, and what must hold whatever they do."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(TransactionSettings(id_expiration_ms=10**9))
        self.seen: list[ProducerIdentity] = [ProducerIdentity(7, 3)]
        self.checked = 0
        self.before: dict[str, TransactionState] = {}
        self.highest: dict[int, int] = {}
        self.outcomes: dict[tuple[str, int, int], bool] = {}
        self.running: dict[str, ProducerIdentity] = {}

    @initialize(
        epoch=st.sampled_from([None, 32_760, LAST_EPOCH - 1, LAST_EPOCH, FENCING_EPOCH]),
        ongoing=st.booleans(),
        version=VERSIONS,
    )
    def find_a_producer_near_its_last_epoch(self, epoch, ongoing, version):
        """Up to the fencing epoch: older brokers let producers write in it."""
        if epoch is not None:
            stored = TransactionMetadata(
                self.driver.new_id(), epoch, TIMEOUT_MS, client_version=version
            )
            if ongoing:
                now_ms = self.driver.now.wall_ms
                stored = stored.with_partitions(partitions("a"), version, now_ms)
            producer = self.driver.store(stored)
            self.driver.restart()
            self.seen.append(producer)
            self.before["t"], self.running["t"] = stored.state, producer
            self.checked = len(self.driver.log)

    def pick(self, place: int) -> ProducerIdentity:
        return self.seen[-1 - place % len(self.seen)]

    def note(self, answer: object) -> None:
        if isinstance(answer, ProducerAnswer) and answer.producer.producer_id >= 0:
            assert answer.producer.epoch <= LAST_EPOCH, "the fencing epoch is nobody's"
            self.seen.append(answer.producer)

    @rule(name=NAMES)
    def start(self, name):
        answer = self.driver.init(name)
        if answer.error is E.NONE:
            epochs = [p.epoch for p in self.seen if p.producer_id == answer.producer.producer_id]
            assert all(epoch < answer.producer.epoch for epoch in epochs), "fences all before"
        self.note(answer)

    @rule(name=NAMES, place=PICK)
    def bump(self, name, place):
        self.note(self.driver.init(name, expected=self.pick(place)))

    @rule(name=NAMES, epoch=st.integers(32_760, LAST_EPOCH))
    def use_up_the_epochs(self, name, epoch):
        """Many restarts of a producer, in one step."""
        known = self.driver.shard.transactions.get(name)
        if known and known.state is TransactionState.EMPTY and known.producer_epoch < epoch:
            jump = known._replace(producer_epoch=epoch, last_producer_epoch=NO_EPOCH)
            self.seen.append(self.driver.store(jump, name))

    @rule(name=NAMES, version=VERSIONS)
    def time_out_and_go_on(self, name, version):
        """A client whose transaction takes too long, in either generation of the protocol."""
        known = self.driver.shard.transactions.get(name)
        if known is None:
            return
        producer = ProducerIdentity(known.producer_id, known.producer_epoch)
        self.driver.add(producer, "a", name=name, version=version)
        self.driver.advance(TIMEOUT_MS)
        for _ in range(2):
            self.driver.write_markers()
            if version >= EPOCH_BUMPS_AT_END:
                self.note(self.driver.end(producer, False, name, version))
            else:
                self.note(self.driver.init(name, expected=producer))

    @rule(name=NAMES, place=PICK, partitions=PARTITIONS, version=VERSIONS)
    def add(self, name, place, partitions, version):
        self.driver.add(self.pick(place), *partitions, name=name, version=version)

    @rule(name=NAMES, place=PICK, partitions=PARTITIONS)
    def verify(self, name, place, partitions):
        before = as_stored(self.driver.shard)
        self.driver.verify(self.pick(place), *partitions, name=name)
        assert as_stored(self.driver.shard) == before

    @rule(name=NAMES, place=PICK, commit=st.booleans(), version=VERSIONS)
    def end(self, name, place, commit, version):
        self.note(self.driver.end(self.pick(place), commit, name, version))

    @rule()
    def markers(self):
        self.driver.write_markers()

    @rule(ms=st.sampled_from([0, 10, 60, TIMEOUT_MS // 2, TIMEOUT_MS, 10**9]))
    def time_passes(self, ms):
        self.driver.advance(ms)

    @rule()
    def restart(self):
        self.driver.restart()

    @invariant()
    def states_follow_the_table_and_epochs_grow(self):
        for record in self.driver.log[self.checked :]:
            name, new = record
            if new is None:
                self.before.pop(name, None)
                continue
            old = self.before.get(name, TransactionState.EMPTY)
            assert old in STATES[new.state].follows
            self.before[name] = new.state
            if new.state is TransactionState.ONGOING:
                if old is not TransactionState.ONGOING:
                    assert new.producer_epoch <= LAST_EPOCH, "the fencing epoch is nobody's"
                self.running[name] = ProducerIdentity(new.producer_id, new.producer_epoch)
            assert new.producer_epoch >= self.highest.get(new.producer_id, 0)
            self.highest[new.producer_id] = new.producer_epoch
            if new.state in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT):
                assert not new.partitions
        self.checked = len(self.driver.log)
        for one in self.driver.prepared:
            if one.transaction_version >= EPOCH_BUMPS_AT_END and one.partitions:
                running = self.running[one.transactional_id]
                assert one.producer > running, "leaders take this marker for late"

    @invariant()
    def one_outcome_for_each_transaction(self):
        for one in self.driver.prepared:
            if one.transaction_version >= 2:
                key = one.transactional_id, *one.producer
                assert self.outcomes.setdefault(key, one.commit) is one.commit

    @invariant()
    def every_request_is_answered_or_waits(self):
        assert set(self.driver.shard.parked()) == self.driver.waiting

    @invariant()
    def the_log_gives_the_same_state(self):
        assert as_stored(self.driver.replayed()) == as_stored(self.driver.shard)

    def teardown(self):
        """Whatever happened, everything ends: time passes and markers are written."""
        for _ in range(3):
            self.driver.advance(TIMEOUT_MS + self.driver.settings.timeout_check_interval_ms)
            self.driver.write_markers()
        assert not self.driver.waiting
        between = {
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        }
        assert {known.state for known in self.driver.shard.transactions.values()} <= between


TransactionShardMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_a_transaction_shard_keeps_its_promises = TransactionShardMachine.TestCase
