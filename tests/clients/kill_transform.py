"""Runs `transform` again and again, killed some lines later each time, and once more to its end.

    python -m tests.clients.kill_transform BOOTSTRAP SOURCE TARGET RECORDS STRIDE

A step is a line of the class that runs it. Each time a child process runs up to some step, ends there
as by `kill -9`, and another one goes on until every record is committed. A result is "STEP:OFFSET".
Prints the number of the last step.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import headwater
from headwater.client.transforming import blocking

_CODES = {member.__code__ for member in vars(blocking.TransformRun).values() if callable(member)}


def main(bootstrap: str, source: str, target: str, records: int, stride: int) -> None:
    """Kill at every `stride`-th step, until there is no such step."""
    step, killed = 1, True
    while killed:
        name = f"{target}-{step}"

        def work(step: int = step, name: str = name) -> None:
            transform(bootstrap, source, target, name, step)

        killed = child(lambda step=step, work=work: killing(step, work)) == -signal.SIGKILL

        def finish(name: str = name, work: Callable[[], None] = work) -> None:
            while committed(bootstrap, source, name) < records:
                work()

        if child(finish) != 0:
            raise SystemExit(f"the run after step {step} failed")
        step += stride
    sys.stdout.write(str(step - stride))


def transform(bootstrap: str, source: str, target: str, name: str, step: int) -> None:
    """Copy what is there, two records in a transaction."""
    headwater.transform(
        source,
        target,
        lambda record: b"%d:%d" % (step, record.offset),
        bootstrap_servers=bootstrap,
        group_id=name,
        transactional_id=name,
        max_records=2,
        idle_timeout_s=0.5,
        consumer={"group_instance_id": "copier", "max_poll_records": 2},
    )


def committed(bootstrap: str, source: str, group: str) -> int:
    """The committed offset of the group. A consumer would wait until the killed run has timed out."""
    with headwater.Admin(bootstrap_servers=bootstrap) as admin:
        row = admin.group_offsets(group).get(headwater.TopicPartition(source, 0))
        return 0 if row is None else row.offset


def killing(step: int, work: Callable[[], None]) -> None:
    """Run up to a step and end there; to the end if there is no such step."""
    left = step

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code not in _CODES:
            return None
        left -= event == "line"
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    work()
    sys.settrace(None)


def child(work: Callable[[], None]) -> int:
    """Run in a child process; return how it ended."""
    made = os.fork()
    if made == 0:
        try:
            work()
        except BaseException as problem:  # noqa: BLE001 - the parent shall hear of it
            sys.stderr.write(f"{problem!r}\n")
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(made, 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
