"""Whatever a producer sends, both fast paths do as the slow path does: answers, logs, producers."""

import asyncio
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from random import Random

import pytest

from headwater.broker import fast_produce
from headwater.broker.lifecycle_loop import BrokerServer
from headwater.broker.listening import ListenerSecurity
from headwater.broker.process import system_seams
from headwater.broker.server_connection import ServerConnection
from headwater.config.broker import BrokerSettings
from headwater.controller.commands import CreateTopics, TopicCreation
from headwater.errors import E, KafkaError
from headwater.records.batch import HEADER
from headwater.records.builder import build_batch
from headwater.records.checksum import crc32c
from headwater.records.header_writing import complete_batch
from headwater.records.record import Record, encode_records
from headwater.replication.replica import Replica
from headwater.seams.clock import SystemClock
from headwater.wire.framing import request_frame
from headwater.wire.messages.produce import ProduceRequest

NOW_MS = 1_700_000_000_000
PARTITIONS = 3
SEEDS = 160
LOSSES = [E.KAFKA_STORAGE_ERROR, E.NOT_LEADER_OR_FOLLOWER]
COMPILED = "headwater.broker._fast_produce"
IS_BUILT = find_spec(COMPILED) is not None
PATHS = ["slow_path", "pure_path", *(["fast_path"] if IS_BUILT else [])]
"""Names of one length: they are parts of topic names, and answers have these in them."""


class StillClock(SystemClock):
    """A wall clock that shows one time, so that all answers have the same times in them."""

    def wall_ms(self):
        return NOW_MS


class Transport(asyncio.Transport):
    """Collects what the broker sends."""

    def __init__(self):
        super().__init__()
        self.sent = bytearray()
        self.closed = False

    def get_extra_info(self, name, default=None):
        return ("127.0.0.1", 1) if name == "peername" else default

    def is_closing(self):
        return self.closed

    def write(self, data):
        self.sent += data

    def writelines(self, list_of_data):
        self.sent += b"".join(list_of_data)

    def abort(self):
        self.closed = True

    def close(self):
        self.closed = True

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def get_write_buffer_size(self):
        return 0


class Consenting:
    """Coordinators that know every partition."""

    def verify(self, at, producer_id, epoch, write, done):
        asyncio.get_running_loop().call_soon(done, None)


class Bench:
    """A broker without sockets, and topics for each example."""

    def __init__(self, folder):
        self.runner = asyncio.Runner()
        self.numbers = count()
        parsed = BrokerSettings.load(
            None, {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
        )
        self.broker = BrokerServer(parsed, replace(system_seams(), clock=StillClock()))
        self.runner.run(self.broker.start())
        self.context.verifier = Consenting()

    def close(self):
        self.runner.run(self.broker.stop())
        self.runner.close()

    @property
    def context(self):
        return self.broker.context

    async def create(self, name, configs):
        created = asyncio.get_running_loop().create_future()
        self.context.controller.submit(
            CreateTopics([TopicCreation(name, PARTITIONS, 1, configs=configs)]), created.set_result
        )
        (outcome,) = await created
        assert outcome.error == 0, outcome
        for partition in range(PARTITIONS):  # or the first batches would wait for a file thread
            self.context.replicas.get(name, partition).log.epochs.save()
        return outcome.topic_id

    async def answers(self, path, ticks, lost=(), replicas=()):
        """What the broker sends to a client that sends these frames, some in each tick.

        The writes of the ticks whose numbers are in `lost` fail.
        """
        peer = ServerConnection(
            self.context,
            ListenerSecurity("PLAINTEXT", "PLAINTEXT"),
            self.broker.parts.dispatch.frame,
            "127.0.0.1",
        )
        transport = Transport()
        peer.connection_made(transport)
        with pytest.MonkeyPatch.context() as patch:
            take(path, patch)
            for number, frames in enumerate(ticks):
                for frame in frames:
                    feed(peer, frame)
                for replica in replicas if number in lost else ():
                    replica.log.drop_staged()
                    replica.fail_waiters(KafkaError(LOSSES[number % len(LOSSES)], "lost"))
                dirty = self.context.tick.dirty
                assert len(set(map(id, dirty))) == len(dirty), "each partition is written once"
                self.context.tick.flush()
                while (peer.pending or peer._answers) and not transport.closed:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        peer.connection_lost(None)
        return bytes(transport.sent), transport.closed


def take(path, patch):
    """Have routes lead to one of the paths."""
    if path == "slow_path":
        patch.setattr("headwater.broker.handlers.produce.remember_route", lambda *_: None)
    else:
        module = COMPILED if path == "fast_path" else "headwater.broker.pure_fast_produce"
        patch.setattr(fast_produce, "make_route", import_module(module).FastRoute)


def feed(peer, data):
    while data and not peer.transport.is_closing():
        room = peer.get_buffer(65536)
        taken = min(len(room), len(data))
        room[:taken] = data[:taken]
        peer.buffer_updated(taken)
        data = data[taken:]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    made = Bench(tmp_path_factory.mktemp("fast"))
    yield made
    made.close()


# -- what producers send

CONFIGS = [
    {},
    {},
    {},
    {"cleanup.policy": "compact"},
    {"message.timestamp.type": "LogAppendTime"},
    {"compression.type": "gzip"},
    {"max.message.bytes": "400"},
    {"message.timestamp.before.max.ms": "50", "message.timestamp.after.max.ms": "5"},
]
TIMES = [NOW_MS, NOW_MS - 70, NOW_MS + 9, 5, -1, NOW_MS + 10**9, 1 << 61]


def a_value(random):
    return random.choice([None, b"", random.randbytes(random.randrange(20)), b"x" * 5000])


def odd_records(random):
    if random.random() < 0.3:
        return [Record(timestamp=NOW_MS, value=b"no key")] * random.randint(1, 5)
    return [
        Record(
            timestamp=random.choice(TIMES),
            key=a_value(random),
            value=a_value(random),
            headers=tuple(("h", a_value(random)) for _ in range(random.randrange(3))),
        )
        for _ in range(random.randint(1, 6))
    ]


DEFECTS = {
    "records": odd_records,
    "codec": lambda random: random.choice([1, 4]),
    "producer": lambda random: random.choice(["again", "gap", "epoch", "absurd"]),
    "transactional": lambda random: True,
    "misplaced": lambda random: True,
    "alter": lambda random: [(random.randrange(90), random.randrange(1, 256))],
    "sealed": lambda random: False,
    "cut": lambda random: random.choice([1, 30, 60, 100]),
    "claims": lambda random: random.choice([1, 5, 100, 2**31 - 1]),
}


ORDINARY = {
    "records": [Record(timestamp=NOW_MS, value=b"value")],
    "codec": 0,
    "producer": "next",
    "transactional": False,
    "misplaced": False,
    "alter": [],
    "sealed": True,
    "cut": 0,
    "claims": 0,
    "sound": True,
}
"""A batch, and what there is to say about it."""


def a_batch(random, defects):
    """A batch that is ordinary but for some defects."""
    values = [random.randbytes(random.randrange(9)) for _ in range(random.randint(1, 8))]
    spec = ORDINARY | {
        "records": [Record(timestamp=NOW_MS, key=b"k", value=value) for value in values],
        "producer": random.choice([None, "next", "next"]),
    }
    for defect in random.sample([*DEFECTS, "alter", "producer", "records", "codec"], defects):
        spec[defect] = DEFECTS[defect](random)
    spec["sound"] = not defects or (defects == 1 and spec["producer"] == "epoch")
    return spec


def runs(random):
    """Series of requests of one shape each, the last of which may be damaged around its records."""
    for _ in range(random.randint(1, 4)):
        shape = [random.choice([0, 1, 2, 0, 1, 2, PARTITIONS]) for _ in range(random.randint(1, 3))]
        defects = random.choice([[0], [0, 0, 0, 1], [0, 1, 1, 2]])
        requests = [
            [a_batch(random, random.choice(defects)) for _ in shape]
            for _ in range(random.randint(2, 9))
        ]
        damage = [(random.randint(12, 200), random.randrange(1, 256))]
        version = random.choice([3, 6, 7, 8, 9, 12, 12, 13, 13])
        acks = random.choice([-1, -1, -1, 1, 1, 0, 7])
        transactional_id = random.choice([None, None, "mine"])
        damage = damage if random.random() < 0.3 else []
        yield shape, version, acks, requests, damage, transactional_id


class Producers:
    """The next sequence of the producer that each partition has."""

    def __init__(self):
        self.epochs = dict.fromkeys(range(PARTITIONS + 1), 0)
        self.sequences = dict.fromkeys(range(PARTITIONS + 1), 0)

    def fields(self, partition, spec):
        """Producer id, epoch and sequence of a batch; one that is not sound uses up no sequences."""
        habit, records = spec["producer"], len(spec["records"])
        if habit is None:
            return {}
        if habit == "absurd":
            return {"producer_id": 7, "producer_epoch": -1, "base_sequence": 3}
        if habit == "epoch" and spec["sound"]:
            self.epochs[partition] += 1
            self.sequences[partition] = 0
        first = self.sequences[partition]
        if habit == "again":
            first = max(0, first - 1)
        elif habit == "gap":
            first += 3
        elif spec["sound"]:
            self.sequences[partition] = first + records
        return {
            "producer_id": 7,
            "producer_epoch": self.epochs[partition],
            "base_sequence": first,
        }


def batch_of(spec, partition, producers, in_transaction=False):
    """The bytes of a batch, sound or not; `sealed` ones match their checksum in any case."""
    made = build_batch(
        spec["records"],
        now=NOW_MS,
        codec=spec["codec"],
        transactional=spec["transactional"] != (in_transaction and spec["producer"] is not None),
        **producers.fields(partition, spec),
    )
    if spec["misplaced"]:  # each record says that it is the first
        header = HEADER.unpack_from(made)
        alone = encode_records([Record(timestamp=header[7], value=b"v")], header[7])
        made = complete_batch(header, alone * len(spec["records"]))
    if spec["claims"]:  # to hold as many records
        made[57:61] = spec["claims"].to_bytes(4, "big")
        made[23:27] = (spec["claims"] - 1).to_bytes(4, "big")
    for place, mask in spec["alter"]:
        made[place % len(made)] ^= mask
    if spec["sealed"] and (spec["alter"] or spec["claims"]):
        made[17:21] = crc32c(made[21:]).to_bytes(4, "big")
    return bytes(made[: len(made) - spec["cut"]])


def script(series, topic, topic_id):
    """The frames of each tick."""
    producers, ticks = Producers(), []
    for shape, version, acks, requests, damage, *more in series:
        transactional_id = more[0] if more else None
        frames = []
        for number, specs in enumerate(requests):
            data = [
                ProduceRequest.PartitionProduceData(
                    index=index,
                    records=batch_of(spec, index, producers, transactional_id is not None),
                )
                for index, spec in zip(shape, specs, strict=True)
            ]
            named = {"topic_id": topic_id} if version >= 13 else {"name": topic}
            body = ProduceRequest(
                transactional_id=transactional_id,
                acks=acks,
                timeout_ms=9000,
                topic_data=[ProduceRequest.TopicProduceData(partition_data=data, **named)],
            )
            frame = bytearray(request_frame(0, version, number + 5, "client", body))
            name = topic_id if version >= 13 else topic.encode()
            named_at = frame.index(name)
            for place, mask in damage if number == len(requests) - 1 else ():
                # Not in the name: an answer repeats it, and the paths have topics of their own.
                if place < len(frame) and not 0 <= place - named_at < len(name):
                    frame[place] ^= mask
            frames.append(bytes(frame))
        ticks += [frames[:1], frames[1:2], frames[2:]]
    return ticks


def state_of(replica):
    """What a partition knows, without what the paths' own topics must differ in."""
    log = replica.log
    with open(log.segments.active.path, "rb") as file:
        written = file.read()
    rows = [(row.producer_id, row[1:]) for row in log.producers]
    ends = (log.staging.end_offset, log.log_end_offset, replica.high_watermark, log.size)
    return written, sorted(rows), ends, replica.dirty


@pytest.mark.parametrize("seed", range(0, SEEDS, 40))
def test_every_path_gives_the_same_answers_logs_and_producers(bench, seed):
    for each in range(seed, seed + 40):
        random = Random(each)
        configs, series = random.choice(CONFIGS), list(runs(random))
        lost = random.sample(range(12), random.choice([0, 1, 3]))
        assert_all_paths_agree(bench, series, configs, lost)


def assert_all_paths_agree(bench, series, configs, lost):
    number = next(bench.numbers)

    async def through(path):
        topic = f"{path}-{number:06d}"
        topic_id = await bench.create(topic, configs)
        replicas = [bench.context.replicas.get(topic, index) for index in range(PARTITIONS)]
        ticks = script(series, topic, topic_id)
        sent, closed = await bench.answers(path, ticks, lost, replicas)
        answers = sent.replace(topic.encode(), b"?").replace(topic_id, b"?")
        return answers, closed, [state_of(replica) for replica in replicas]

    expected, *others = [bench.runner.run(through(path)) for path in PATHS]
    for found in others:
        assert found == expected


def test_who_lost_its_leader_is_told_where_it_is_on_every_path(bench):
    """In ticks 1 and 5, in which requests of one and of two partitions take the fast path."""
    series = [
        ([0], 12, -1, [[ORDINARY]] * 3, []),
        ([1, 2], 13, -1, [[ORDINARY, ORDINARY]] * 4, []),
    ]
    assert_all_paths_agree(bench, series, {}, [1, 5])


# -- that it is taken


def test_a_fast_path_that_was_built_is_the_one_in_use():
    expected = "compiled" if IS_BUILT else "pure"
    assert expected == fast_produce.NAME


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape", [[0], [2, 0, 1]])
@pytest.mark.parametrize(
    ("version", "acks", "transactional_id"), [(7, 1, None), (13, -1, None), (13, -1, "mine")]
)
def test_a_known_request_is_not_decoded_again(
    bench, monkeypatch, path, shape, version, acks, transactional_id
):
    """The compiled path does not even ask the replica."""
    appended = []
    append = Replica.append
    monkeypatch.setattr(Replica, "append", lambda *call: (appended.append(1), append(*call))[1])
    decoded = bench.context.metrics.apis[0]
    before = decoded.requests

    async def through():
        topic = f"{path}-{next(bench.numbers):06d}"
        topic_id = await bench.create(topic, {})
        run = (shape, version, acks, [[ORDINARY] * len(shape)] * 20, [], transactional_id)
        await bench.answers(path, script([run], topic, topic_id))
        return [bench.context.replicas.get(topic, index).high_watermark for index in shape]

    assert bench.runner.run(through()) == [20] * len(shape)
    known_after = len(shape) if len(shape) == 1 else 2
    slow = 20 if path == "slow_path" else known_after
    assert decoded.requests - before == slow
    asked = slow if path == "fast_path" else 20
    verified = 0 if transactional_id is None else 1  # the first batch comes again
    assert len(appended) == (asked + verified) * len(shape)


def test_no_answer_leaves_while_the_transport_asks_for_room(bench):
    """Making room ends the tick; an answer that cannot be written would close the transport."""
    large = ORDINARY | {"records": [Record(timestamp=NOW_MS, value=b"x" * 5000)]}

    async def through():
        topic = f"room-{next(bench.numbers):06d}"
        topic_id = await bench.create(topic, {})
        ticks = script([([0], 7, 1, [[large]] * 100, [])], topic, topic_id)
        data = b"".join(frame for frames in ticks for frame in frames)
        peer = ServerConnection(
            bench.context,
            ListenerSecurity("PLAINTEXT", "PLAINTEXT"),
            bench.broker.parts.dispatch.frame,
            "127.0.0.1",
        )
        transport = Transport()
        peer.connection_made(transport)
        made_room = 0
        while data:
            sent, dirty = len(transport.sent), len(bench.context.tick.dirty)
            room = peer.get_buffer(65536)
            assert len(transport.sent) == sent
            made_room += len(bench.context.tick.dirty) < dirty
            taken = min(len(room), len(data))
            room[:taken] = data[:taken]
            peer.buffer_updated(taken)
            data = data[taken:]
        while peer.pending or peer._answers:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
        peer.connection_lost(None)
        assert made_room
        assert bench.context.replicas.get(topic, 0).high_watermark == 100

    bench.runner.run(through())
