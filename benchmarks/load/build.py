"""Compiles the generator and the reference server, once per change of their sources."""

import hashlib
import shutil
import subprocess
from pathlib import Path

_SOURCES = Path(__file__).parent / "c"
_CACHE = Path(__file__).parents[2] / ".cache" / "bench"
_TLS = ("-DWITH_TLS", "-lssl", "-lcrypto")


def program(name: str, *, tls: bool = False) -> Path:
    """The compiled `name` ("load" or "server"); its file name carries a hash of all sources.

    With TLS it needs the headers of OpenSSL.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("the benchmark needs a C compiler (cc); install gcc or clang")
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    binary = _CACHE / f"{name}{'-tls' if tls else ''}-{digest.hexdigest()[:12]}"
    if not binary.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        source = str(_SOURCES / f"{name}.c")
        subprocess.run(
            [compiler, "-O2", "-Wall", "-o", str(binary), source, *(_TLS if tls else ())],
            check=True,
        )
    return binary
