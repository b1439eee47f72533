"""Both codecs write the same bytes for any message; for any bytes, nothing but WireError is raised."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.wire import codec, framing, interpreter
from headwater.wire.codec import WireError
from tests.unit.wire.samples import VERSIONS, sample

PAIRS = st.sampled_from(VERSIONS)
RANDOMS = st.randoms(use_true_random=False)


@settings(max_examples=300, deadline=None)
@given(PAIRS, RANDOMS)
def test_what_is_written_reads_back_and_the_twins_agree(pair, random):
    kind, version = pair
    message = sample(kind, version, random)
    data = codec.encode_bytes(message, version)
    assert data == interpreter.encode(message, version)
    assert codec.decode(kind, version, data) == (message, len(data))
    assert interpreter.decode(kind, version, data) == (message, len(data))


def both(kind, version, data):
    """What each twin makes of the bytes; an error counts as None."""
    answers = []
    for decode in (codec.decode, interpreter.decode):
        try:
            answers.append(decode(kind, version, data))
        except WireError:
            answers.append(None)
    return answers


@settings(max_examples=300, deadline=None)
@given(PAIRS, RANDOMS, st.data())
def test_damaged_bytes_are_read_alike_or_refused_alike(pair, random, data):
    kind, version = pair
    damaged = bytearray(codec.encode_bytes(sample(kind, version, random), version) or b"\x00")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, damaged[at] ^ 1]))
    compiled, walked = both(kind, version, bytes(damaged))
    assert compiled == walked


@settings(max_examples=200, deadline=None)
@given(PAIRS, RANDOMS, st.floats(0, 1))
def test_a_cut_message_is_read_alike_or_refused_alike(pair, random, share):
    kind, version = pair
    whole = codec.encode_bytes(sample(kind, version, random), version)
    compiled, walked = both(kind, version, whole[: int(len(whole) * share)])
    assert compiled == walked


@settings(max_examples=200, deadline=None)
@given(PAIRS, st.binary(max_size=300))
def test_garbage_is_read_alike_or_refused_alike(pair, garbage):
    compiled, walked = both(*pair, garbage)
    assert compiled == walked


@given(st.binary(max_size=60))
def test_a_request_header_of_garbage_is_read_or_refused(garbage):
    try:
        header = framing.read_request_header(garbage, 0, len(garbage))
    except WireError:
        return
    assert header.body <= len(garbage)
