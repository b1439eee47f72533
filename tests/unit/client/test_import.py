"""What `import headwater` and its clients load: a guard of start-up that does not read a clock."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from headwater import errors
from headwater.records.codec import NAME

MOST = 165
"""Modules of ours with both blocking clients."""
NEEDLESS = {"json", "uuid", "platform", "pyarrow", "numpy", "pandas", "sqlite3", "multiprocessing"}
OTHER_ROOMS = ("broker", "log", "controller", "coordination", "replication", "pipelines", "collect")


def loaded(code):
    told = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(told.stdout.split())


@pytest.fixture(scope="module")
def modules():
    return loaded("import headwater; headwater.Producer; headwater.Consumer")


def test_the_package_alone_loads_none_of_its_rooms() -> None:
    assert {name for name in loaded("import headwater") if name.startswith("headwater.")} == set()


def test_clients_load_nothing_needless(modules) -> None:
    assert modules & NEEDLESS == set()
    rooms = {f"headwater.{room}" for room in OTHER_ROOMS}
    assert {name for name in modules if name in rooms} == set()


def test_clients_load_few_modules(modules) -> None:
    assert len([name for name in modules if name.startswith("headwater")]) <= MOST


@pytest.mark.skipif(NAME == "pure", reason="the codec in plain Python is the one in use")
def test_one_record_codec_is_enough(modules) -> None:
    assert {name for name in modules if name.startswith("headwater.records.pure_")} == set()


def test_type_checkers_see_every_error_of_the_clients() -> None:
    """They read the imports that never run; programs get the same classes by name."""
    tree = ast.parse(Path(errors.__file__).read_text())
    seen = {
        row.asname: statement.module
        for block in tree.body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for row in statement.names
    }
    assert seen == errors._ELSEWHERE
    for name, home in seen.items():
        assert getattr(errors, name).__module__ == home
        assert issubclass(getattr(errors, name), Exception)
