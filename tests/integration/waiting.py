"""Waits for conditions."""

import time
from collections.abc import Callable

PATIENCE_S = 60


def until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for a condition; what raises has not come true yet."""
    deadline = time.monotonic() + patience_s
    failure: Exception | None = None
    while True:
        try:
            if condition():
                return
        except Exception as problem:  # noqa: BLE001 - it may hold at the next try
            failure = problem
        assert time.monotonic() < deadline, f"waited in vain for {what} ({failure!r})"
        time.sleep(0.02)
