#!/bin/sh
# Builds .venv from the lock file, then fetches what the tests compare with.
# Only Python is needed to run a broker; a missing Maven, Go or kcat costs the tests that use it.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet --require-hashes -r requirements/dev.lock
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
