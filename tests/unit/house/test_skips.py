"""The rule of tests/conftest.py, on a test run of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[2] / "conftest.py"
SKIPS = {
    "a test": "import pytest\n\ndef test_x():\n    pytest.skip('no tool')\n",
    "a module": "import pytest\npytest.skip('no tool', allow_module_level=True)\n",
}


@pytest.mark.parametrize("kind", SKIPS)
@pytest.mark.parametrize(("ci", "failed"), [("true", True), ("", False)])
def test_a_skip_fails_where_ci_promises_every_tool(tmp_path, kind, ci, failed):
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_it.py").write_text(SKIPS[kind])
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "CI": ci},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("CI=true does not allow" in run.stdout) == failed, run.stdout
    assert (run.returncode in (1, 2)) == failed, run.stdout
