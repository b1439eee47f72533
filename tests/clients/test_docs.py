"""Every block of code in docs/clients runs, in the order of its page, and prints what it says."""

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tools import api_reference

from headwater.testing import Broker

PAGES = Path(__file__).parents[2] / "docs" / "clients"
ADDRESS = "localhost:9092"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SAID = re.compile(r"# -> (.*)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)\)")


def blocks(page):
    """The language, the code and the first line of each block."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        yield block[1], block[2], text[: block.start(2)].count("\n")


def run_python(code, page, line, bootstrap, names):
    """The blocks of a page share their names, as a reader would think."""
    said = io.StringIO()
    source = "\n" * line + code.replace(ADDRESS, bootstrap)
    with redirect_stdout(said):
        exec(compile(source, str(page), "exec"), names)
    return said.getvalue()


def run_shell(code, page, line, bootstrap, names):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code.replace(ADDRESS, bootstrap)],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        check=False,
    )
    assert done.returncode == 0, f"{page}:{line}\n{done.stdout}{done.stderr}"
    return done.stdout


RUN = {"python": run_python, "sh": run_shell}


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    with Broker() as broker:
        for language, code, line in blocks(page):
            printed = RUN[language](code, page, line, broker.bootstrap, names).splitlines()
            for said in _SAID.findall(code):
                assert said in printed, f"{page.name}, the block after line {line}"


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_the_links_of_a_page_lead_somewhere(page):
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_reference_says_what_the_docstrings_say():
    assert api_reference.outdated() == [], "run python -m tools.api_reference"


def test_the_reference_has_every_public_name():
    import headwater

    page = (PAGES / "reference.md").read_text(encoding="utf-8")
    for name in set(headwater.__all__) - {"__version__", "codec"}:
        assert f"`headwater.{name}`" in page, name
