"""Bodies become events as they came, or are refused with a reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.collect.events import (
    MAX_DEPTH,
    MAX_EVENTS,
    EventReader,
    EventRules,
    Malformed,
    ParsedBody,
    RefusedEvent,
    compacted,
)


def read(body: bytes | str, by_line: bool = False, **rules: object) -> ParsedBody:
    reader = EventReader(EventRules(**rules))  # type: ignore[arg-type]
    return reader.body(body if isinstance(body, bytes) else body.encode(), by_line=by_line)


def taken(body: bytes | str, **rules: object) -> list[tuple[bytes | None, bytes]]:
    reading = read(body, **rules)
    assert reading.refusals == []
    return [(event.key, event.value) for event in reading.events]


def reasons(body: bytes | str, by_line: bool = False, **rules: object) -> list[tuple[int, str]]:
    return [(row.number, row.reason) for row in read(body, by_line, **rules).refusals]


def test_an_object_an_array_and_lines_hold_the_same_events() -> None:
    one, two = '{"user_id":"a"}', '{"user_id":"b"}'
    both = [(b"a", one.encode()), (b"b", two.encode())]
    assert taken(one) == both[:1]
    assert taken(f"[{one},{two}]") == both
    assert taken(f"{one}\n{two}\n") == both
    assert taken(f"\ufeff \r\n[\n {one} ,\t{two}\n]\n") == both
    assert taken(f"{one}\r\n\r\n{two}") == both


def test_only_the_space_between_tokens_goes() -> None:
    body = '{ "user_id" : 1 ,\n "text": "a  \\" \\\\ b\\n", "é": [ 1.50, 1e400, -0 ] }'
    assert taken(body) == [
        (b"1", '{"user_id":1,"text":"a  \\" \\\\ b\\n","é":[1.50,1e400,-0]}'.encode())
    ]


def test_numbers_of_any_length_stay_what_they_were() -> None:
    digits = "9" * 5000
    assert taken(f'{{"user_id":{digits},"x":{digits}.{digits}}}') == [
        (digits.encode(), f'{{"user_id":{digits},"x":{digits}.{digits}}}'.encode())
    ]


def test_a_number_and_its_text_are_one_key() -> None:
    assert [key for key, _ in taken('[{"user_id":7},{"user_id":"7"}]')] == [b"7", b"7"]


def test_a_path_leads_into_nested_objects() -> None:
    assert taken('{"user":{"id":"x"}}', key="user.id")[0][0] == b"x"
    assert reasons('{"user":"x"}', key="user.id") == [(0, "has no user.id")]


def test_without_a_key_an_event_is_refused_or_has_none() -> None:
    assert reasons('[{"user_id":null},{}]') == [(0, "has no user_id"), (1, "has no user_id")]
    assert taken("{}", key_required=False) == [(None, b"{}")]
    assert taken('{"user_id":5}', key=None) == [(None, b'{"user_id":5}')]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("NaN", "contains NaN, which is not JSON"),
        ('{"user_id":1,"x":[-Infinity]}', "contains -Infinity, which is not JSON"),
        ('{"user_id":1,"user_id":2}', "has two fields with the same name"),
        ('{"user_id":1,"x":{"y":1,"\\u0079":2}}', "has two fields with the same name"),
        ('"text"', "is not a JSON object"),
        ("17", "is not a JSON object"),
        ("[]", "is not a JSON object"),
        ('{"user_id":true}', "has a user_id that is neither text nor a number"),
        ('{"user_id":{}}', "has a user_id that is neither text nor a number"),
        ('{"user_id":"\\ud800"}', "has a user_id that is not Unicode text"),
        ('{"user_id":1,"long":"' + "x" * 100 + '"}', "has 123 bytes; the limit is 100"),
    ],
)
def test_a_bad_event_is_refused_and_its_neighbors_are_taken(event: str, reason: str) -> None:
    body = f'[{{"user_id":1}},{event},{{"user_id":2}}]'
    reading = read(body, max_bytes=100)
    assert [(row.number, row.reason) for row in reading.refusals] == [(1, reason)]
    assert [event.number for event in reading.events] == [0, 2]


def test_the_limit_is_of_bytes_and_of_what_is_stored() -> None:
    event = '{"user_id":1,"x":"éé"}'
    spaced = event.replace(":", " : ")
    assert len(event.encode()) == 24
    assert taken(spaced, max_bytes=24) == [(b"1", event.encode())]
    assert read(event, max_bytes=23).refusals[0].too_large


def nested(depth: int) -> str:
    return '{"user_id":1,"x":' + "[" * (depth - 1) + "]" * (depth - 1) + "}"


def test_nesting_ends_at_the_limit() -> None:
    assert len(taken(nested(MAX_DEPTH))) == 1
    deep = (0, f"is nested more than {MAX_DEPTH} deep")
    assert reasons(nested(MAX_DEPTH + 1)) == [deep]
    assert reasons(nested(MAX_DEPTH + 1) + "\n" + nested(100_000), by_line=True) == [
        deep,
        (1, deep[1]),
    ]
    assert len(taken('{"user_id":1,"wide":[' + ",".join(["[]"] * 1000) + "]}")) == 1


def test_brackets_in_text_are_no_nesting() -> None:
    assert len(taken('{"user_id":1,"x":"' + "[{" * 500 + '"}')) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "is empty"),
        (b" \n ", "is empty"),
        (b"\xff{}", "is not UTF-8 at byte 0"),
        (b"nonsense", "is not JSON at character 0"),
        (b'{"user_id":1', "is not JSON at character 12"),
        (b'{"user_id":1} {"user_id":2}', "has more after its object"),
        (b'[{"user_id":1}', "is not JSON at character 14"),
        (b'[{"user_id":1},]', "is not JSON at character 15"),
        (b'[{"user_id":1}{}]', "is not JSON at character 14"),
        (b'[{"user_id":1}] x', "has more after its array"),
        (b"[" * 100_000, "is nested more than 64 deep"),
        (b'{"user_id":"' + b'\\"' * 100_000, "is not JSON"),
        (b'{"user_id":"a\nb"}', "is not JSON"),
    ],
)
def test_a_body_that_cannot_be_cut_is_malformed(body: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=f"^{reason}") as refused:
        read(body)
    assert refused.value.status == 400


def test_a_broken_line_is_refused_alone() -> None:
    broken = "is not JSON at character 1: Expecting property name enclosed in double quotes"
    body = '{"user_id":1}\n{x\n{"user_id":2}'
    for by_line in (False, True):
        assert reasons(body, by_line) == [(1, broken)]
    assert reasons('x\n{"user_id":1}', by_line=True)[0][0] == 0
    with pytest.raises(Malformed):
        read('x\n{"user_id":1}')


def test_a_separator_that_is_no_newline_cuts_no_line() -> None:
    assert len(taken('{"user_id":1,"x":"a\u2028b\u0085c"}\n{"user_id":2}')) == 2


@pytest.mark.parametrize("join", ["\n", ","])
def test_a_body_has_a_most_of_events(join: str) -> None:
    body = join.join(["{}"] * (MAX_EVENTS + 1))
    whole = body if join == "\n" else f"[{body}]"
    with pytest.raises(Malformed) as refused:
        read(whole, key=None)
    assert refused.value.status == 413
    assert len(read(join.join(["{}"] * MAX_EVENTS) if join == "\n" else "[]", key=None)[1]) == 0


def test_one_event_is_judged_alone() -> None:
    reader = EventReader(EventRules())
    assert reader.event(' {"user_id": 1} ') == (b"1", b'{"user_id":1}')
    with pytest.raises(RefusedEvent, match="has more after its object"):
        reader.event('{"user_id":1}{}')


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_what_is_compact_means_the_same(value: object, indent: object, plain: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=plain)  # type: ignore[arg-type]
    again = compacted(text)
    assert json.loads(again) == json.loads(text)
    assert again == json.dumps(value, separators=(",", ":"), ensure_ascii=plain)


@given(st.binary(max_size=40) | st.text('{}[]":,\\ \n1eNx-', max_size=40).map(str.encode))
def test_no_body_breaks_the_reader(body: bytes) -> None:
    try:
        reading = read(body, key_required=False)
    except Malformed:
        return
    for event in reading.events:
        assert isinstance(json.loads(event.value), dict)
