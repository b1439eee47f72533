"""A broker's registration, over sessions of its own and of others."""

import pytest

from headwater.broker.registration import Registration, prepare_store
from headwater.controller.store.metadata_store import SessionState, Stat
from headwater.controller.store.znodes import BrokerEndpoint, BrokerNode
from tests.unit.controller.fake_loop import FakeLoop, MemoryFiles, embedded

NODE = BrokerNode(0, (BrokerEndpoint("PLAINTEXT", "h", 1, "PLAINTEXT"),))


class Setting:
    def __init__(self) -> None:
        self.loop, self.files = FakeLoop(), MemoryFiles()
        self.store = embedded(self.loop, self.files)
        self.epochs: list[int] = []
        prepare_store(self.store, "c", lambda _: None)
        self.loop.run()

    def register(self) -> Registration:
        registration = Registration(self.store, NODE, self.epochs.append)
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
