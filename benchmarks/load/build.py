"""Compiles the generator and the reference server, once per change of their sources."""

import hashlib
import shutil
import subprocess
from pathlib import Path

_SOURCES = Path(__file__).parent / "c"
_CACHE = Path(__file__).parents[2] / ".cache" / "bench"


def program(name: str) -> Path:
    """The compiled `name` ("load" or "server"); its file name carries a hash of all sources."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("the benchmark needs a C compiler (cc); install gcc or clang")
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    binary = _CACHE / f"{name}-{digest.hexdigest()[:12]}"
    if not binary.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [compiler, "-O2", "-o", str(binary), str(_SOURCES / f"{name}.c")], check=True
        )
    return binary
