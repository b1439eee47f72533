"""Every block of docs/pipelines runs, in the order of its page, and prints what the page says.

A block whose first line names a file (`# shop.py`, `-- shop/gold.sql`) is a file of a reader's
project: it is written, and every project on a page is loaded and checked. Commands run in this
process, against a broker of the page's own, and Spark is the session of the suite. What is not run
is listed here, with the reason.
"""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import headwater
from headwater import pipelines
from headwater.cli.app import command as app
from headwater.pipelines.declaring.graph import check, order
from headwater.pipelines.ingest import ingest
from headwater.pipelines.running import runner
from headwater.pipelines.topic_source.options import NAMES
from headwater.testing import Broker

PAGES = Path(__file__).parents[2] / "docs" / "pipelines"
NAMED = sorted(page.stem for page in PAGES.glob("*.md"))
ADDRESS = "localhost:9092"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "log.message.timestamp.after.max.ms": str(2**62),
    "replica.high.watermark.checkpoint.interval.ms": "50",
}

ONLY_PARSED = {
    "headwater up": "a broker that does not end; the page has one",
    "headwater collect": "does not end; tests/integration/test_collect_*.py run both collectors",
    "--continuous": "does not end; test_runner.py and test_cluster.py run pipelines like that",
    "--master spark:": "there is no cluster here; test_cluster.py starts one",
}
NOT_OURS = {
    "pip install": "the environment has it",
    "curl": "tests/integration/test_collect_http.py asks in the same way",
    "kafka-consumer-groups": "test_lag.py asks Kafka's own tool where it is there",
    "spark-pipelines": "test_sdp_template.py runs it",
}
NOT_CODE = {
    "text": "what a terminal shows, or a synopsis, whose options must exist",
    "html": "tests/integration/test_collect_browser.py loads the script in a browser",
}
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
EVERYWHERE = {"--help", "--json", "--bootstrap-server", "-o"}

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"(?:#|--|//) ([\w./-]+\.(?:py|sql|yml|json))\n")
_SAID = re.compile(r"# -> (.*)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#([\w-]+))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_PATH = re.compile(r"`((?:tests|tools|examples)/[\w./]+)`")
_FOLDER = re.compile(r"(?<=[\":])(?=(?:checkpoints|lake|archive)[/\"])")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]+)")


class Reader:
    """Somebody who types what a page says, in an empty folder."""

    def __init__(self, page, folder, broker):
        self.page = page
        self.broker = broker
        self.folder = folder
        self.names = {}
        self.projects = set()

    def take(self, language, code):
        """Do what a block says; what was printed."""
        code = code.replace(ADDRESS, self.broker.bootstrap)
        if named := _FILE.match(code):
            return self.write(named[1], code)
        if language in NOT_CODE:
            return ""
        return getattr(self, f"take_{language}")(code)

    def write(self, name, code):
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(code.partition("\n")[2] if name.endswith(".json") else code)
        if place.suffix != ".json":
            self.projects.add(self.folder / Path(name).parts[0])
        return ""

    def take_python(self, code):
        """The session's JVM was started in another folder, so that paths must be whole for it."""
        said, whole = io.StringIO(), _FOLDER.sub(f"{self.folder}/", code)
        with redirect_stdout(said):
            exec(compile(whole, str(self.page), "exec"), self.names)
        return said.getvalue()

    def take_diff(self, code):
        """What the program looks like after the change."""
        after = [line[1:] for line in code.splitlines() if not line.startswith("-")]
        return self.take_python("\n".join(after))

    def take_sh(self, code):
        return "".join(self.run(line) for line in _lines(code))

    def take_console(self, code):
        typed = "\n".join(line[2:] for line in code.splitlines() if line.startswith("$ "))
        return self.take_sh(typed)

    def run(self, line):
        words = shlex.split(line, comments=True)
        if any(line.startswith(start) for start in NOT_OURS):
            return ""
        assert "headwater" in words, f"{line}: neither run nor in NOT_OURS"
        ours = words[words.index("headwater") + 1 :]
        parse(ours)
        if any(part in line for part in ONLY_PARSED):
            return ""
        if ours[0] == "pipeline" and ours[1] in {"run", "check"}:
            ours += ["--bootstrap-server", self.broker.bootstrap]
        if line.startswith("headwater"):
            done = CliRunner().invoke(app, ours)
            assert done.exit_code == 0, f"{line}\n{done.output}{done.exception!r}"
            return done.output
        return self.run_in_shell(line)

    def run_in_shell(self, line):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout


def _lines(code):
    """Commands, of which one may stand on several lines."""
    joined = re.sub(r"\\\n\s*", " ", code)
    return [line for line in re.sub(r"\|\n\s*", "| ", joined).splitlines() if line.strip()]


def parse(words):
    """Let click read a command's words, all the way down; a renamed option fails here."""
    command, context, name = app, None, "headwater"
    while isinstance(command, click.Group):
        context = command.make_context(name, list(words), parent=context)
        name, command, words = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
    assert command is not None
    command.make_parser(click.Context(command, parent=context)).parse_args(list(words))


def blocks(page):
    """The language, the code and the line of each block."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        yield block[1], block[2], text[: block.start(2)].count("\n")


def orders(bootstrap):
    """What some pages expect to be there: 120 orders of the 11th of November 2026, in segments."""
    with headwater.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(120):
            customer = f"c{number % 7}"
            value = json.dumps({"id": number, "customer": customer, "price": number / 2})
            when = 1_794_400_000_000 + number
            producer.send("orders", value.encode(), customer.encode(), timestamp=when).result(10)


@pytest.mark.parametrize("name", NAMED)
def test_the_blocks_of_a_page_do_what_the_page_says(name, spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "run", partial(runner.run, spark=spark))
    monkeypatch.setattr(ingest, "run_ingest", partial(ingest.run_ingest, spark=spark))
    page = PAGES / f"{name}.md"
    with Broker(SETTINGS, data_dir=tmp_path / "headwater-data") as broker:
        monkeypatch.setenv("HEADWATER_BOOTSTRAP", broker.bootstrap)
        if name in {"ingest", "archive"}:
            broker.create_topic("orders", configs={"segment.bytes": "5000"})
            orders(broker.bootstrap)
        reader = Reader(page, tmp_path, broker)
        for language, code, line in blocks(page):
            printed = reader.take(language, code).splitlines()
            for said in _SAID.findall(code):
                assert said in printed, f"{page.name}, the block after line {line}: {printed}"
        for query in spark.streams.active:
            query.stop()
    for project in reader.projects:
        assert check(pipelines.load_project(project)) == [], project


def test_the_pipeline_on_the_front_page_has_no_problem(tmp_path):
    (code,) = (code for _, code, _ in blocks(PAGES.parents[1] / "README.md") if "@hw." in code)
    place = tmp_path / "shop.py"
    place.write_text(code)
    project = pipelines.load_project(place)
    assert check(project, topics=["orders"]) == []
    assert [flow.name for flow in order(project.declarations)] == ["orders", "turnover"]


@pytest.mark.parametrize("name", NAMED)
def test_the_links_of_a_page_lead_somewhere(name):
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    for target, heading in _LINK.findall(text):
        place = PAGES / target
        assert place.exists(), target
        assert not heading or heading in headings(place), f"{target}#{heading}"
    for path in _PATH.findall(text):
        assert (PAGES.parents[1] / path).exists(), path


def headings(page):
    """What can follow the # of a link."""
    found = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_page_is_in_the_index():
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    assert [name for name in NAMED if f"({name}.md)" not in index and name != "README"] == []


def commands(group=app, words=()):
    """Every command by its words, with its options."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            options = [one for one in command.params if isinstance(one, click.Option)]
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
