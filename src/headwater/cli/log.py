"""`headwater log`: look into the files of a log, with the broker running or not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click

from headwater.broker.store_mark import FILE_NAME as STORE_MARK
from headwater.cli.dump import DamagedBatch, batch_text, batches_of, json_line
from headwater.cli.options import json_option
from headwater.cli.output import show, show_json
from headwater.errors import E, KafkaError
from headwater.log.checkpoints import read_folder
from headwater.log.compaction.report import compaction_states
from headwater.log.file_names import offsets_in
from headwater.log.folders import partition_of, read_topic_id
from headwater.log.log_dir import LOCK
from headwater.log.repair import repairs
from headwater.log.segment import LOG
from headwater.log.verify import VerifyResult, verify_log
from headwater.log.verify_notes import verify_dir
from headwater.seams.files import OsFiles

_NOT_SEGMENTS = (".index", ".timeindex", ".txnindex", ".snapshot", ".checksums")


@click.group("log")
def command() -> None:
    """Inspect and repair the files of a log."""


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--records/--no-records", default=True, help="Show the records of each batch.")
@json_option
def dump(file: str, records: bool, as_json: bool) -> None:
    """Show the batches and records of a segment (a .log file); --json prints one batch per line."""
    if file.endswith(_NOT_SEGMENTS):
        raise click.UsageError(f"{file} holds no records: name the .log file beside it")
    damage = None
    for batch in batches_of(file):
        if isinstance(batch, DamagedBatch):
            damage = batch
        elif as_json:
            click.echo(json_line(batch, with_records=records))
        else:
            click.echo(batch_text(batch, with_records=records), nl=False)
    if damage is not None:
        raise KafkaError(
            E.CORRUPT_MESSAGE, f"{file}: at position {damage.position}: {damage.reason}"
        )


_compacted = click.option(
    "--compacted",
    is_flag=True,
    help="Offsets may be missing, as in a copy of a compacted log; compaction by the broker is recognized.",
)


@command.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@_compacted
@click.option("--quick", is_flag=True, help="Compare sealed segments with their checksums only.")
@click.option(
    "--all", "everything", is_flag=True, help="Show sound partitions without records too."
)
@json_option
def verify(folder: str, compacted: bool, quick: bool, everything: bool, as_json: bool) -> None:
    """Check a partition's folder, or every partition of a data folder. Stop the broker first.

    Every batch is read: checksums, offsets, leader epochs, sequences and indexes must agree.
    """
    partitions = _require_partitions(folder)
    verdicts = {
        path: verify_log(path, gaps=compacted or _was_compacted(path), quick=quick)
        for path in partitions
    }
    beside = [] if partitions == [folder] else verify_dir(OsFiles(), folder, [STORE_MARK])
    if as_json:
        show_json([_json_row(path, verdict) for path, verdict in verdicts.items()])
    else:
        printed = {
            p: v
            for p, v in verdicts.items()
            if everything or v.records or v.problems or (quick and v.size)
        }
        show([_row(path, verdict) for path, verdict in printed.items()], as_json=False)
        if len(printed) < len(verdicts):
            empty = len(verdicts) - len(printed)
            click.echo(f"{empty} sound partitions without records are not shown (--all)", err=True)
        for verdict in verdicts.values():
            for problem in verdict.problems:
                hint = " (`headwater log repair`)" if problem in verdict.repairable else ""
                click.echo(problem + hint, err=True)
    for problem in beside:
        click.echo(problem, err=True)
    damaged = [_name(path) for path, verdict in verdicts.items() if verdict.problems]
    if damaged:
        raise KafkaError(E.CORRUPT_MESSAGE, f"damaged partitions: {', '.join(damaged)}")
    if beside:
        raise KafkaError(E.CORRUPT_MESSAGE, f"damaged files in {folder}: {len(beside)}")


@command.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@_compacted
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
def repair(folder: str, compacted: bool, dry_run: bool) -> None:
    """Rebuild damaged indexes, checksums, snapshots and leader epochs from the batches.

    The batches are not changed: a log with damaged batches must be copied from another replica. The
    broker must be stopped.
    """
    files = OsFiles()
    partitions = _require_partitions(folder)
    with _locked(os.path.dirname(os.path.abspath(folder)) if partitions == [folder] else folder):
        beyond, repaired = [], 0
        for path in partitions:
            verdict, steps = repairs(files, path, gaps=compacted or _was_compacted(path))
            beyond += [row for row in verdict.problems if row not in verdict.repairable]
            for step in steps:
                repaired += 1
                click.echo(f"would {step.text}" if dry_run else step.text)
                if not dry_run:
                    step.run()
    for problem in beyond:
        click.echo(problem, err=True)
    if beyond:
        raise KafkaError(
            E.CORRUPT_MESSAGE,
            f"{len(beyond)} of the problems cannot be repaired: copy the log from another replica",
        )
    if not repaired:
        click.echo("nothing to repair", err=True)


@contextmanager
def _locked(log_dir: str) -> Iterator[None]:
    """Hold the lock of a log dir, so that no broker starts on it; refuse if one runs."""
    path = os.path.join(log_dir, LOCK)
    if not os.path.exists(path):
        yield  # a copy, or a folder that no broker has used
        return
    files = OsFiles()
    try:
        fd = files.lock(path)
    except BlockingIOError:
        raise KafkaError(
            E.KAFKA_STORAGE_ERROR, f"a broker runs on {log_dir}: stop it first"
        ) from None
    try:
        yield
    finally:
        files.close(fd)


def _require_partitions(folder: str) -> list[str]:
    partitions = partitions_in(folder)
    if not partitions:
        raise KafkaError(E.LOG_DIR_NOT_FOUND, f"{folder} has no partition with segments")
    return partitions


@command.command()
@click.argument("log_dir", type=click.Path(exists=True, file_okay=False))
@click.option("--all", "everything", is_flag=True, help="Show logs that were never compacted too.")
@json_option
def compaction(log_dir: str, everything: bool, as_json: bool) -> None:
    """Show how far the logs of a log dir are compacted, and which the broker has set aside.

    A log that is set aside is damaged, or its compaction failed; the broker tries again after a
    restart.
    """
    states = compaction_states(OsFiles(), log_dir.rstrip("/"))
    shown = [one for one in states if everything or one.cleaned_to or one.problem]
    show(
        [one._asdict() for one in shown],
        as_json=as_json,
        nothing="no log of this log dir was compacted yet",
    )


def partitions_in(folder: str) -> list[str]:
    """Return the folder itself if it has segments, else its subfolders with segments."""
    if _has_segments(folder):
        return [folder]
    below = (os.path.join(folder, name) for name in sorted(os.listdir(folder)))
    return [path for path in below if os.path.isdir(path) and _has_segments(path)]


def _was_compacted(path: str) -> bool:
    """Return whether the checkpoint of the log dir says that offsets may be missing."""
    log_dir, name = os.path.split(os.path.abspath(path))
    partition, files = partition_of(name), OsFiles()
    if partition is None:
        return False
    row = read_folder(files, log_dir).of(partition, read_topic_id(files, path))
    return row.cleaned_end > 0


def _has_segments(folder: str) -> bool:
    return bool(offsets_in(os.listdir(folder), LOG))


def _name(path: str) -> str:
    return os.path.basename(os.path.abspath(path))


def _json_row(path: str, verdict: VerifyResult) -> dict[str, object]:
    row = asdict(verdict)
    del row["rebuildable"]  # `repairable` names the same files
    return {"partition": _name(path), **row}


def _row(path: str, verdict: VerifyResult) -> dict[str, object]:
    return {
        "partition": _name(path),
        "start": verdict.start_offset,
        "end": verdict.end_offset,
        "segments": verdict.segments,
        "batches": verdict.batches,
        "records": verdict.records,
        "bytes": verdict.size,
        "problems": len(verdict.problems),
    }
