"""Chooses the key map of compaction: the compiled one if it was built.

Both keep the same records. HEADWATER_CODEC=pure or =compiled selects one, as it does for the record
codec.
"""

from typing import TYPE_CHECKING

from headwater.records.compiled import choose

if TYPE_CHECKING:
    from headwater.log.compaction.pure_key_map import KeyMap

NAME, _chosen = choose("headwater.log.compaction._key_map", "headwater.log.compaction.pure_key_map")
"""Which of the two is in use: "compiled" or "pure"."""
make_key_map: "type[KeyMap]" = _chosen.KeyMap
bytes_per_key: int = _chosen.BYTES_PER_KEY
