"""Checks the small files of a log and of a log dir: snapshots, notes, checkpoints, identity."""

from collections.abc import Iterator, Sequence

from headwater.log import aborted_counts, checkpoints, run_notes, snapshots, truncation_note
from headwater.log.checked_json import load_checked
from headwater.log.folders import METADATA, metadata_is_damaged
from headwater.log.log_dir import CLEAN_MARKER, META, LogDir, LogDirError
from headwater.seams.files import Files, read_file

KAFKA_CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.LOG_STARTS,
    checkpoints.CLEANER_POINTS,
)


def snapshot_problems(files: Files, directory: str, end: int) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the producer snapshots, and the path of one that a repair removes."""
    for offset in snapshots.offsets(files, directory):
        stem = snapshots.stem(directory, offset)
        path = stem + snapshots.SNAPSHOT
        if offset > end:
            yield f"there is a snapshot at {offset}, but the log ends at {end}", ""
        try:
            content = read_file(files, path)
            list(snapshots.decode(content))
        except snapshots.DamagedSnapshot as damage:
            yield f"{path} is damaged: {damage}", path
            continue
        if files.exists(stem + snapshots.WINDOWS):
            windows = read_file(files, stem + snapshots.WINDOWS)
            if not snapshots.belongs_to(windows, content):
                yield f"{stem}{snapshots.WINDOWS} is damaged or of another snapshot", path


def beside_the_log(files: Files, directory: str) -> Iterator[str]:
    """Yield what is wrong with the other small files of a partition; a start writes them again."""
    if files.exists(f"{directory}/{METADATA}") and metadata_is_damaged(files, directory):
        yield f"{directory}/{METADATA} is damaged; the broker writes it again"
    if truncation_note.is_damaged(files, directory):
        yield f"{directory}/{truncation_note.FILE_NAME} is damaged; a start checks the whole log"
    if truncation_note.is_damaged(files, directory, truncation_note.START):
        yield (
            f"{directory}/{truncation_note.START} is damaged; deleted records may be served again: "
            "delete them once more, then remove the file"
        )
    if aborted_counts.is_damaged(files, directory):
        yield f"{directory}/{aborted_counts.FILE_NAME} is damaged; the broker writes it again"


def verify_dir(files: Files, path: str, notes: Sequence[str] = ()) -> list[str]:
    """Return what is wrong with the files of a log dir outside of its partitions."""
    log_dir = LogDir(files, path)
    problems = []
    if files.exists(log_dir.join(META)):
        try:
            log_dir.known_cluster()
        except LogDirError as damage:
            problems.append(damage.message)
    for name in (CLEAN_MARKER, run_notes.FILE_NAME, *notes):
        if files.exists(log_dir.join(name)):
            content = read_file(files, log_dir.join(name))
            try:
                if content:  # older versions of Kafka leave an empty marker
                    load_checked(content)
            except ValueError:
                problems.append(f"{log_dir.join(name)} is damaged; a start ignores it")
    if files.exists(log_dir.join(checkpoints.LOG_CHECKPOINT)):
        try:
            checkpoints.read_log_rows(files, log_dir.join(checkpoints.LOG_CHECKPOINT))
        except checkpoints.DamagedCheckpoint as damage:
            problems.append(
                f"{log_dir.join(checkpoints.LOG_CHECKPOINT)} is damaged, a start checks every log "
                f"of the log dir: {damage}"
            )
    for name in KAFKA_CHECKPOINTS:
        try:
            checkpoints.read_offsets(files, log_dir.join(name))
        except checkpoints.DamagedCheckpoint as damage:
            problems.append(
                f"{log_dir.join(name)} is damaged; Kafka's tools cannot read it: {damage}"
            )
    return problems
