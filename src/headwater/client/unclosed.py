"""Warns about clients that were dropped without close(), and cleans up after them."""

import asyncio
import contextlib
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

End = Callable[[], Coroutine[Any, Any, None]]

_ending: set[asyncio.Task[None]] = set()


def warn_unclosed(name: str) -> None:
    """Issue a ResourceWarning, as Python does for unclosed files."""
    warnings.warn(
        f"unclosed {name}: call close(), or use it in a with statement",
        ResourceWarning,
        stacklevel=2,
    )


def end_when_dropped(
    client: object, name: str, loop: asyncio.AbstractEventLoop, end: End
) -> "weakref.finalize[..., Any]":
    """Run `end` on the loop when `client` is garbage collected; close() detaches this."""
    finalizer = weakref.finalize(client, _dropped, name, loop, end)
    finalizer.atexit = False
    return finalizer


def _dropped(name: str, loop: asyncio.AbstractEventLoop, end: End) -> None:
    warn_unclosed(name)
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(_begin, end)


def _begin(end: End) -> None:
    task = asyncio.get_running_loop().create_task(end())
    _ending.add(task)
    task.add_done_callback(_ending.discard)
