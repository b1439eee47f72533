"""The cells of the table, client by check, run a few at a time.

A cell mostly waits (a crashed member is missed after 6 seconds), so cells run ahead in a small pool
and each test takes the result of its own. They share one broker, or three, as clients do in life.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from tests.compat.client import NotOffered

AT_ONCE = 10


class Cell(NamedTuple):
    """One client doing one check."""

    client: str
    check: str


class Cells:
    """Runs cells ahead of the tests that ask for them."""

    def __init__(self, run: Callable[[Cell], None], in_turn: Callable[[Cell], bool]):
        """Those that are `in_turn` run one after the other, beside the rest."""
        self._run = run
        self._in_turn = in_turn
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="cell")
        self._line = ThreadPoolExecutor(1, thread_name_prefix="cell-in-turn")
        self._results: dict[Cell, Future[str | None]] = {}

    def start(self, cells: Iterable[Cell]) -> None:
        """Queues the cells in their order."""
        for cell in cells:
            pool = self._line if self._in_turn(cell) else self._pool
            self._results[cell] = pool.submit(self._judge, cell)

    def ends(self, cells: Iterable[Cell]) -> list[Future[str | None]]:
        """What can be waited for until these cells have run."""
        return [self._results[cell] for cell in cells]

    def _judge(self, cell: Cell) -> str | None:
        try:
            self._run(cell)
        except NotOffered as reason:
            return str(reason)
        return None

    def result(self, cell: Cell) -> str | None:
        """Waits for a cell; raises what it raised, or returns why it does not apply, if so."""
        return self._results[cell].result()

    def close(self) -> None:
        """Drops what has not begun and waits for the rest."""
        for pool in (self._pool, self._line):
            pool.shutdown(cancel_futures=True)
