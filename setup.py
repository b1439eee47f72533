"""Builds the optional compiled record codec; everything else stands in pyproject.toml.

Without Cython or a C compiler the package installs all the same and uses its codec in plain Python.
"""

from setuptools import Extension, setup

CODEC = "src/headwater/records/_codec.pyx"


def extensions() -> list[Extension]:
    """The codec, to be built where it can be."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules: list[Extension] = cythonize(
        [Extension("headwater.records._codec", [CODEC])], build_dir="build", quiet=True
    )
    for module in modules:
        module.optional = True  # a failing compiler is a warning; cythonize forgets this mark
    return modules


setup(ext_modules=extensions())
