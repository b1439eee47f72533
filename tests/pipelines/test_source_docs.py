"""The code of docs/pipelines/source.md runs, in its order, and prints what the page says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from headwater.pipelines.topic_source.options import NAMES

PAGES = Path(__file__).parents[2] / "docs" / "pipelines"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SAID = re.compile(r"# -> (.*)$", re.MULTILINE)


def test_the_code_of_the_page_runs(spark, broker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    broker.create_topic("orders")
    names = {}
    for code in _BLOCK.findall((PAGES / "source.md").read_text(encoding="utf-8")):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(code.replace("localhost:9092", broker.bootstrap), names)
        assert _SAID.findall(code) == said.getvalue().splitlines()


def test_every_option_is_in_the_table():
    page = (PAGES / "source.md").read_text(encoding="utf-8")
    assert [name for name in NAMES.values() if f"`{name}`" not in page] == []


@pytest.mark.parametrize("page", ["source.md", "migration.md"])
def test_links_lead_somewhere(page):
    text = (PAGES / page).read_text(encoding="utf-8")
    missing = [
        target for target in re.findall(r"\]\(([^)#:]+)\)", text) if not (PAGES / target).exists()
    ]
    assert missing == []
