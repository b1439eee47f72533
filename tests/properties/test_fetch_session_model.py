"""Fetch sessions against a plain model: what a request means never depends on how it was said."""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.broker.fetch_session import EVICTION_MS, FetchPartition, FetchSessionCache
from headwater.errors import E, KafkaError

SLOTS = 3
PARTITIONS = st.integers(0, 5)


class Client:
    """A client and what it believes its session to hold."""

    def __init__(self):
        self.session_id = 0
        self.epoch = 0
        self.offsets: dict[int, int] = {}


class Sessions(RuleBasedStateMachine):
    """Some clients with more sessions than slots, some of them confused."""

    def __init__(self):
        super().__init__()
        self.cache = FetchSessionCache(SLOTS, itertools.count(1))
        self.clients = [Client() for _ in range(5)]
        self.now = 0

    def partitions(self, offsets):
        return [
            FetchPartition(("t", at), offset, 1000, -1, -1, -1) for at, offset in offsets.items()
        ]

    def begin(self, client, epoch, changes, forgotten=()):
        """The context that comes of a request, or the code that refuses it."""
        keys = [("t", at) for at in forgotten]
        try:
            return self.cache.begin(
                self.now, client.session_id, epoch, False, self.partitions(changes), keys
            )
        except KafkaError as refused:
            return refused.code

    def check(self, client, context):
        meant = {want.key[1]: want.fetch_offset for want in context.partitions}
        assert meant == client.offsets

    @rule(who=st.integers(0, 4), offsets=st.dictionaries(PARTITIONS, st.integers(0, 9), min_size=1))
    def begins_anew(self, who, offsets):
        client = self.clients[who]
        client.offsets = dict(offsets)
        context = self.cache.begin(
            self.now, client.session_id, 0, False, self.partitions(offsets), []
        )
        self.check(client, context)
        client.session_id, client.epoch = context.session_id, 1 if context.session_id else 0

    @rule(
        who=st.integers(0, 4),
        changes=st.dictionaries(PARTITIONS, st.integers(10, 19)),
        forgotten=st.sets(PARTITIONS),
        passed=st.integers(0, EVICTION_MS),
    )
    def goes_on(self, who, changes, forgotten, passed):
        self.now += passed
        client = self.clients[who]
        if not client.session_id:
            return
        context = self.begin(client, client.epoch, changes, forgotten)
        if isinstance(context, E):
            assert context is E.FETCH_SESSION_ID_NOT_FOUND, "it can only have been evicted"
            client.session_id = client.epoch = 0
            client.offsets = {}
            return
        client.offsets.update(changes)
        for at in forgotten:
            client.offsets.pop(at, None)
        self.check(client, context)
        client.epoch += 1
        if not context.session_id:
            assert not client.offsets
            client.session_id = client.epoch = 0

    @rule(who=st.integers(0, 4), wrong=st.integers(2, 9))
    def is_confused(self, who, wrong):
        client = self.clients[who]
        if not client.session_id:
            return
        assert self.begin(client, client.epoch + wrong, {0: 99}) in {
            E.FETCH_SESSION_ID_NOT_FOUND,
            E.INVALID_FETCH_SESSION_EPOCH,
        }

    @rule(who=st.integers(0, 4))
    def leaves(self, who):
        client = self.clients[who]
        self.cache.begin(self.now, client.session_id, -1, False, [], [])
        client.session_id = client.epoch = 0
        client.offsets = {}

    @invariant()
    def the_cache_is_bounded(self):
        assert len(self.cache) <= SLOTS


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
