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
    "inside": "import pytest\n\ndef test_x():\n    pytest.skip('no tool')\n",
    "outside": "import pytest\npytest.skip('no tool', allow_module_level=True)\n",
}


NAMED = "import pytest\n{mark}\n" + "".join(f"def test_{c}(): pass\n" for c in "abcdefgh")
IN_ORDER = "pytestmark = pytest.mark.in_order('a reason')"


def run_pytest(folder, *options, **environment):
    shutil.copy(CONFTEST, folder)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("ci", "failed"), [("true", 2), ("", 0)])
def test_a_skip_fails_where_ci_promises_every_tool(tmp_path, ci, failed):
    for name, text in SKIPS.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    run = run_pytest(tmp_path, "--continue-on-collection-errors", CI=ci)
    assert run.stdout.count("CI=true does not allow") >= failed, run.stdout
    assert ("1 failed" in run.stdout, "1 error" in run.stdout) == (bool(failed),) * 2, run.stdout
    assert bool(run.returncode == 1) == bool(failed), run.stdout


def order(folder, *options):
    """The tests in the order of a run, and its seed."""
    run = run_pytest(folder, "-v", *options)
    assert run.returncode == 0, run.stdout
    seed = re.search(r"--order-seed=(\d+)", run.stdout)
    return re.findall(r"(test_\w+\.py::test_\w) PASSED", run.stdout), seed and seed[1]


def test_tests_run_in_an_order_that_the_seed_repeats(tmp_path):
    for name in ("one", "two", "three"):
        (tmp_path / f"test_{name}.py").write_text(NAMED.format(mark=""))
    first, seed = order(tmp_path)
    assert order(tmp_path, f"--order-seed={seed}") == (first, seed)
    other, _ = order(tmp_path, f"--order-seed={int(seed) + 1}")
    assert other != first
    for one in (first, other):
        assert list(one) != sorted(one)
        assert len([path for path, _ in groupby(one, lambda test: test.split("::")[0])]) == 3


def test_the_workers_of_a_run_agree_on_the_order(tmp_path):
    (tmp_path / "test_one.py").write_text(NAMED.format(mark=""))
    run = run_pytest(tmp_path, "-p", "xdist", "-n", "2")
    assert run.returncode == 0, run.stdout


def test_a_module_may_keep_its_order(tmp_path):
    (tmp_path / "test_one.py").write_text(NAMED.format(mark=IN_ORDER))
    (tmp_path / "test_two.py").write_text(NAMED.format(mark=""))
    found, _ = order(tmp_path, "--order-seed=1")
    kept = [name for name in found if "test_one" in name]
    mixed = [name for name in found if "test_two" in name]
    assert kept == sorted(kept)
    assert mixed != sorted(mixed)
    assert order(tmp_path, "--order-seed=0") == (sorted(found), None)
