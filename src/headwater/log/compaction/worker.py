"""A process that cleans logs for a broker: one job at a time from stdin, answers to stdout.

It ends with the broker: when its stdin is closed, it exits at once, in the middle of a job too. What
it has written until then are `.cleaned` files, which the next start of the broker removes.
"""

import errno
import json
from collections.abc import Iterator

from headwater.errors import KafkaError
from headwater.log.compaction.jobs import BROKEN, DISK, UNREADABLE, decode_job
from headwater.log.compaction.passes import CleaningPass, OnBytes
from headwater.log.segment import DamagedSegment
from headwater.seams.files import Files, OsFiles
from headwater.seams.workers import IoThrottle, serve_requests


def answers(files: Files, line: bytes, on_bytes: OnBytes) -> Iterator[bytes]:
    """Carry out the job of a line; yield a line for each new segment, and a last one."""
    try:
        cleaning = CleaningPass(files, decode_job(line), on_bytes)
        for group in cleaning.run():
            yield _line({"group": group})
        counts = cleaning.counts
        yield _line(
            {
                "done": {
                    "cleaned_to": cleaning.cleaned_to,
                    "keys": cleaning.keys,
                    "read_bytes": counts.read_bytes,
                    "kept_bytes": counts.kept_bytes,
                    "read_records": counts.read_records,
                    "kept_records": counts.kept_records,
                }
            }
        )
    except OSError as failure:
        yield _line({"failed": (DISK, str(failure), failure.errno)})
    except MemoryError:
        yield _line({"failed": (DISK, "out of memory", errno.ENOMEM)})
    except (DamagedSegment, KafkaError) as unreadable:
        yield _line({"failed": (UNREADABLE, str(unreadable))})
    except Exception as defect:  # noqa: BLE001 - the broker logs it and sets the log aside
        yield _line({"failed": (BROKEN, f"{type(defect).__name__}: {defect}")})


def _line(answer: dict[str, object]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def main() -> None:
    """Serve until the broker closes stdin."""
    files = OsFiles()
    serve_requests(lambda line, rate: answers(files, line, IoThrottle(rate).passed))


if __name__ == "__main__":
    main()
