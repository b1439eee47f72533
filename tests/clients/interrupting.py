"""Raise, or run a signal handler, at every moment at which Python could run one.

CPython runs signal handlers between two instructions of the main thread: where a function begins,
after a call has returned, and where a loop jumps back. `interrupt` counts these moments in
everything that `work` calls, Python's own library included, and acts at one of them:

    for moment in moments(lambda: producer.send("t", b"v")):
        ...                                     # what must hold after every interruption

A test that passes for all moments has no gap between two statements that Ctrl-C could fall into.
"""

import dis
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count, pairwise
from types import CodeType, FrameType
from typing import Any
from weakref import WeakSet

_CHECKED = frozenset(
    code
    for name, code in dis.opmap.items()
    if name.startswith(("CALL", "JUMP_BACKWARD")) or name == "RESUME"
)
"""Instructions after which CPython looks for signals."""
_FREEING = WeakSet[Any]()._remove.__code__  # type: ignore[attr-defined]
"""Called while an object is freed, such as a task of the loop: what it raises ends no call."""


def ctrl_c() -> None:
    """What Python's own handler of SIGINT does."""
    raise KeyboardInterrupt


def interrupt(
    work: Callable[[], object], moment: int, handler: Callable[[], object] = ctrl_c
) -> bool:
    """Run `work` and call `handler` at moment number `moment` of it.

    Returns False where `work` ended before that moment. KeyboardInterrupt is caught here, as the
    main program would; any other exception is the caller's.
    """
    tracer = _Tracer(moment, handler)
    before = sys.gettrace()
    sys.settrace(tracer.enter)
    try:
        work()
    except KeyboardInterrupt:
        if not tracer.reached:
            raise
    finally:
        sys.settrace(before)
    return tracer.reached


def moments(
    work: Callable[[], object],
    handler: Callable[[], object] = ctrl_c,
    *,
    first: int = 0,
    step: int = 1,
) -> Iterator[int]:
    """Run `work` again and again, interrupted one moment later each time, until it ends before.

    Yields the number of each moment after its run, for the checks of the caller.
    """
    for moment in count(first, step):
        if not interrupt(work, moment, handler):
            return
        yield moment


class _Tracer:
    """Counts moments.

    A trace function raises before the next instruction, and CPython after the last one. Where these
    two have different `except` and `finally` blocks around them, the moment is taken when the called
    function returns, which is the same place; for functions written in C there is none.
    """

    def __init__(self, moment: int, handler: Callable[[], object]) -> None:
        self.reached = False
        self._left = moment
        self._handler = handler
        self._previous: dict[FrameType, int] = {}

    def enter(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.reached or frame.f_code.co_filename == __file__ or frame.f_code is _FREEING:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self.step

    def step(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.reached:
            return None
        if event == "return":
            self._previous.pop(frame, None)
            caller = frame.f_back
            if caller in self._previous and caller.f_lasti in _edges(caller.f_code):
                self._count()
        elif event == "opcode":
            before = self._previous.get(frame, 0)
            self._previous[frame] = frame.f_lasti
            code = frame.f_code
            if code.co_code[before] in _CHECKED and before not in _edges(code):
                self._count()
        return self.step

    def _count(self) -> None:
        if self._left:
            self._left -= 1
            return
        self.reached = True
        self._previous.clear()
        self._handler()


@cache
def _edges(code: CodeType) -> frozenset[int]:
    """Where the handler of an instruction is not that of the next one."""
    table = dis._parse_exception_table(code)  # type: ignore[attr-defined]

    def handler(place: int) -> int | None:
        return next((row.target for row in table if row.start <= place < row.end), None)

    places = [instruction.offset for instruction in dis.get_instructions(code)]
    return frozenset(place for place, after in pairwise(places) if handler(place) != handler(after))
