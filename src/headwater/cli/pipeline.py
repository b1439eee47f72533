"""`headwater pipeline`: check and run pipelines on Spark, ingest a topic into a table.

Spark is imported only when a command needs it, so help and usage errors appear at once.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.client_config import file_bootstrap
from headwater.cli.options import (
    bootstrap_option,
    connecting_option,
    connection_settings,
    json_option,
    parse_assignments,
)
from headwater.cli.output import show
from headwater.cli.pipeline_runs import exit_if_stopped, print_flows, run_scope, running_options
from headwater.cli.reach_broker import require_broker

if TYPE_CHECKING:
    from headwater.pipelines.connection_settings import ConnectionSettings
    from headwater.pipelines.declaring.declare import Project


@click.group("pipeline")
def command() -> None:
    """Run pipelines on Spark: topics to tables and back, exactly once."""
    if find_spec("pyspark") is None:
        raise click.ClickException("pipelines need Spark: pip install 'headwater[spark,lake]'")


_path_argument = click.argument("path", default=".", type=click.Path())
_project_bootstrap = click.option(
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT",
    help="One or more brokers, instead of those in the project.",
)


@command.command()
@_path_argument
@running_options
@_project_bootstrap
@connecting_option
@click.option(
    "--refresh",
    "refreshed",
    multiple=True,
    metavar="FLOW",
    help="Restart a flow: delete its checkpoint and empty its table; may be repeated.",
)
def run(
    path: str,
    once: bool,
    master: str | None,
    progress: bool,
    spark_settings: dict[str, str],
    as_json: bool,
    bootstrap: str | None,
    client_settings: tuple[str, ...],
    refreshed: tuple[str, ...],
) -> None:
    """Run the pipeline at PATH: a folder with pipeline.yml, or one .py or .sql file.

    Each flow continues where it stopped. The graph is checked before Spark starts; an error in it is
    one line and exit code 2, a failed flow is one line and exit code 1.
    """
    project = _loaded(path, bootstrap, client_settings)
    _reach(project.connection)
    from headwater.pipelines.running.runner import run as run_project

    with run_scope(progress, project.storage, once) as (model, stop):
        report = run_project(
            project,
            once=once,
            master=master,
            progress=model,
            settings=spark_settings,
            stop=stop,
            refresh=refreshed,
            say=partial(click.echo, err=True),
        )
    print_flows(report.flows, as_json)
    exit_if_stopped(once, stop)


@command.command()
@_path_argument
@_project_bootstrap
@connecting_option
@click.option("--offline", is_flag=True, help="Check only the files; do not connect to a broker.")
@json_option
def check(
    path: str,
    bootstrap: str | None,
    client_settings: tuple[str, ...],
    offline: bool,
    as_json: bool,
) -> None:
    """Check the pipeline at PATH without Spark: unknown tables, cycles, missing topics, types."""
    project = _loaded(path, bootstrap, client_settings)
    if not offline:
        _reach(project.connection)
    from headwater.pipelines.declaring.graph import order
    from headwater.pipelines.running.preflight import (
        mismatches,
        problems,
        topic_ids,
        unfinished_refreshes,
    )

    _tell_problems(problems(project, live=not offline))
    if not offline:
        _tell_problems(mismatches(project, unfinished_refreshes(project), topic_ids(project)))
    rows = [
        {
            "flow": flow.name,
            "into": flow.target,
            "reads": [*(read.name for read in flow.reads), *flow.topics],
            "declared": str(flow.origin),
        }
        for flow in order(project.declarations)
    ]
    show(rows, as_json=as_json, nothing="no flows")


@command.command()
@click.argument("name")
@click.option("--sdp", is_flag=True, help="Create one for Spark's own spark-pipelines instead.")
def init(name: str, sdp: bool) -> None:
    """Create a folder NAME with an example pipeline."""
    from headwater.pipelines.templates import ProjectTemplateError, write_template

    folder = Path(name)
    try:
        for file in write_template("sdp" if sdp else "headwater", folder, folder.resolve().name):
            click.echo(file)
    except ProjectTemplateError as problem:
        raise click.UsageError(str(problem)) from None


@command.command()
@click.argument("topic")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="TABLE",
    help="delta:PATH, iceberg:PATH or parquet:PATH.",
)
@click.option(
    "--schema",
    required=True,
    metavar="FILE|infer",
    help="A file with a JSON Schema or Avro-style record, or infer from the first 1000 records.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="FIELD=TYPE",
    callback=lambda ctx, option, texts: parse_assignments(texts),
    help="Set the type of an inferred field, such as price=DOUBLE; may be repeated.",
)
@click.option(
    "--rename",
    multiple=True,
    metavar="FIELD=COLUMN",
    callback=lambda ctx, option, texts: parse_assignments(texts),
    help="Name the column of a field, such as 'first name=first_name'; may be repeated.",
)
@click.option(
    "--partition-by",
    multiple=True,
    metavar="COLUMN",
    help="A partition column; _date is the day of the record. May be repeated.",
)
@click.option(
    "--dead-letter",
    "dead_letter_topic",
    metavar="TOPIC",
    help="The topic for records that do not fit; by default TOPIC.dead.",
)
@click.option(
    "--unknown-fields",
    "unknown",
    type=click.Choice(["keep", "drop", "refuse"]),
    default="keep",
    show_default=True,
    help="Fields outside of the schema: keep in _unknown, drop, or refuse the record.",
)
@click.option(
    "--from",
    "start",
    metavar="earliest|latest|committed|TIME",
    default="earliest",
    show_default=True,
    help="Where the first run begins, such as 2026-01-31T12:00Z; later runs continue.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    callback=lambda ctx, option, texts: parse_assignments(texts),
    help="Set one option of the source, such as failOnDataLoss=false; may be repeated.",
)
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False),
    help="The checkpoint folder; by default _checkpoints beside TABLE.",
)
@click.option(
    "--name",
    help="Name the query, its consumer group and its checkpoint; by default ingest.TOPIC.TABLE. "
    "Ingests into tables of one name in two lakes need two names to have a lag of their own.",
)
@running_options
@bootstrap_option
@connecting_option
def ingest(
    topic: str,
    target: str,
    once: bool,
    master: str | None,
    progress: bool,
    spark_settings: dict[str, str],
    as_json: bool,
    bootstrap: str,
    client_settings: tuple[str, ...],
    **asked: Any,
) -> None:
    """Write TOPIC into a table: typed columns from JSON values, each record exactly once.

    Records that are not JSON or do not fit their types go to the dead letter topic with a reason.
    The schema is frozen beside the checkpoint; a file with more fields adds columns.
    """
    from headwater.pipelines.targets import TargetError, parse_table

    try:
        parse_table(target)
    except TargetError as problem:
        raise click.UsageError(str(problem)) from None
    connection = connection_settings(bootstrap, client_settings)
    _reach(connection)
    from headwater.pipelines.ingest.frozen_schema import IngestError
    from headwater.pipelines.ingest.ingest import plan_ingest, run_ingest

    try:
        plan = plan_ingest(
            topic,
            target,
            connection=connection,
            **asked,
        )
    except IngestError as problem:
        raise click.UsageError(str(problem)) from None
    logs = plan.checkpoint_store.folder.parent
    with run_scope(progress, logs, once) as (model, stop):
        report = run_ingest(
            plan,
            once=once,
            master=master,
            progress=model,
            settings=spark_settings,
            stop=stop,
        )
    print_flows([report], as_json)
    exit_if_stopped(once, stop)


def _reach(connection: "ConnectionSettings") -> None:
    """Check that a broker responds, as pipelines connect to it."""
    require_broker(connection.bootstrap_servers, connection.client)


def _loaded(path: str, bootstrap: str | None, client_settings: tuple[str, ...]) -> "Project":
    from headwater.pipelines.declaring.declare import DeclarationError
    from headwater.pipelines.declaring.project import load_project

    overrides = {"bootstrap_servers": bootstrap} if bootstrap else {}
    try:
        project = load_project(path, overrides=overrides, default_servers=file_bootstrap())
    except DeclarationError as problem:
        _tell_problems([problem])
        raise
    connection = connection_settings(project.connection.bootstrap_servers, client_settings)
    return replace(project, connection=connection)


def _tell_problems(found: Sequence[object]) -> None:
    """Print one line for each problem and exit with code 2."""
    for problem in found:
        click.echo(str(problem), err=True)
    if found:
        sys.exit(2)
