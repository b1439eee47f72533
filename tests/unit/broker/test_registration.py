"""A broker's registration, over sessions of its own and of others."""

import pytest

from headwater.broker.registration import (
    PreviousRegistration,
    Registration,
    prepare_store,
    share_secret,
    store_log_dirs,
)
from headwater.controller.store.metadata_store import (
    SessionState,
    Stat,
    StoreError,
    StoreFailure,
)
from headwater.controller.store.znodes import BrokerEndpoint, BrokerNode
from tests.unit.controller.fake_loop import FakeLoop, MemoryFiles, embedded

NODE = BrokerNode(0, (BrokerEndpoint("PLAINTEXT", "h", 1, "PLAINTEXT"),))


class LosingStore:
    """Loses the connection at one write: before it arrives, or before its answer does."""

    def __init__(self, store, write: int, *, applied: bool) -> None:
        self._store, self._left, self._applied = store, write, applied

    def __getattr__(self, name):
        return getattr(self._store, name)

    def create(self, path, data, reply, **how):
        self._left -= 1
        if self._left:
            self._store.create(path, data, reply, **how)
            return
        lost = StoreError(StoreFailure.CONNECTION_LOSS, path)
        if self._applied:
            self._store.create(path, data, lambda _: reply(lost), **how)
        else:
            self._store.exists("/", lambda _: reply(lost))


class Setting:
    def __init__(self) -> None:
        self.loop, self.files = FakeLoop(), MemoryFiles()
        self.store = embedded(self.loop, self.files)
        self.epochs: list[int] = []
        prepare_store(self.store, "c", lambda _: None)
        self.loop.run()

    def register(self) -> Registration:
        registration = Registration(
            self.store,
            NODE,
            "c",
            lambda stat: self.epochs.append(stat.czxid),
            self.loop.call_later,
        )
        self.loop.run()
        return registration


@pytest.fixture
def setting():
    return Setting()


def test_the_epoch_is_the_transaction_that_registered(setting):
    setting.register()
    stats: list[Stat] = []
    setting.store.exists("/brokers/ids/0", stats.append)
    setting.loop.run()
    assert setting.epochs == [stats[0].czxid]


def test_a_removed_registration_is_made_again_under_a_new_epoch(setting):
    setting.register()
    setting.store.delete("/brokers/ids/0", -1, lambda _: None)
    setting.loop.run()
    first, second = setting.epochs
    assert second > first


def test_the_node_of_a_former_session_is_waited_out(setting, caplog):
    """KAFKA-7165: a broker must neither hang nor fail on its own old node."""
    setting.store.create("/brokers/ids/0", b"{}", lambda _: None)
    setting.loop.run()
    setting.register()
    assert setting.epochs == []
    assert "belongs to another session" in caplog.text
    setting.store.delete("/brokers/ids/0", -1, lambda _: None)
    setting.loop.run()
    assert len(setting.epochs) == 1


def test_a_new_session_registers_anew(setting):
    registration = setting.register()
    registration._session_changed(SessionState.OPEN)
    setting.loop.run()
    assert len(setting.epochs) == 2, "the node is still ours, and its epoch is told again"


def test_a_broker_that_withdraws_stays_away(setting):
    registration = setting.register()
    done: list[None] = []
    registration.withdraw(lambda: done.append(None))
    setting.loop.run()
    names: list[list[str]] = []
    setting.store.children("/brokers/ids", names.append)
    setting.loop.run()
    assert (done, names) == ([None], [[]])


@pytest.mark.parametrize("applied", [False, True], ids=["lost", "answer lost"])
def test_a_registration_whose_outcome_is_unknown_is_looked_at(setting, applied):
    setting.store = LosingStore(setting.store, 1, applied=applied)
    setting.register()
    assert len(setting.epochs) == 1


@pytest.mark.parametrize("applied", [False, True], ids=["lost", "answer lost"])
@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (lambda store, reply: prepare_store(store, "another", reply), "c"),
        (lambda store, reply: share_secret(store, b"secret", reply), b"secret"),
        (lambda store, reply: store_log_dirs(store, 0, {"id": "/data"}, reply), None),
    ],
    ids=["paths", "secret", "log dirs"],
)
def test_a_start_whose_writes_have_an_unknown_outcome_goes_on(setting, prepare, expected, applied):
    answers: list[object] = []
    prepare(LosingStore(setting.store, 1, applied=applied), answers.append)
    setting.loop.run()
    assert answers == [expected]


def test_a_former_life_is_waited_for_in_a_session_that_begins_meanwhile(setting):
    """The watch ends with the session in which it was left."""
    listeners, gone = [], []

    class Forgetful(LosingStore):
        def exists(self, path, reply, watch=None):
            self._store.exists(path, reply)

        def on_session(self, listener):
            listeners.append(listener)

    setting.store.create("/brokers/ids/0", NODE.encode(), lambda _: None)
    PreviousRegistration(Forgetful(setting.store, 0, applied=True), 0, lambda: gone.append(True))
    setting.loop.run()
    setting.store.delete("/brokers/ids/0", -1, lambda _: None)
    setting.loop.run()
    assert gone == []
    for _ in range(2):
        listeners[0](SessionState.OPEN)
        setting.loop.run()
    assert gone == [True]


def test_a_store_of_another_cluster_or_without_its_data_gets_no_registration(setting, caplog):
    setting.store.set("/cluster/id", b'{"version":"1","id":"other"}', -1, lambda _: None)
    setting.register()
    assert setting.epochs == []
    assert "belongs to cluster other" in caplog.text
    setting.store.delete("/cluster/id", -1, lambda _: None)
    setting.loop.sleep(60_000)
    assert setting.epochs == []
    assert "has lost its data" in caplog.text
    setting.store.create("/cluster/id", b'{"version":"1","id":"c"}', lambda _: None)
    setting.loop.sleep(60_000)
    assert len(setting.epochs) == 1, "the data was restored"
