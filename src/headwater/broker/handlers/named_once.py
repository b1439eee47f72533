"""What a request names many times is answered once: its answer has a bound then.

A group may have thousands of members or offsets. A short request that named it thousands of times would
have an answer of gigabytes.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar

from headwater.broker.turns import Steps, drained

T = TypeVar("T")


def once(items: list[T], key: Callable[[T], Hashable]) -> Steps[list[T]]:
    """Return the items without those that name what an earlier one names; a key of None names nothing."""
    seen: set[Hashable] = {None}
    kept = []
    for item in drained(items):
        name = key(item)
        if name is None or name not in seen:
            seen.add(name)
            kept.append(item)
        yield
    return kept
