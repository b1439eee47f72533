"""Cleaning workers of a simulated broker: the real code, on the simulated disk and threads."""

from collections.abc import Iterator

from headwater.log.compaction.worker import answers
from headwater.seams.files import Files
from headwater.seams.workers import Worker


class SimWorkers:
    """A `seams.Workers` for one life of one process."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def start(self, module: str) -> Worker:
        """Start a worker, which cleans logs whatever the module is."""
        return _SimWorker(self._files)


class _SimWorker:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._answers: Iterator[bytes] = iter(())

    def begin(self, request: bytes, rate: float) -> None:
        """Take a job; the disk has no rate here."""
        self._answers = answers(self._files, request, lambda _: None)

    def next_answer(self) -> bytes | None:
        """Work until the next answer."""
        return next(self._answers, None)

    def end(self) -> None:
        """Drop the job."""
        self._answers = iter(())
