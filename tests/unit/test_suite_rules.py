"""The rules of tests/conftest.py, each on a test run of its own."""

import os
import re
import shutil
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
SKIPS = {
    "a test": "import pytest\n\ndef test_x():\n    pytest.skip('no tool')\n",
    "a module": "import pytest\npytest.skip('no tool', allow_module_level=True)\n",
}


NAMED = "import pytest\n{mark}\n" + "".join(f"def test_{c}(): pass\n" for c in "abcdefgh")
IN_ORDER = "pytestmark = pytest.mark.in_order('a reason')"


def run_pytest(folder, *options, **environment):
    shutil.copy(CONFTEST, folder)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("kind", SKIPS)
@pytest.mark.parametrize(("ci", "failed"), [("true", True), ("", False)])
def test_a_skip_fails_where_ci_promises_every_tool(tmp_path, kind, ci, failed):
    (tmp_path / "test_it.py").write_text(SKIPS[kind])
    run = run_pytest(tmp_path, CI=ci)
    assert ("CI=true does not allow" in run.stdout) == failed, run.stdout
    assert (run.returncode in (1, 2)) == failed, run.stdout


def order(folder, *options):
    """The tests in the order of a run, and its seed."""
    run = run_pytest(folder, "-v", "-p", "no:xdist", *options)
    assert run.returncode == 0, run.stdout
    seed = re.search(r"--order-seed=(\d+)", run.stdout)
    return re.findall(r"(test_\w+\.py::test_\w) PASSED", run.stdout), seed and seed[1]


def test_tests_run_in_an_order_that_the_seed_repeats(tmp_path):
    for name in ("one", "two", "three"):
        (tmp_path / f"test_{name}.py").write_text(NAMED.format(mark=""))
    first, seed = order(tmp_path)
    assert order(tmp_path, f"--order-seed={seed}") == (first, seed)
    orders = {tuple(order(tmp_path, f"--order-seed={seed}")[0]) for seed in (1, 2)}
    assert len(orders) == 2
    for one in orders:
        assert list(one) != sorted(one)
        assert len([path for path, _ in groupby(one, lambda test: test.split("::")[0])]) == 3


def test_the_workers_of_a_run_agree_on_the_order(tmp_path):
    (tmp_path / "test_one.py").write_text(NAMED.format(mark=""))
    run = run_pytest(tmp_path, "-n", "2")
    assert run.returncode == 0, run.stdout


def test_a_module_may_keep_its_order(tmp_path):
    (tmp_path / "test_one.py").write_text(NAMED.format(mark=IN_ORDER))
    found, _ = order(tmp_path, "--order-seed=1")
    assert found == sorted(found)
    (tmp_path / "test_one.py").write_text(NAMED.format(mark=""))
    assert order(tmp_path, "--order-seed=0") == (sorted(found), None)
