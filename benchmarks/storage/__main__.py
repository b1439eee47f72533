"""`python -m benchmarks.storage`: everything, or a part of it.

--quick            two short rounds with small logs
--cases PATTERN    only cases whose name matches, e.g. 'compaction*'; repeatable
--list             the names of all cases
"""

from benchmarks.load.command import run_cases
from benchmarks.storage import compaction, disturbance, reading, syncing

CASES = {
    "compaction": compaction.compaction,
    "compaction-pure": compaction.compaction_pure,
    "produce-while-compacting": disturbance.produce_while_compacting,
    "fsync": syncing.acknowledged_after_fsync,
    "index-memory": reading.index_memory,
    "log-verify": reading.log_verify,
}

if __name__ == "__main__":
    run_cases("storage", CASES)
