"""From the subject of a certificate to the name of a user, in bounded time."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.config.keys import ConfigError
from headwater.config.linear_regex import LinearRegex
from headwater.config.mapping_rules import name_of_subject, parse_rules, rules_problem

ALICE = "CN=Alice,OU=ServiceUsers,O=Org,C=CH"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", ALICE),
        ("", ALICE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@$2/L", "alice@$2"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", "ALICE"),
        ("RULE:^CN=(.*?),OU=Others.*$/$1/L, RULE:^CN=([^,]+),.*$/svc\\/$1/", "svc/Alice"),
        ("RULE:CN=Alice/short/", None),
        ("RULE:CN=Bob,.*/bob/, DEFAULT", ALICE),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "alice"),
    ],
)
def test_the_first_rule_that_matches_the_whole_subject_counts(rules, name):
    assert name_of_subject(parse_rules(rules), ALICE) == name


@pytest.mark.parametrize(
    "rules",
    ["NONE", "RULE:CN=(.*/$1/", "RULE:a/b", "RULE:(a)\\1/$1/", "RULE:(?i)a/x/", "RULE:\\bA/x/",
     "RULE:(?=a)a/x/", "RULE:(a{900}){9}/x/", "RULE:a/b/X"],
)  # fmt: skip
def test_rules_that_cannot_work_are_refused(rules):
    assert rules_problem(rules)
    with pytest.raises(ConfigError):
        parse_rules(rules)


WORDS = st.sampled_from(
    ["RULE:", "DEFAULT", "/", "//", "\\/", "\\", "$1", "$", "L", "U", ",", ", ", " ", "\n", "CN=",
     "(", ")", "[", "]", "{2,", "}", "*", "+", "?", ".", "^", "|", "(?:", "\\d", "\0", "é", "a"]
)  # fmt: skip
RULES = st.builds(
    "RULE:{}/{}/{}".format,
    st.lists(WORDS, max_size=5).map("".join),
    st.lists(WORDS, max_size=3).map("".join),
    st.sampled_from(["", "L", "U", "LU"]),
)


@given(
    st.one_of(
        st.text(max_size=30),
        st.lists(WORDS, max_size=12).map("".join),
        st.lists(RULES | st.just("DEFAULT"), min_size=1, max_size=3).map(",".join),
    ),
    st.text(max_size=20),
)
def test_noise_is_rules_or_refused_and_never_crashes(text, subject):
    if rules_problem(text) is not None:
        with pytest.raises(ConfigError):
            parse_rules(text)
        return
    rules = parse_rules(text)
    assert rules, "without a rule, nobody would have a name"
    applied = [rule.apply(subject) for rule in rules]
    assert name_of_subject(rules, subject) == next(
        (one for one in applied if one is not None), None
    )


def test_no_pattern_can_take_long():
    began = time.process_time()
    for pattern in ("(a*)*b", "(a|a)*b", "(.*?,OU=){12}x", ".*.*.*.*.*.*.*.*.*x"):
        assert LinearRegex(pattern).match_whole("a" * 60 + ",OU=" * 100) is None
    assert time.process_time() - began < 5


PIECES = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "(a)", "(b|ab)", "(a|)", "a*", "b+?", "(ab)*", "a{1,2}", ".*?",
     "(.+)", "(a*)", "^", "$", r"\w", r"\d"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=6).map("".join), st.text("ab1,", max_size=9))
def test_it_matches_like_re(pattern, text):
    ours, theirs = LinearRegex(pattern).match_whole(text), re.fullmatch(pattern, text)
    assert (ours is None) == (theirs is None)
    if theirs is not None and ours is not None:
        assert ours == [theirs[0], *(group or "" for group in theirs.groups())]
