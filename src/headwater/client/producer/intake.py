"""Which `send` a producer gets: the compiled short way where the record codec is compiled too."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from headwater.records.codec import NAME


def compiled_send(
    topics: dict[str, Any], otherwise: Callable[..., Any], wall_ms: Callable[[], int] | None
) -> Callable[..., Any] | None:
    """A faster `send` over `topics`, or None where there is none; see `_intake.pyx`.

    Only with the compiled codec: what it does without a lock needs an `append` that is one C call.
    """
    if NAME != "compiled":
        return None
    try:
        compiled = import_module("headwater.client.producer._intake")
    except ImportError:
        return None
    send: Callable[..., Any] = compiled.Intake(topics, otherwise, wall_ms).send
    return send
