"""The overrides in the store, read by a broker that starts."""

from headwater.broker.config_changes import ConfigChanges
from headwater.controller.store.metadata_store import SessionState, StoreError, StoreFailure


class LosingStore:
    """A store whose session expires during the first reads."""

    def __init__(self):
        self.listeners, self.asked, self.lost = [], [], True

    def on_session(self, listener):
        self.listeners.append(listener)

    def children(self, path, reply, watch=None):
        self.asked.append((path, reply))

    def answer(self):
        while self.asked:
            path, reply = self.asked.pop(0)
            reply(StoreError(StoreFailure.SESSION_EXPIRED, path) if self.lost else [])


def test_a_start_whose_session_expires_ends_in_the_next_session():
    store, ready = LosingStore(), []
    changes = ConfigChanges(store, 1, lambda *_: None, lambda *_: None, lambda *_: None)
    changes.start(lambda: ready.append(True))
    store.answer()
    assert ready == []
    (listener,) = store.listeners
    for lost in (True, False):  # the next one expires in the middle of the reads
        listener(SessionState.OPEN)
        _, reply = store.asked.pop(0)
        reply([])
        store.lost = lost
        store.answer()
        assert ready == ([] if lost else [True])
    listener(SessionState.OPEN)
    store.answer()
    assert ready == [True], "once"
