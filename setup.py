"""Builds the compiled record codec and the short way of `send`, both optional.

Without Cython or a C compiler the package installs all the same and uses its codec in plain Python.
"""

from glob import glob

from setuptools import Extension, setup

CODEC = "src/headwater/records/_codec.pyx"
PARTS = glob("src/headwater/records/_codec_*.pxi")
SHARED = ["src/headwater/records/_codec.pxd", "src/headwater/records/_codec_hash.pxi"]
INTAKE = "src/headwater/client/producer/_intake.pyx"


def extensions() -> list[Extension]:
    """The codec, to be built where it can be."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    codec = Extension("headwater.records._codec", [CODEC], depends=[CODEC, *PARTS, *SHARED])
    intake = Extension("headwater.client.producer._intake", [INTAKE], depends=[INTAKE, *SHARED])
    modules: list[Extension] = cythonize(
        [codec, intake], build_dir="build", include_path=["src"], quiet=True
    )
    for module in modules:
        module.optional = True  # a failing compiler is a warning; cythonize forgets this mark
    return modules


setup(ext_modules=extensions())
