"""The project is tidy, and each rule finds what it is for."""

import ast

import pytest
from hypothesis import HealthCheck, settings
from tools import tidy, tidy_names, tidy_words


def test_the_project_is_tidy():
    assert tidy.all_complaints() == []


def source(text: str, path: str = "src/headwater/log/some.py") -> tidy.Source:
    return tidy.Source(path, text, ast.parse(text))


DOC = '"""A room."""\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1\n", "has no docstring"),
        (DOC + "x = 1\n" * 501, "holds more than one idea"),
        (DOC + "def f():\n" + "    x = 1\n" * 60, "more than a screen"),
        (DOC + "# TO" + "DO: later\n", "line 2: TO" + "DO"),
        (DOC + "# FIX" + "ME\n", "line 2: FIX" + "ME"),
        (DOC + "path = '/ho" + "me/me/data'\n", "one machine's own"),
        (DOC + "async def f():\n    pass\n", "async outside of its rooms"),
        (DOC + "import time\n", "take a Clock"),
        (DOC + "from random import choice\n", "take a Clock"),
        (DOC + "# ---- reading ----\n", "line 2: a section begins with"),
        (DOC + "# ==========\n", "line 2: a section begins with"),
    ],
)
def test_each_rule_finds_what_it_is_for(text, complaint):
    assert any(complaint in found for found in tidy.complaints(source(text)))


@pytest.mark.parametrize("reach", ["replica.log.size", "self.leader(0).partition.role"])
def test_a_partition_has_one_door(reach):
    found = tidy.complaints(source(DOC + f"size = {reach}\n", "src/headwater/broker/some.py"))
    assert "ask the replica instead" in found[0]


@pytest.mark.parametrize(
    "condition",
    ["time.monotonic() - begun < 3", "0 < perf_counter() - begun <= 3", "3 > time.time() - begun"],
)
def test_no_test_may_hope_for_a_quick_machine(condition):
    found = tidy.complaints(source(f"assert {condition}\n", "tests/unit/test_some.py"))
    assert "asserts that little time has passed" in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tests/unit/test_some.py", "assert time.monotonic() - begun > 0.25\n"),
        ("tests/unit/test_some.py", "assert time.monotonic() < limit\n"),
        ("src/headwater/broker/some.py", DOC + "async def f():\n    pass\n"),
        ("src/headwater/controller/some_loop.py", DOC + "async def f():\n    pass\n"),
        ("src/headwater/seams/some.py", DOC + "import time\n"),
        ("tests/unit/test_some.py", "import time\n"),
        ("src/headwater/log/some.py", DOC + "import timeit\n"),
        ("src/headwater/log/some.py", DOC + "# -- reading, and what follows\n"),
    ],
)
def test_what_is_allowed_is_not_complained_of(path, text):
    assert tidy.complaints(source(text, path)) == []


@pytest.mark.parametrize(
    "line",
    [
        "Reads the file anew.",
        "A topic stands twice in the request.",
        "Mend the disk.",
        "whoever calls this",
        "So many records.",
        "the one that waits",
        "is no JSON",
        "it is told of the end",
        "the word that it came",
        "serialise the behaviour",
    ],
)
def test_a_banned_word_is_found_with_what_to_write_instead(line):
    (found, *_) = tidy_words.all_banned_words([("docs/some/page.md", f"# Page\n\n{line}\n")])
    assert found.startswith("docs/some/page.md: line 3: '")
    assert "; write " in found


@pytest.mark.parametrize(
    "line", ["`...` stands for anything", "there is no C compiler", "it is no longer there"]
)
def test_plain_words_are_not_banned(line):
    assert tidy_words.all_banned_words([("docs/some/page.md", line)]) == []


def test_a_public_class_name_means_one_thing():
    one = source("class Fetch:\n    pass\n", "src/headwater/log/one.py")
    two = source("class Fetch:\n    pass\n", "src/headwater/broker/two.py")
    private = source("class _Fetch:\n    pass\n", "src/headwater/broker/three.py")
    (found,) = tidy_names.classes_named_twice([one, two, private, private])
    assert "broker/two.py and src/headwater/log/one.py: each defines a public class Fetch" in found


def test_a_public_name_has_a_caller_in_production():
    home = source(
        "__all__ = ['unused']\nLIMIT = 1\ndef used(): ...\ndef unused(): ...\n"
        "class Thing:\n    def called(self): ...\n    def uncalled(self): ...\n"
    )
    caller = source("print(f'{used()}', Thing().called())\n", "src/headwater/log/caller.py")
    test = source("LIMIT, unused(), Thing().uncalled()\n", "tests/unit/test_some.py")
    found = tidy_names.names_without_caller([home, caller, test])
    named = [text.partition(" uses ")[2].partition(";")[0] for text in found]
    assert named == ["LIMIT", "unused", "Thing.uncalled"]
    page = ("docs/clients/page.md", "Call `unused()` with `LIMIT`.")
    (left,) = tidy_names.names_without_caller([home, caller], [page])
    assert "Thing.uncalled" in left


def test_an_exception_that_nothing_needs_is_a_complaint():
    found = tidy_names.exceptions_without_use([source("x = 1\n")])
    assert len(found) == len(
        {**tidy_names.TWICE, **tidy_names.UNCALLED, **tidy_names.UNCALLED_FILES}
    )


def test_no_property_fails_because_the_machine_is_busy():
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


@pytest.mark.parametrize(
    ("setting", "condition", "complains"),
    [
        ("took = time.monotonic() - begun", "took < 3", True),
        ("took = time.monotonic() - begun", "took >= 3", False),
        ("took = time.monotonic() - begun", "0.8 * rate * took - 2 <= served", True),
        ("took = time.monotonic() - begun", "served <= rate * (took + 2)", False),
        ("speed = count / (time.monotonic() - begun)", "speed > 100", True),
        ("speed = count / (time.monotonic() - begun)", "speed <= 100", False),
        ("took, all = (time.perf_counter() - begun) * 1000, 7", "round(took) < 3 or all", True),
        ("took = 5 - begun", "took < 3", False),
    ],
)
def test_no_variable_with_elapsed_time_is_asserted_to_be_small(setting, condition, complains):
    text = f"def test_it():\n    {setting}\n    assert {condition}\n"
    found = tidy.complaints(source(text, "tests/unit/test_some.py"))
    assert any("little time has passed" in one for one in found) == complains
