"""`headwater archive`: copy sealed segments to a folder; verify, audit and replay them."""

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.cli.options import (
    argument_bytes,
    bootstrap_option,
    connecting_option,
    connection_settings,
    json_option,
)
from headwater.cli.output import show, show_json
from headwater.cli.pipeline_runs import spark_errors_as_one_line
from headwater.errors import E, KafkaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COPY = "copy"
_REACH_S = 30.0
_NOTHING_SEALED = (
    "there is no sealed segment yet: a segment is sealed when it reaches segment.bytes or segment.ms "
    "of its topic; stop the broker and use --include-active to copy the active ones too"
)


class DefaultCommandGroup(click.Group):
    """A group with a default command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Pass a first word that is not a command to `copy`."""
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [_COPY, *args]
        return super().parse_args(ctx, args)


@click.group("archive", cls=DefaultCommandGroup)
def command() -> None:
    """Copy sealed segments to a folder, and work on them without the broker.

    `headwater archive DATA_DIR [TOPIC]... --to FOLDER` is short for `headwater archive copy ...`.
    """


@command.command(_COPY)
@click.argument("places", nargs=-1, metavar="[DATA_DIR] [TOPIC]...")
@click.option("--to", required=True, type=click.Path(file_okay=False), help="The archive.")
@click.option(
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT",
    help="Ask a broker on this machine for its folders, in place of DATA_DIR.",
)
@connecting_option
@click.option(
    "--include-active", is_flag=True, help="Copy active segments too; the broker must be stopped."
)
@click.option(
    "--link", is_flag=True, help="Create hard links instead of copies, on one file system."
)
@json_option
def copy(
    places: tuple[str, ...],
    to: str,
    bootstrap: str | None,
    client_settings: tuple[str, ...],
    include_active: bool,
    link: bool,
    as_json: bool,
) -> None:
    """Add new segments to the archive, of the topics named or of all but internal ones."""
    from headwater.cli.reach_broker import require_broker
    from headwater.pipelines.segments.archive import archive
    from headwater.pipelines.segments.archive_sources import broker_stopped, sources_in, sources_of

    if bootstrap is None and not places:
        raise click.UsageError("name the broker's DATA_DIR, or a --bootstrap-server")
    if bootstrap is None and client_settings:
        raise click.UsageError("-o is for --bootstrap-server: DATA_DIR is read without a broker")
    if bootstrap is not None and include_active:
        raise click.UsageError("--include-active is for a stopped broker: name its DATA_DIR")
    with broker_stopped(places[0]) if include_active else nullcontext():
        if bootstrap is None:
            sources = sources_in(places[0], places[1:], include_active=include_active)
        else:
            connection = connection_settings(bootstrap, client_settings)
            require_broker(bootstrap, connection.client)
            sources = sources_of(connection, places)
        outcome = archive(sources, to, include_active=include_active, link=link)
    rows = [
        {
            "file": entry.file,
            "records": entry.records,
            "bytes": entry.size,
            "offsets": f"{entry.base_offset}-{entry.next_offset - 1}",
        }
        for entry in outcome.added
    ]
    show(rows, as_json=as_json)
    for text in outcome.notes:
        click.echo(text, err=True)
    click.echo(
        f"{len(outcome.added)} segments added, {outcome.present} already archived, {outcome.waiting} "
        "waiting for the high watermark",
        err=True,
    )
    if not (outcome.added or outcome.present or include_active):
        click.echo(_NOTHING_SEALED, err=True)
    if outcome.problems:
        raise KafkaError(E.CORRUPT_MESSAGE, "; ".join(outcome.problems))


@command.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@json_option
def verify(folder: str, as_json: bool) -> None:
    """Compare every file of an archive with its manifest."""
    from headwater.pipelines.segments import archive

    problems = archive.verify(folder)
    if as_json:
        show_json({"problems": problems})
    for problem in problems if not as_json else ():
        click.echo(problem, err=True)
    if problems:
        raise KafkaError(E.CORRUPT_MESSAGE, f"{folder}: {len(problems)} files are not as archived")


@command.command()
@click.argument("folder", metavar="FOLDER")
@click.option("--compacted", is_flag=True, help="Offsets may be missing, as after compaction.")
@click.option("--topic", help="Only this topic.")
@click.option("--master", default="local[*]", show_default=True, help="The Spark master.")
@json_option
def audit(folder: str, compacted: bool, topic: str | None, master: str, as_json: bool) -> None:
    """Read every batch with Spark; exit with 1 if anything is wrong.

    FOLDER is an archive, a copy of a data folder, a partition's folder, a file or a glob.
    """
    from headwater.pipelines.segments.audit import audit as run

    path = _existing(folder)
    with _spark("headwater archive audit", master) as spark:
        report = run(spark, path, compacted=compacted, **({"topic": topic} if topic else {}))
    if as_json:
        found = [finding._asdict() for finding in report.findings]
        parts = [_plain(totals._asdict()) for totals in report.partitions]
        show_json({"partitions": parts, "counts": report.counts, "findings": found})
    else:
        show([_plain(totals._asdict()) for totals in report.partitions], as_json=False)
        for finding in report.findings:
            place = f"{finding.file}:{finding.position}"
            click.echo(f"{finding.kind}  {place}  {finding.detail}", err=True)
    if not report.ok:
        said = (f"{count} x {kind}" for kind, count in report.counts.items() if count)
        raise KafkaError(E.CORRUPT_MESSAGE, f"{folder}: {', '.join(said)}")


@command.command()
@click.argument("folder", metavar="FOLDER")
@click.option("--from", "start", required=True, metavar="TIME", help="The start of the range.")
@click.option("--to", "end", required=True, metavar="TIME", help="The end of the range, exclusive.")
@click.option("--into", required=True, metavar="TOPIC", help="An existing topic.")
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("--key", "keys", multiple=True, help="Only this key; may be repeated.")
@click.option(
    "--by-key", is_flag=True, help="Choose partitions by key instead of keeping the old numbers."
)
@click.option(
    "--id",
    "name",
    default="",
    help="An id for the replay; a second run with the same id writes nothing twice.",
)
@click.option("--master", default="local[*]", show_default=True, help="The Spark master.")
@bootstrap_option
@connecting_option
@json_option
def replay(
    folder: str,
    start: str,
    end: str,
    into: str,
    topics: tuple[str, ...],
    keys: tuple[str, ...],
    by_key: bool,
    name: str,
    master: str,
    bootstrap: str,
    client_settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the records of a time range into a topic, in the order of their partitions.

    TIME is ISO 8601 (UTC unless it says otherwise) or milliseconds since 1970.
    """
    from headwater.cli.reach_broker import require_reachable
    from headwater.pipelines.segments.replay import Replay
    from headwater.pipelines.segments.replay import replay as run

    what = Replay(
        path=_existing(folder),
        into=into,
        start_ms=milliseconds(start),
        end_ms=milliseconds(end),
        topics=topics,
        keys=[argument_bytes(key) for key in keys],
        by_key=by_key,
        id=name,
    )
    connection = connection_settings(bootstrap, client_settings)
    # before Spark takes its time to start
    require_reachable(bootstrap, _REACH_S, [into], settings=connection.client)
    with _spark("headwater archive replay", master) as spark:
        counts = run(spark, what, connection)
    rows = [{"topic": topic, "into": into, **count._asdict()} for topic, count in counts.items()]
    show(rows, as_json=as_json)
    click.echo(f"replay id {what.identity}", err=True)


@contextmanager
def _spark(name: str, master: str) -> "Iterator[SparkSession]":
    """Yield a session that logs to a file of its own, which is kept if Spark fails."""
    from headwater.pipelines.running.spark_log import log_file, log_settings
    from headwater.pipelines.session import spark_session

    folder, failed = Path(tempfile.mkdtemp(prefix="headwater-archive-")), False
    try:
        with spark_errors_as_one_line(log_file(folder)):
            yield spark_session(name, master=master, settings=log_settings(folder))
    except click.ClickException:
        failed = True
        raise
    finally:
        if not failed:
            shutil.rmtree(folder, ignore_errors=True)


def _existing(folder: str) -> str:
    """Return the absolute path, since executors need not run where this command does."""
    path = os.path.abspath(folder)
    if not glob.glob(path):
        raise click.UsageError(f"{folder}: there is no such folder or file")
    return path


def milliseconds(text: str) -> int:
    """Parse a time to milliseconds since 1970."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{text}: write a time as 2026-01-31T12:00 or in milliseconds"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _plain(row: dict[str, object]) -> dict[str, object]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in row.items()
    }
