"""`python -m benchmarks.security`: everything, or a part of it.

--quick            two short rounds
--cases PATTERN    only cases whose name matches, e.g. 'handshake*'; repeatable
--list             the names of all cases
"""

from benchmarks.load.command import run_cases
from benchmarks.security import encrypted, handshakes, rules

CASES = {
    "sasl-ssl": encrypted.sasl_ssl,
    "tls": encrypted.tls_beside_plain,
    "handshakes": handshakes.handshakes,
    "bystanders": handshakes.bystanders,
    "idle-memory": handshakes.idle_memory,
    "rules": rules.rules,
}

if __name__ == "__main__":
    run_cases("security", CASES)
