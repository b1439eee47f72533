"""Both record codecs, for tests that hold for either."""

from importlib import import_module
from importlib.util import find_spec

import pytest

_BUILT = find_spec("headwater.records._codec") is not None

BOTH = [
    pytest.param("codec.pure", id="pure"),
    pytest.param(
        "_codec",
        id="compiled",
        marks=pytest.mark.skipif(not _BUILT, reason="no C compiler has built the codec"),
    ),
]


@pytest.fixture(params=BOTH)
def codec(request):
    return import_module(f"headwater.records.{request.param}")
