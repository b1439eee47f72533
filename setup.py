"""Builds the optional compiled record codec; everything else stands in pyproject.toml.

Without Cython or a C compiler the package installs all the same and uses its codec in plain Python.
"""

from setuptools import Extension, setup

CODEC = "src/headwater/records/_codec.pyx"


def extensions() -> list[Extension]:
    """The codec to be built where it can be: `optional` makes a failing compiler a warning."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    codec = Extension("headwater.records._codec", [CODEC], optional=True)
    modules: list[Extension] = cythonize([codec], build_dir="build", show_all_warnings=False)
    return modules


setup(ext_modules=extensions())
