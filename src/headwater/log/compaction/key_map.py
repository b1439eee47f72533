"""Chooses the key map of compaction: the compiled one if it was built.

Both keep the same records. HEADWATER_CODEC=pure or =compiled selects one, as it does for the record
codec.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headwater.log.compaction.pure_key_map import KeyMap

_MODULES: Final = {
    "compiled": "headwater.log.compaction._key_map",
    "pure": "headwater.log.compaction.pure_key_map",
}


def _choose() -> tuple[str, Any]:
    wanted = os.environ.get("HEADWATER_CODEC", "")
    if wanted in _MODULES:
        return wanted, import_module(_MODULES[wanted])
    try:
        return "compiled", import_module(_MODULES["compiled"])
    except ImportError:
        return "pure", import_module(_MODULES["pure"])


NAME, _chosen = _choose()
"""Which of the two is in use: "compiled" or "pure"."""
make_key_map: "type[KeyMap]" = _chosen.KeyMap
bytes_per_key: int = _chosen.BYTES_PER_KEY
