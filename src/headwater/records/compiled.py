"""Chooses between a compiled module and its twin in plain Python.

The compiled one is used if it was built. HEADWATER_CODEC=pure or =compiled requires one of them; the
import fails if it is not available.
"""

import os
from importlib import import_module
from typing import Any


def choose(compiled: str, pure: str) -> tuple[str, Any]:
    """Return "compiled" or "pure", and that module."""
    modules = {"compiled": compiled, "pure": pure}
    wanted = os.environ.get("HEADWATER_CODEC", "")
    if wanted in modules:
        return wanted, import_module(modules[wanted])
    if wanted:
        raise ImportError(f"HEADWATER_CODEC is 'pure' or 'compiled', not {wanted!r}")
    try:
        return "compiled", import_module(compiled)
    except ImportError:
        return "pure", import_module(pure)
