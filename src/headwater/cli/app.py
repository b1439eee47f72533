"""The command itself: its nouns, its version, and how an error becomes one line."""

from importlib import import_module
from typing import NoReturn

import click

from headwater import __version__
from headwater.errors import KafkaError

NOUNS = {
    "up": "Start a broker.",
    "topics": "Create, list, describe, alter and delete topics.",
    "produce": "Send records from lines, JSON or files.",
    "consume": "Print records.",
    "collect": "Write events from HTTP or from files to a topic.",
    "groups": "List, describe, delete and reset consumer groups.",
    "configs": "Describe, set and unset configs of topics, brokers and the cluster.",
    "pipeline": "Run pipelines on Spark: topics to tables and back, exactly once.",
    "perf": "Measure what producers and consumers reach here.",
    "log": "Dump and verify the files of a log.",
    "archive": "Copy sealed segments to a folder; audit and replay them.",
}


class Nouns(click.Group):
    """Commands that live in `headwater.cli.<noun>` and are imported when asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The nouns, in the order of the table."""
        return list(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a noun; only its own module is imported."""
        if cmd_name not in NOUNS:
            return None
        command = import_module(f"headwater.cli.{cmd_name}").command
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table as it stands, without importing a noun for its help line."""
        with formatter.section("Commands"):
            formatter.write_dl(list(NOUNS.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; a refusal becomes one line and exit code 1."""
        try:
            return super().invoke(ctx)
        except KafkaError as refused:
            _fail(refused.message)
        except OSError as problem:
            said = problem.strerror or str(problem)
            _fail(f"{problem.filename}: {said}" if problem.filename else said)


def _fail(message: str) -> NoReturn:
    raise click.ClickException(" ".join(message.split())) from None


@click.group(cls=Nouns, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headwater", message="%(prog)s %(version)s")
def command() -> None:
    """Event streaming in Python: a broker that Kafka clients take for Kafka, and its tools."""


def main() -> None:
    """The entry point of the console script."""
    command(prog_name="headwater")
