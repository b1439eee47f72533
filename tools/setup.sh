#!/bin/sh
# Builds .venv from the lock file, then fetches what the tests compare with.
# A broker needs only Python; without Maven, Go or kcat the tests that use them are skipped.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet --require-hashes -r requirements/dev.lock
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
.venv/bin/python -m compileall -q src
sh tools/apt-packages
.venv/bin/python -m tests.compat.prepare
