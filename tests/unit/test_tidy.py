"""The house is tidy, and the rules can tell when it is not."""

import ast

import pytest
from hypothesis import HealthCheck, settings
from tools import tidy


def test_every_file_is_tidy():
    assert [text for source in tidy.sources() for text in tidy.complaints(source)] == []


def test_every_folder_of_code_is_a_room_and_every_exception_is_used():
    assert tidy.rooms_without_docstring() == []
    assert tidy.exceptions_without_use() == []


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
    ],
)
def test_each_rule_finds_what_it_is_for(text, complaint):
    assert any(complaint in found for found in tidy.complaints(source(text)))


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
    ],
)
def test_what_is_allowed_is_not_complained_of(path, text):
    assert tidy.complaints(source(text, path)) == []


def test_no_property_fails_because_the_machine_is_busy():
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
