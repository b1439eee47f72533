"""Our bytes are Kafka's bytes: random messages of every version, written by others as well.

Each oracle is asked only for the versions it knows; together they know all but a few, which
`test_nothing_that_is_served_goes_unchecked` counts.
"""

from random import Random

import pytest
from tools.jars import JarsUnavailable

from headwater.wire import codec
from headwater.wire.apis import API
from headwater.wire.schema import Struct
from tests.compat.codec import java_oracle, kafka_python_oracle, kio_oracle
from tests.unit.wire.samples import VERSIONS, sample

SAMPLES = 10
KNOWN = {kio_oracle: 360, kafka_python_oracle: 380, "kafka-4.3.1": 390, "kafka-clients-3.9.2": 420}
"""How many (message, version) pairs each oracle has at least: a shrunken oracle checks nothing."""


def _samples(pairs: list[tuple[type[Struct], int]]) -> list[tuple[Struct, int]]:
    return [
        (sample(kind, version, Random(f"{kind.__name__} {version} {seed}")), version)
        for kind, version in pairs
        for seed in range(SAMPLES)
    ]


def _assert_same(message: Struct, version: int, theirs: bytes) -> None:
    ours = codec.encode_bytes(message, version)
    assert ours.hex() == theirs.hex(), f"v{version} of {message!r}"


@pytest.mark.parametrize("oracle", [kio_oracle, kafka_python_oracle], ids=["kio", "kafka-python"])
def test_every_message_has_the_bytes_that_another_python_client_writes(oracle):
    known = [pair for pair in VERSIONS if oracle.knows(*pair)]
    assert len(known) > KNOWN[oracle]
    for message, version in _samples(known):
        theirs = oracle.written(message, version)
        _assert_same(message, version, theirs)


@pytest.mark.parametrize("jars", ["kafka-4.3.1", "kafka-clients-3.9.2"])
def test_every_message_has_the_bytes_that_kafka_itself_writes(jars):
    messages = _samples(VERSIONS)
    try:
        answers = java_oracle.written_by_java(jars, messages)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    known = [answer for answer in answers if answer is not None]
    assert len(known) > KNOWN[jars] * SAMPLES
    for (message, version), theirs in zip(messages, answers, strict=True):
        if theirs is not None:
            _assert_same(message, version, theirs)


def test_nothing_that_is_served_goes_unchecked():
    served = {
        (kind, version)
        for api in API.values()
        if api.advertised is not None
        for kind in (api.request, api.response)
        for version in api.served.all()
    }
    unchecked = {
        (kind, version)
        for kind, version in served
        if not kio_oracle.knows(kind, version) and not kafka_python_oracle.knows(kind, version)
    }
    assert unchecked == set()
