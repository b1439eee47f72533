"""Type checkers see what the clients take and return."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent.parent
USES = Path(__file__).with_name("typed_uses.py")


def test_right_uses_pass_and_wrong_ones_are_found(tmp_path) -> None:
    wanted = {
        (number, code)
        for number, line in enumerate(USES.read_text().splitlines(), start=1)
        for code in re.findall(r"# error: (\S+)$", line)
    }
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-error-summary",
         "--cache-dir", str(ROOT / ".mypy_cache"), str(USES)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = {
        (int(number), code)
        for number, code in re.findall(r":(\d+): error: .*\[(\S+)\]$", done.stdout, re.MULTILINE)
    }
    assert wanted, "the file marks what must be found"
    assert found == wanted, done.stdout + done.stderr
