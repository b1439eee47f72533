"""The table of stalls in its smallest form: steps and bytes, no times."""

import sys
import tracemalloc

import pytest
from benchmarks.stalls.__main__ import BYTES_PER_BYTE, FREE_BYTES
from benchmarks.stalls.requests import largest, served
from benchmarks.stalls.scenes import Scale, scenes
from benchmarks.stalls.watch import Connection

from headwater.broker import turns
from headwater.broker.handlers import groups
from headwater.errors import E
from headwater.transport.frame_protocol import FIRST_BUFFER
from headwater.wire import codec
from headwater.wire.framing import read_request_header
from headwater.wire.messages.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from tests.unit.broker.live import Client, Live, request_frame, until

SIZE = 20_000
LARGER_SIZE = 30_000
"""Where sixteen times the bytes is about as much as what every request may take besides."""
ELEMENTS = 20
CALLS_A_ROUND = 6_000
"""A guard against growth, set a little above the largest figure measured at this size."""
AT_ONCE = {"Produce", "Fetch"}
"""APIs that exceed it today: they handle a request of this size in one round."""
SHARDS = 20
"""A request that each shard walks over takes as many times its length."""
LEAVE = LeaveGroupRequest(group_id="g", member_id="m"), LeaveGroupResponse, 0
SMALLEST = Scale(3, 2, 3, 5, 3, 3, 3, 1 << 20, 1, 3)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    settings = {"offsets.topic.num.partitions": str(SHARDS)}
    with Live(tmp_path_factory.mktemp("stalls"), settings) as broker, Client(broker.port) as client:
        client.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)
        until(lambda: client.ask(*LEAVE).error_code == E.UNKNOWN_MEMBER_ID)  # groups are loaded
        yield broker


@pytest.mark.parametrize("api", list(served()), ids=lambda api: api.name)
def test_the_largest_request_of_an_api_is_whole_and_leaves_nothing_behind(live, api):
    frame = largest(api, SIZE)
    header = read_request_header(frame, 4, len(frame))
    body, end = codec.decode(api.request, header.version, frame, header.body)
    assert end == len(frame) <= SIZE
    has_lists = any(isinstance(getattr(body, name), list) for name in body.__slots__)
    assert len(frame) > SIZE // 2 or not has_lists
    with Connection(live.port) as client:
        client.ask(frame)
    until(lambda: live.on_loop(lambda: live.context.memory.used <= FIRST_BUFFER))
    with Connection(live.port) as client:
        assert client.ask(largest(next(a for a in served() if a.name == "ApiVersions"), SIZE))


def test_a_large_request_to_join_is_answered_undecoded(live, monkeypatch, caplog):
    monkeypatch.setattr(groups, "MOST_RECORDS", 0)
    request = JoinGroupRequest(group_id="g", reason="r" * SIZE)
    frame = request_frame(11, 9, 1, "test", request)
    broken = frame[:-SIZE] + b"\xff" * SIZE  # decoding it would end the connection
    with Client(live.port) as client:
        client.send_bytes(broken)
        assert client.answer(JoinGroupResponse, 9).error_code == E.INVALID_REQUEST
    assert "refused a JoinGroup request: it has" in caplog.text


class Rounds:
    """Counts the calls that the loop's thread makes in one callback of its event loop."""

    def __init__(self):
        self.most = self._count = 0

    def start(self):
        frame = sys._getframe()
        while frame.f_code.co_name != "run":  # the coroutine of `Live.on_loop`
            frame = frame.f_back
        self._loop = frame.f_back
        sys.setprofile(self._event)

    def stop(self):
        sys.setprofile(None)

    def _event(self, frame, kind, _):
        if kind == "call" and frame.f_back is self._loop:
            self._count = 0
        if kind in ("call", "c_call"):
            self._count += 1
            self.most = max(self.most, self._count)


@pytest.mark.parametrize("inner", [1, 0])
@pytest.mark.parametrize(
    "api", [api for api in served() if api.name not in AT_ONCE], ids=lambda api: api.name
)
def test_no_round_of_the_loop_handles_more_than_some_elements(live, api, inner, monkeypatch):
    monkeypatch.setattr(turns, "ELEMENTS_A_TURN", ELEMENTS)
    monkeypatch.setattr(groups, "ELEMENTS_A_TURN", ELEMENTS)
    frame, rounds = largest(api, SIZE, inner=inner), Rounds()
    live.on_loop(rounds.start)
    try:
        with Connection(live.port) as client:
            client.ask(frame)
    finally:
        live.on_loop(rounds.stop)
    assert 0 < rounds.most <= CALLS_A_ROUND


MORE_BYTES = {"AlterConfigs", "IncrementalAlterConfigs"}
"""APIs that take more memory than the bound at this size today."""


@pytest.mark.parametrize(
    "api", [api for api in served() if api.name not in MORE_BYTES], ids=lambda api: api.name
)
def test_a_request_takes_no_more_than_a_multiple_of_its_bytes(live, api):
    frame = largest(api, LARGER_SIZE)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        with Connection(live.port) as client:
            client.ask(frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before <= BYTES_PER_BYTE * len(frame) + FREE_BYTES


def test_large_numbers_of_everything_are_played_and_stay_within_the_budget(live):
    names = []
    for scene in scenes(live.port, SMALLEST):
        assert scene.play() > 0
        assert live.on_loop(lambda: live.context.memory.used) <= live.context.memory.limit
        names.append(scene.name)
    assert len(names) == len(set(names)) > 8
