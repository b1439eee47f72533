"""Bugs inside a client's background work: each is raised or logged, and nothing is skipped."""

import asyncio
import gc
import os
import threading

import pytest

import headwater
import headwater.aio
from headwater.client import blocking
from headwater.client.admin.calls import AdminCalls
from headwater.client.cluster import Cluster
from headwater.client.consumer.consumer_core import ConsumerCore
from headwater.client.consumer.fetching.fetcher_loop import Fetcher
from headwater.client.consumer.group import commits
from headwater.client.consumer.group.commits import Commits
from headwater.client.consumer.group.group_loop import Group
from headwater.client.consumer.group.membership import Membership
from headwater.client.consumer.offset_lookups import OffsetLookups
from headwater.client.consumer.positions_loop import PositionResolver
from headwater.client.consumer.processing import dead_letters
from headwater.client.consumer.processing.lanes import Lanes
from headwater.client.errors import ClosedError, LoopDiedError, failure
from headwater.errors import E, KafkaError
from headwater.pipelines.topic_source.broker_client_loop import broker_client
from tests.clients.broker_under_test import until

COUNT = 40
VALUES = [b"%d" % number for number in range(COUNT)]
LIMIT_S = 60


class BugError(Exception):
    """What nobody expects."""


class Planted:
    """A method that raises while it is armed, and counts its calls."""

    def __init__(self, monkeypatch, owner, name) -> None:
        self.armed = True
        self.hits = self.passed = 0
        method = getattr(owner, name)

        def planted(*args, **options):
            if self.armed:
                self.hits += 1
                raise BugError(name)
            self.passed += 1
            return method(*args, **options)

        monkeypatch.setattr(owner, name, planted)


@pytest.fixture(scope="session")
def broker(headwater_under_test):
    return headwater_under_test


@pytest.fixture
def topic(broker, lane):
    broker.fill(lane, VALUES, key=lambda number: VALUES[number])
    return lane


@pytest.fixture
def options(broker, topic):
    return {
        "bootstrap_servers": broker.bootstrap,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 30,
        "retry_backoff_ms": 5,
        "retry_backoff_max_ms": 20,
        "max_poll_records": 7,
    }


@pytest.fixture
def consumer(options):
    with headwater.Consumer(**options) as made:
        yield made


class Reading:
    """Polls on through errors and keeps what came."""

    def __init__(self, consumer) -> None:
        self.consumer = consumer
        self.seen, self.errors = [], []

    def poll(self) -> None:
        try:
            self.seen += [record.value for record in self.consumer.poll(0.05)]
        except KafkaError as error:
            self.errors.append(error)

    def finish(self) -> None:
        until("all is read", lambda: len(self.seen) >= COUNT, self.poll)
        assert self.seen == VALUES


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Fetcher, "_wanted"),
        (Fetcher, "_fetch"),
        (Fetcher, "_received"),
        (PositionResolver, "_from_commits"),
        (PositionResolver, "_from_times"),
        (Group, "_send_join"),
        (Group, "_sync"),
        (Group, "_assign"),
        (Group, "_heartbeat"),
        (Membership, "tick"),
        (Cluster, "_apply"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_bug_in_a_loop_is_raised_by_poll_and_the_loop_goes_on(
    consumer, topic, monkeypatch, owner, name
) -> None:
    planted = Planted(monkeypatch, owner, name)
    reading = Reading(consumer)
    consumer.subscribe([topic])
    until("an error", lambda: reading.errors, reading.poll)
    assert name in str(reading.errors[0])
    planted.armed = False
    until("it works again", lambda: planted.passed, reading.poll)
    reading.finish()


def test_a_bug_in_a_refresh_of_metadata_is_logged_and_the_next_refresh_comes(
    consumer, topic, monkeypatch, caplog
) -> None:
    reading = Reading(consumer)
    consumer.subscribe([topic])
    reading.finish()
    planted = Planted(monkeypatch, Cluster, "_apply")
    consumer._poller.thread.post(consumer._core._cluster.suspect)
    until("the bug struck twice", lambda: planted.hits > 1)
    planted.armed = False
    until("it works again", lambda: planted.passed)
    assert "metadata refresh died" in caplog.text
    assert "BugError" in caplog.text


def test_a_bug_in_a_commit_reaches_its_callback_its_caller_or_the_log(
    consumer, topic, monkeypatch, caplog
) -> None:
    consumer.subscribe([topic])
    until("it has partitions", consumer.assignment, lambda: consumer.poll(0.05))
    planted = Planted(monkeypatch, Commits, "_attempt")
    told = []
    consumer.commit_async({(topic, 0): 1}, lambda offsets, error: told.append(error))
    until("the callback", lambda: told)
    assert isinstance(told[0], LoopDiedError)
    assert isinstance(told[0].__cause__, BugError)
    consumer.commit_async({(topic, 0): 1})
    until("it is logged", lambda: "a commit failed: internal error" in caplog.text)
    with pytest.raises(BugError):
        consumer.commit({(topic, 0): 1})
    planted.armed = False
    consumer.commit({(topic, 0): 1})


def test_a_commit_waits_for_those_that_were_begun_before(options, topic, monkeypatch) -> None:
    async def run() -> None:
        begun, answered = [], asyncio.Event()

        async def attempt(self, offsets, ids) -> None:
            begun.extend(row.offset for row in offsets.values())
            if begun == [1]:
                await answered.wait()

        async with headwater.aio.Consumer(**options, enable_auto_commit=False) as consumer:
            monkeypatch.setattr(Commits, "_attempt", attempt)
            consumer.commit_async({(topic, 0): 1})
            commit = asyncio.ensure_future(consumer.commit({(topic, 0): 2}))
            for _ in range(20):
                await asyncio.sleep(0)
            assert begun == [1]
            answered.set()
            await commit
            assert begun == [1, 2]

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (BugError("odd"), "an automatic commit failed: internal error"),
        (failure(E.COORDINATOR_LOAD_IN_PROGRESS), "automatic commits of group"),
    ],
    ids=["bug", "refused again and again"],
)
def test_automatic_commits_that_fail_are_logged(
    options, topic, monkeypatch, caplog, problem, said
) -> None:
    monkeypatch.setattr(commits, "FIRST_S", 0)

    async def refuse(*_):
        raise problem

    with headwater.Consumer(**options, auto_commit_interval_ms=5) as consumer:
        consumer.subscribe([topic])
        with monkeypatch.context() as patch:
            patch.setattr(Commits, "_attempt", refuse)
            until("it is logged", lambda: said in caplog.text, lambda: consumer.poll(0.05))


def test_a_commit_that_close_cuts_short_reaches_its_callback(consumer, topic, monkeypatch) -> None:
    async def hang(*_):
        await asyncio.Event().wait()

    consumer.subscribe([topic])
    until("it has partitions", consumer.assignment, lambda: consumer.poll(0.05))
    told = []
    monkeypatch.setattr(Commits, "_attempt", hang)
    consumer.commit_async({(topic, 0): 1}, lambda offsets, error: told.append(error))
    consumer.close(0.05)
    assert [type(error) for error in told] == [ClosedError]


def test_a_last_commit_that_is_not_answered_in_time_is_logged(
    consumer, topic, monkeypatch, caplog
) -> None:
    async def hang(*_):
        await asyncio.Event().wait()

    consumer.subscribe([topic])
    until("it has partitions", consumer.assignment, lambda: consumer.poll(0.05))
    monkeypatch.setattr(Commits, "commit_last", hang)
    consumer.close(0.05)
    assert "closed before its last commit" in caplog.text


@pytest.mark.parametrize(
    "owner", [Commits, PositionResolver, Fetcher], ids=lambda owner: owner.__name__
)
def test_a_bug_while_one_part_is_closed_leaves_no_connection_open(
    consumer, topic, monkeypatch, owner
) -> None:
    consumer.subscribe([topic])
    until("records", lambda: consumer.poll(0.05))
    cluster = consumer._core._cluster
    connections = list(cluster._connections.values())
    Planted(monkeypatch, owner, "close")
    with pytest.raises(BugError):
        consumer.close()
    assert not any(connection.is_open for connection in connections)


class Faulty(headwater.RebalanceListener):
    def __init__(self) -> None:
        self.calls = 0

    def on_assigned(self, partitions) -> None:
        self.calls += 1
        raise BugError("on_assigned")


def test_a_listener_that_raises_ends_the_poll_and_no_more(consumer, topic, options) -> None:
    consumer.subscribe([topic], listener=Faulty())
    with pytest.raises(BugError):
        consumer.poll(LIMIT_S)
    Reading(consumer).finish()

    async def face() -> None:
        listener = Faulty()
        async with headwater.aio.Consumer(**{**options, "group_id": topic + "-aio"}) as consumer:
            await consumer.subscribe([topic], listener=listener)
            with pytest.raises(BugError):
                await consumer.poll(LIMIT_S)
            seen = []
            while len(seen) < COUNT:
                seen += [record.value for record in await consumer.poll(1)]
        assert seen == VALUES
        assert listener.calls == 1

    asyncio.run(asyncio.wait_for(face(), LIMIT_S))


def test_a_seek_counts_more_than_a_lookup_that_is_under_way(options, topic, monkeypatch) -> None:
    async def run() -> None:
        asked, answered = asyncio.Event(), asyncio.Event()
        find = OffsetLookups.find

        async def late(self, times, *more):
            asked.set()
            await answered.wait()
            return await find(self, times, *more)

        monkeypatch.setattr(OffsetLookups, "find", late)
        async with headwater.aio.Consumer(**options) as consumer:
            await consumer.assign([(topic, 0)])
            await consumer.poll(0)
            await asked.wait()
            consumer.seek((topic, 0), 9)
            answered.set()
            await asyncio.gather(*consumer._core._resolver._searches)
            assert await consumer.position((topic, 0)) == 9

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))


# -- parallel work


def fine(record) -> None:
    """Work that succeeds."""


def bad(record) -> None:
    """Work that fails."""
    raise ValueError(record)


def process(options, topic, face, work, *, stop=False, **plan) -> None:
    """Work on a topic with one of the faces until something ends it, or stop at the first record."""

    def ended(consumer, record) -> None:
        if stop:
            consumer.stop_processing()
        work(record)

    if face == "blocking":
        with headwater.Consumer(**options) as consumer:
            consumer.subscribe([topic])
            timer = threading.Timer(LIMIT_S, consumer.stop_processing)
            timer.start()
            try:
                consumer.process(lambda r: ended(consumer, r), workers=2, **plan)
            finally:
                timer.cancel()
        return

    async def run() -> None:
        async with headwater.aio.Consumer(**options) as consumer:
            await consumer.subscribe([topic])

            async def later(record) -> None:
                ended(consumer, record)

            await consumer.process(later, workers=2, **plan)

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Lanes, "add"),
        (Lanes, "next"),
        (Lanes, "finish"),
        (Lanes, "commits"),
        (Lanes, "committable"),
        (ConsumerCore, "commit_async"),
        (ConsumerCore, "run_due_work"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_bug_in_parallel_work_ends_process_with_it(
    options, topic, monkeypatch, face, owner, name
) -> None:
    planted = Planted(monkeypatch, owner, name)
    with pytest.raises(BugError, match=name):
        process(options, topic, face, fine, stop=name == "committable", commit_interval_s=0)
    planted.armed = False
    with headwater.Consumer(**options) as consumer:
        committed = consumer.committed([(topic, 0)])[topic, 0]
    first = committed.offset if committed else 0
    monkeypatch.undo()
    with headwater.Consumer(**options) as consumer:
        consumer.subscribe([topic])
        left = []
        until(
            "the rest is read",
            lambda: len(left) >= COUNT - first,
            lambda: left.extend(consumer.poll(0.05)),
        )
        assert [record.offset for record in left] == list(range(first, COUNT))


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_a_bug_in_dead_letters_ends_process_and_skips_nothing(
    broker, options, topic, monkeypatch, face
) -> None:
    broker.topic(name=topic + "-dead")
    Planted(monkeypatch, dead_letters, "dead_letter_headers")

    with pytest.raises(BugError):
        process(options, topic, face, bad, retries=0, dead_letter_topic=topic + "-dead")
    with headwater.Consumer(**options) as consumer:
        committed = consumer.committed([(topic, 0)])[topic, 0]
    assert committed is None or committed.offset == 0


def test_failures_of_other_workers_are_logged(options, topic, caplog) -> None:
    both = threading.Barrier(2)

    def work(record) -> None:
        both.wait(LIMIT_S)
        raise BugError(record.value)

    with headwater.Consumer(**options) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(headwater.ProcessingError):
            consumer.process(work, workers=2, retries=0)
    assert "process() failed a second time" in caplog.text


# -- the admin and the loop thread


def test_a_bug_in_a_call_of_the_admin_is_raised_and_the_next_call_works(
    broker, topic, monkeypatch
) -> None:
    planted = Planted(monkeypatch, AdminCalls, "ask_controller")
    with headwater.Admin(bootstrap_servers=broker.bootstrap) as admin:
        with pytest.raises(BugError):
            admin.delete_topics([topic])
        planted.armed = False
        admin.delete_topics([topic])


def test_a_loop_that_ends_fails_every_call_and_new_clients_get_another(
    broker, options, topic, caplog
) -> None:
    consumer = headwater.Consumer(**options)
    admin = headwater.Admin(bootstrap_servers=broker.bootstrap)
    broker_client({"bootstrap_servers": broker.bootstrap})
    admin.list_topics()
    consumer.subscribe([topic])
    consumer._poller.thread.post(consumer._poller.thread.loop.stop)
    ended = "the background loop of the blocking clients has ended"
    until("it is logged", lambda: ended in caplog.text)
    for call in (
        lambda: Reading(consumer).consumer.poll(5),
        lambda: consumer.commit({(topic, 0): 1}),
        lambda: consumer.position((topic, 0)),
        admin.list_topics,
        consumer.close,
        admin.close,
    ):
        with pytest.raises(LoopDiedError):
            call()
    assert not consumer._poller._finalizer.alive  # it was closed: no warning that it was not
    assert not admin._core.calls._finalizer.alive
    with headwater.Consumer(**options) as another:
        another.subscribe([topic])
        Reading(another).finish()
    assert broker_client({"bootstrap_servers": broker.bootstrap}).topics({topic}.__contains__)


def test_work_that_cannot_be_started_fails_its_caller() -> None:
    class Loop:
        def call_soon_threadsafe(self, call) -> None:
            threading.Thread(target=self._run, args=(call,)).start()

        def _run(self, call) -> None:
            try:
                call()
            except BugError:
                return

        def create_task(self, work) -> None:
            work.close()
            raise BugError("create_task")

    async def work() -> None:
        return

    waiting = blocking._Waiting(Loop(), work())
    waiting.post()
    assert waiting.listen(lambda: True, LIMIT_S)
    with pytest.raises(LoopDiedError, match="create_task"):
        waiting.result()


# -- dropped clients


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_clients_that_nobody_closed_leave_nothing_behind(broker, options, topic) -> None:
    def use() -> None:
        consumer = headwater.Consumer(**options)
        consumer.subscribe([topic])
        while not consumer.poll(0.05):
            pass
        admin = headwater.Admin(bootstrap_servers=broker.bootstrap)
        admin.list_topics()
        del consumer, admin
        gc.collect()

    with headwater.Consumer(**options):  # the loop thread has its own descriptors
        pass
    before = descriptors()
    with pytest.warns(ResourceWarning, match="unclosed (Consumer|Admin)"):
        use()
    until("descriptors are closed", lambda: descriptors() <= before)
    with headwater.Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert admin.describe_group(topic).members == ()  # it left, and committed nothing
        assert admin.group_offsets(topic) == {}


def test_an_asyncio_consumer_that_nobody_closed_leaves_nothing_behind(options, topic) -> None:
    async def use() -> None:
        consumer = headwater.aio.Consumer(**options)
        await consumer.subscribe([topic])
        while not await consumer.poll(0.05):
            pass
        del consumer
        gc.collect()

    async def run() -> None:
        before = descriptors()
        with pytest.warns(ResourceWarning, match="unclosed Consumer"):
            await use()
        await asyncio.to_thread(until, "descriptors are closed", lambda: descriptors() <= before)

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))
