"""The table of stalls in its smallest form: steps and bytes, no times."""

import pytest
from benchmarks.stalls.requests import largest, served
from benchmarks.stalls.scenes import Scale, scenes
from benchmarks.stalls.watch import Connection

from headwater.transport.inbound import FIRST_BUFFER
from headwater.wire import codec
from headwater.wire.framing import read_request_header
from tests.unit.broker.live import Live, until

SIZE = 20_000
SMALLEST = Scale(3, 2, 3, 5, 3, 3, 3, 1 << 20)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with Live(tmp_path_factory.mktemp("stalls")) as broker:
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


def test_large_numbers_of_everything_are_played_and_stay_within_the_budget(live):
    names = []
    for scene in scenes(live.port, SMALLEST):
        assert scene.play() > 0
        assert live.on_loop(lambda: live.context.memory.used) <= live.context.memory.limit
        names.append(scene.name)
    assert len(names) == len(set(names)) > 8
