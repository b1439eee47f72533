"""Places of the fields in an unpacked batch header (`batch.RawHeader`), in wire order.

The hot path passes headers as plain tuples: `header[ATTRIBUTES]` costs no more than `header[5]`,
and a NamedTuple would cost its construction for every batch.
"""

from typing import Final

BASE_OFFSET: Final = 0
LENGTH: Final = 1
LEADER_EPOCH: Final = 2
MAGIC_BYTE: Final = 3
CRC: Final = 4
ATTRIBUTES: Final = 5
LAST_OFFSET_DELTA: Final = 6
BASE_TIMESTAMP: Final = 7
MAX_TIMESTAMP: Final = 8
PRODUCER_ID: Final = 9
PRODUCER_EPOCH: Final = 10
BASE_SEQUENCE: Final = 11
RECORD_COUNT: Final = 12
