"""Expressions of clients match what Python's do, in time that grows with the text alone."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.broker.turns import finish
from headwater.coordination.transactions.patterns import (
    MAX_DEPTH,
    MAX_KEPT,
    MAX_REPEAT,
    MAX_STATES,
    STATES_AT_A_TIME,
    IdPattern,
    PatternError,
)

ATOMS = st.sampled_from(
    ["a", "b", "-", ".", "[ab]", "[^a]", "[a-c-]", "\\d", "\\W", "\\.", "(a|b)", "(?:ab|)"]
)
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "{,2}"])
PARTS = st.tuples(ATOMS, REPEATS).map("".join) | st.sampled_from("^$")
PATTERNS = st.lists(st.lists(PARTS, max_size=4).map("".join), max_size=3).map("|".join)
TEXTS = st.text("abc-.1{,2}", max_size=6)


def matches(pattern: str, text: str) -> bool:
    return finish(IdPattern(pattern).match_in_turns(text))


@settings(max_examples=400, deadline=None)
@given(PATTERNS, TEXTS)
def test_an_expression_matches_what_python_matches(pattern, text):
    # Python takes {,2} for a repeat and $ also before a last line feed.
    theirs = re.compile(pattern.replace("{,2}", "\\{,2}").replace("$", "\\Z"))
    assert matches(pattern, text) is bool(theirs.fullmatch(text))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("", ""),
        ("orders-.*", "orders-7"),
        ("\\w+\\s\\D", "a1 b"),
        ("[]a]+", "a]"),
        ("[\\d\\-x]+", "1-x"),
        ("(?P<n>a)(?<m>b)", "ab"),
        ("\\Aa\\z", "a"),
        ("ü[à-ï]", "üé"),
        ("a{b}", "a{b}"),
        ("(?i)ab[c-d][^e]", "AbDf"),
    ],
)
def test_syntax(pattern, text):
    assert matches(pattern, text)
    assert not matches(pattern, text + "\n")


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[a",
        "*",
        "a**",
        "a{2}{3}",
        "\\",
        "[b-a]",
        "(?=a)",
        "a(?i)",
        "(?i)[b-a]",
        "\\1",
        "\\b",
        "[[:alpha:]]",
        f"a{{{MAX_REPEAT + 1}}}",
        "a{3,2}",
        f"((a{{{MAX_STATES // 10}}}){{100}})",
    ],
)
def test_what_cannot_be_compiled_is_refused(pattern):
    with pytest.raises(PatternError):
        IdPattern(pattern)


def test_an_expression_that_takes_python_forever():
    pattern = IdPattern("(a*)*(a*)*(a|aa)+b")
    assert not finish(pattern.match_in_turns("a" * 5_000))
    assert finish(pattern.match_in_turns("a" * 5_000 + "b"))


def test_an_expression_without_case_excludes_both_cases():
    assert not matches("(?i)[^e]", "E")


def test_a_long_text_is_matched_a_few_states_at_a_time():
    """A long id and many alternatives of many states each: thousands of turns, and bounded memory."""
    pattern = IdPattern("|".join(f"(.*{letter}.{{480}})" for letter in "abcd"))
    visited, most, turns = 0, 0, 0
    step = pattern._step

    def counted(current, letter, *, at_end):
        nonlocal visited
        visited += len(current)
        return step(current, letter, at_end=at_end)

    pattern._step = counted
    steps = pattern.match_in_turns("abcd" * 150)
    for _ in steps:
        most, visited, turns = max(most, visited), 0, turns + 1
    assert turns > 100
    assert most <= STATES_AT_A_TIME + MAX_STATES
    assert sum(len(key[0]) + len(found) for key, found in pattern._steps.items()) <= MAX_KEPT


def test_groups_inside_each_other_are_limited():
    assert matches("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH, "a")
    with pytest.raises(PatternError, match="inside each other"):
        IdPattern("(" * 900 + ")" * 900)
