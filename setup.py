"""Builds the optional compiled record codec; everything else stands in pyproject.toml.

Without Cython or a C compiler the package installs all the same and uses its codec in plain Python.
"""

from glob import glob

from setuptools import Extension, setup

CODEC = "src/headwater/records/_codec.pyx"
PARTS = glob("src/headwater/records/_codec_*.pxi")


def extensions() -> list[Extension]:
    """The codec, to be built where it can be."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    codec = Extension("headwater.records._codec", [CODEC], depends=[CODEC, *PARTS])
    modules: list[Extension] = cythonize([codec], build_dir="build", quiet=True)
    for module in modules:
        module.optional = True  # a failing compiler is a warning; cythonize forgets this mark
    return modules


setup(ext_modules=extensions())
