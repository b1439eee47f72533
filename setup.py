"""Builds the compiled record codec, the fast paths of `send` and of produce requests, and the key map.

Without Cython or a C compiler the package still installs and uses these parts in plain Python.
HEADWATER_REQUIRE_COMPILED=1 makes a failing compiler an error; releases are built with it.
"""

import os
from glob import glob

from setuptools import Extension, setup

CODEC = "src/headwater/records/_codec.pyx"
PARTS = glob("src/headwater/records/_codec_*.pxi")
SHARED = ["src/headwater/records/_codec.pxd", "src/headwater/records/_codec_hash.pxi"]
SLOTS = "src/headwater/_slots.pxi"
FAST_SEND = "src/headwater/client/producer/_fast_send.pyx"
FAST_PRODUCE = "src/headwater/broker/_fast_produce.pyx"
KEY_MAP = "src/headwater/log/compaction/_key_map.pyx"


def extensions() -> list[Extension]:
    required = os.environ.get("HEADWATER_REQUIRE_COMPILED") == "1"
    try:
        from Cython.Build import cythonize
    except ImportError:
        if required:
            raise
        return []
    codec = Extension("headwater.records._codec", [CODEC], depends=[CODEC, *PARTS, *SHARED])
    fast_send = Extension(
        "headwater.client.producer._fast_send", [FAST_SEND], depends=[FAST_SEND, SLOTS, *SHARED]
    )
    fast_produce = Extension(
        "headwater.broker._fast_produce", [FAST_PRODUCE], depends=[FAST_PRODUCE, SLOTS]
    )
    key_map = Extension("headwater.log.compaction._key_map", [KEY_MAP], depends=[KEY_MAP])
    modules: list[Extension] = cythonize(
        [codec, fast_send, fast_produce, key_map],
        build_dir="build",
        include_path=["src"],
        quiet=True,
    )
    for module in modules:
        module.optional = not required  # set after cythonize, which drops it
    return modules


setup(ext_modules=extensions())
