"""The front page and the pages about pipelines: a reader types every block; no option is forgotten."""

import re

import click
import pytest
from tools.class_archive import quick_java

from headwater import pipelines
from headwater.cli.app import command as app
from headwater.pipelines.topic_source.options import NAMES
from tests.pages import ROOT, Reader

PAGES = ROOT / "docs" / "pipelines"
NAMED = sorted(page.stem for page in PAGES.glob("*.md"))
ONE_SITTING = ["source", "sink", "tables", "lag", "migration", "archive", "testing"]
"""Pages about Spark programs, read one after the other in one session: starting Spark takes long."""
SITTINGS = [["../../README"], ONE_SITTING, *([name] for name in NAMED if name not in ONE_SITTING)]
OPTIONS_ON = {
    "pipeline run": "running",
    "pipeline check": "running",
    "pipeline init": "README",
    "pipeline ingest": "ingest",
    "collect http": "collecting",
    "collect tail": "collecting",
    "archive copy": "archive",
    "archive verify": "archive",
    "archive audit": "archive",
    "archive replay": "archive",
}
OF_OTHERS = {"--describe", "--group", "--add-modules"}
"""Options of Kafka's and Java's commands."""
EVERYWHERE = {"--help", "--json", "--bootstrap-server", "--timeout", "-o"}
_OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]+)")

pytestmark = pytest.mark.timeout(900)  # Spark takes its time on a busy machine


@pytest.fixture(autouse=True)
def short_lived_java(monkeypatch):
    """Every JVM of these tests is made to start quickly."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", quick_java())


@pytest.mark.parametrize("sitting", SITTINGS, ids=lambda pages: pages[0])
def test_a_reader_can_type_every_block_of_a_page(sitting, tmp_path):
    with Reader(tmp_path) as reader:
        for name in sitting:
            reader.read(PAGES / f"{name}.md")


def commands(group=app, words=()):
    """Every command by its words, with its options."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            options = [one for one in command.params if not getattr(one, "hidden", True)]
            found = {word for one in options for word in (*one.opts, *one.secondary_opts)}
            yield " ".join((*words, name)), found


def test_every_option_of_a_command_is_on_its_page_and_no_page_has_another():
    known = dict(commands())
    for name, page in OPTIONS_ON.items():
        text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
        told = set(_OPTION.findall(text)) | EVERYWHERE
        assert known[name] <= told, f"{name}: not in {page}.md"
    everything = set().union(*known.values()) | EVERYWHERE | OF_OTHERS
    for name in NAMED:
        said = set(_OPTION.findall((PAGES / f"{name}.md").read_text(encoding="utf-8")))
        assert said <= everything, f"{name}.md: no command has these"


def test_every_option_of_the_source_is_in_its_table():
    page = (PAGES / "source.md").read_text(encoding="utf-8")
    assert [name for name in NAMES.values() if f"`{name}`" not in page] == []


def test_every_public_name_is_in_the_reference():
    page = (PAGES / "reference.md").read_text(encoding="utf-8")
    missing = [name for name in dir(pipelines) if f"`headwater.pipelines.{name}`" not in page]
    assert missing == ["sink"], "sink is create_sink under Spark's name"
