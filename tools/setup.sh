#!/bin/sh
# Builds .venv from the lock file, then fetches what the tests compare with.
# Only Python is needed to run a broker; a missing Maven, Go or kcat costs the tests that use it.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet --require-hashes -r requirements/dev.lock
# This also compiles the record codec and the fast paths into the source tree, where there is a C compiler;
# a compiled module whose source was renamed must not stay behind.
rm -f src/headwater/records/_codec.*.so src/headwater/client/producer/_fast_send.*.so \
    src/headwater/broker/_fast_produce.*.so
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
case "$(.venv/bin/python -c 'import headwater; print(headwater.codec)')" in
    compiled) echo "The record codec is compiled." ;;
    *) echo "No C compiler has built the record codec: clients use the one in plain Python," \
        "which is slower. Install gcc and the headers of Python, and run this again." ;;
esac
