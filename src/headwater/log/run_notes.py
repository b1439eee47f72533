"""Notes in log dirs by which a start knows whether the logs kept everything that was written.

A clean stop leaves a marker. A process that crashed leaves none, but its files keep what it had
written, even unsynced, for as long as the machine runs. So each log dir also has a note of the boot
of the machine and of the broker epochs. If the boot is the same, nothing is lost.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from headwater.log.checked_json import dump_checked, load_checked
from headwater.log.log_dir import CleanStop, LogDir, RunEpochs
from headwater.seams.files import Files, read_file, replace_file

FILE_NAME = "headwater-run"
UNKNOWN = RunEpochs()


class RunNotes:
    """The notes of all log dirs of a broker; `boot_id` is empty if the machine does not tell it."""

    def __init__(self, files: Files, dirs: Sequence[LogDir], boot_id: str) -> None:
        self._files = files
        self._dirs = dirs
        self._boot_id = boot_id
        self.current = UNKNOWN
        """The epochs of this run, once it has registered."""
        self._epochs: set[RunEpochs] = set()

    @property
    def epochs(self) -> RunEpochs:
        """The epochs of the last run if no log dir lost anything since; UNKNOWN if one may have."""
        return next(iter(self._epochs)) if len(self._epochs) == 1 else UNKNOWN

    def loaded(self, log_dir: LogDir, marker: CleanStop | None) -> None:
        """Add what a log dir says of the last run."""
        self._epochs.add(self._noted(log_dir)[1] if marker is None else marker.epochs)

    def found_unclean(self) -> None:
        """A log was not closed by the stop that left a marker."""
        self._epochs.add(UNKNOWN)

    def has_rebooted(self, log_dir: LogDir) -> bool:
        """Return whether the machine has certainly booted since the last run.

        Then the page cache has nothing that the disk lacks. Until then it may show what a failed sync
        has lost.
        """
        boot = self._noted(log_dir)[0]
        return bool(self._boot_id and boot) and boot != self._boot_id

    def _noted(self, log_dir: LogDir) -> tuple[str, RunEpochs]:
        """Return the boot and the epochs of the last run, as far as they are known."""
        try:
            note = load_checked(read_file(self._files, log_dir.join(FILE_NAME)))
            boot, epochs = note["boot"], RunEpochs(int(note["brokerEpoch"]), int(note["keptSince"]))
        except (OSError, ValueError, KeyError, TypeError):
            return "", UNKNOWN
        return str(boot), epochs if self._boot_id and boot == self._boot_id else UNKNOWN

    def registered(self, broker_epoch: int, kept_since: int) -> Callable[[], None]:
        """Return a callable that notes this run, for a file thread. A power cut may undo it.

        `kept_since` is what the last run left, for the first registration of this one.
        """
        if self.current != UNKNOWN:
            kept_since = self.current.kept_since
        elif kept_since < 0:
            kept_since = broker_epoch
        self.current = RunEpochs(broker_epoch, kept_since)
        note = dump_checked(
            {
                "version": 0,
                "boot": self._boot_id,
                "brokerEpoch": broker_epoch,
                "keptSince": kept_since,
            }
        )
        usable = [log_dir for log_dir in self._dirs if not log_dir.offline]

        def write() -> None:
            for log_dir in usable:
                replace_file(self._files, log_dir.join(FILE_NAME), note, sync=False)

        return write

    def forget(self) -> None:
        """Remove the notes: a disk has failed, and its files may lack what was written."""
        for log_dir in self._dirs:
            with suppress(OSError):
                self._files.unlink(log_dir.join(FILE_NAME))
