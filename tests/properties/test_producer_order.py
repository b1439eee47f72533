"""The producer's pure machines against a model of a broker that fails in every way a network can.

Whatever happens: the log holds no record twice, all that was acknowledged, in the order in which it
was sent, and nothing that was never sent.
"""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.producer.accumulator import Accumulator, Batch
from headwater.client.producer.sequences import LOST, MAX_UNACKED, Sequences
from headwater.errors import E
from headwater.records.codec import decode_batch


@dataclass
class Log:
    """A partition as a broker keeps it: five batches remembered, sequences checked."""

    values: list[bytes] = field(default_factory=list)
    epoch: int = -1
    remembered: list[tuple[int, int]] = field(default_factory=list)
    next: int | None = None

    def append(self, batch: Batch) -> E:
        records = batch.encoded(0, None)
        values = [row[4] for row in decode_batch(records)[1]]
        first = batch.base_sequence
        span = (first, first + len(values) - 1)
        if batch.epoch < self.epoch:
            return E.INVALID_PRODUCER_EPOCH
        if batch.epoch == self.epoch and span in self.remembered:
            return E.NONE
        if batch.epoch > self.epoch and self.epoch >= 0 and first != 0:
            return E.OUT_OF_ORDER_SEQUENCE_NUMBER
        if batch.epoch == self.epoch and first != self.next:
            return E.OUT_OF_ORDER_SEQUENCE_NUMBER
        if batch.epoch > self.epoch:
            self.epoch, self.remembered = batch.epoch, []
        self.values += values
        self.next = span[1] + 1
        self.remembered = [*self.remembered, span][-MAX_UNACKED:]
        return E.NONE


STEPS = st.lists(
    st.sampled_from(
        ["send", "send", "send", "go", "go", "answer", "answer", "lose request", "lose answer",
         "refuse", "move leader", "give up"]
    ),
    max_size=120,
)  # fmt: skip


class World:
    def __init__(self) -> None:
        self.accumulator = Accumulator(
            batch_size=1, linger_ms=0, buffer_memory=1 << 30, delivery_timeout_ms=10
        )
        self.queue = self.accumulator.queue("t", 0)
        self.sequences = Sequences()
        self.sequences.identified(7, 0)
        self.log = Log()
        self.wire: list[Batch] = []
        self.sent = 0
        self.values: dict[Batch, bytes] = {}
        self.acknowledged: list[bytes] = []
        self.given_up: set[bytes] = set()

    def send(self) -> None:
        batch = self.accumulator.begin(self.queue, 0, 0)
        assert batch is not None
        value = b"%d" % self.sent
        self.sent += 1
        batch.append(0, None, value)
        self.accumulator.show(batch)
        self.values[batch] = value

    def go(self) -> None:
        batch = self.sequences.choose(self.queue)
        if batch is not None and len(self.wire) < 5:
            self.accumulator.take(batch)
            self.sequences.number(batch)
            self.wire.append(batch)

    def answer(self) -> None:
        if self.wire:
            batch = self.wire.pop(0)
            self.told(batch, self.log.append(batch))

    def lose_request(self) -> None:
        """The connection breaks before the broker read any of it: all that is under way fails."""
        self.broken(stored=0)

    def lose_answer(self) -> None:
        """The connection breaks after the broker stored the first batch."""
        self.broken(stored=1)

    def broken(self, stored: int) -> None:
        lost, self.wire = self.wire, []
        for place, batch in enumerate(lost):
            if place < stored:
                self.log.append(batch)
            batch.uncertain = True
            self.back(batch)

    def refuse(self) -> None:
        """The broker refuses a batch for good."""
        if self.wire:
            self.lose_batch(self.wire.pop(0))

    def give_up(self) -> None:
        """delivery.timeout.ms is over for the first batch that waits."""
        if self.queue.sealed:
            batch = self.queue.sealed.popleft()
            self.lose_batch(batch)

    def lose_batch(self, batch: Batch) -> None:
        batch.in_flight = batch.uncertain = False
        self.given_up.add(self.values[batch])
        self.sequences.given_up(batch)
        self.accumulator.complete(batch)
        if not self.queue.sealed and self.queue.open is None:
            self.accumulator.waiting.pop(self.queue, None)

    def move_leader(self) -> None:
        """The broker answers the first with NOT_LEADER and has stored nothing of it."""
        if self.wire:
            batch = self.wire.pop(0)
            batch.uncertain = False
            self.back(batch)

    def told(self, batch: Batch, code: E) -> None:
        batch.uncertain = False
        if code == E.NONE:
            batch.in_flight = False
            self.sequences.acknowledged(batch)
            self.sequences.settle(batch)
            self.accumulator.complete(batch)
            self.acknowledged.append(self.values[batch])
            return
        assert code in LOST
        self.sequences.refused(batch, code)
        self.back(batch)

    def back(self, batch: Batch) -> None:
        self.accumulator.put_back(batch, 0)
        self.sequences.settle(batch)

    def finish(self) -> None:
        """From now on nothing fails: everything must come to its end."""
        for _ in range(40 * self.sent + 40):
            if not self.accumulator.incomplete:
                return
            self.go()
            self.answer()
        raise AssertionError("a batch is stuck")


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_whatever_fails_nothing_is_lost_doubled_or_out_of_order(steps: list[str]) -> None:
    world = World()
    for step in steps:
        getattr(world, step.replace(" ", "_"))()
        assert len(world.log.values) == len(set(world.log.values))
    world.finish()
    numbers = [int(value) for value in world.log.values]
    assert len(numbers) == len(set(numbers))
    assert numbers == sorted(numbers)
    assert set(world.acknowledged) <= set(world.log.values)
    assert set(world.acknowledged) | world.given_up == {b"%d" % n for n in range(world.sent)}


def test_an_exhausted_epoch_asks_for_a_new_id_and_goes_on() -> None:
    world = World()
    world.sequences.identified(7, 32_766)
    world.send()
    world.go()
    world.answer()
    world.send()
    world.send()
    world.go()
    world.go()
    world.refuse()
    world.answer()
    assert not world.sequences.ready
    world.sequences.identified(8, 0)
    world.sequences.settle_all()
    world.log = Log()
    world.finish()
    assert world.log.values == [b"2"]
