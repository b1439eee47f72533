"""The site is built strictly: a link that leads nowhere and a page without a place are errors."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(folder):
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path):
    """What the site is made of."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "docs_hooks.py", tmp_path / "tools")
    return tmp_path


@pytest.mark.parametrize(
    ("page", "addition", "complaint"),
    [
        ("style.md", "[x](nowhere.md)", "'nowhere.md', but the target is not found"),
        ("style.md", "[x](formats.md#nowhere)", "does not contain an anchor '#nowhere'"),
        ("forgotten.md", "# A page", "forgotten.md"),
    ],
)
def test_a_broken_page_fails_the_build(copy, page, addition, complaint):
    with (copy / "docs" / page).open("a") as text:
        text.write(f"\n{addition}\n")
    done = build(copy)
    assert done.returncode == 1
    assert complaint in done.stdout + done.stderr


def test_the_site_is_whole(copy):
    done = build(copy)
    assert done.returncode == 0, done.stderr
    home = (copy / ".cache" / "site" / "index.html").read_text(encoding="utf-8")
    assert "existing Kafka clients use unchanged" in home
