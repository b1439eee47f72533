"""Fetches sets of Java artifacts through Maven into the project's own cache.

A set is a folder `.cache/jars/<set>/` with the jars of a few named artifacts and of all they need
(or of the named ones alone, see `BARE`).
It appears atomically: Maven fills a temporary folder, which is renamed when complete, and a lock
makes a second process wait for the first instead of repeating its work.

    python -m tools.jars kafka-4.3.1 kafka-clients-3.9.2
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "jars"

# The clients' JsonConverter classes want Jackson, which the clients' POM only marks as provided.
_JSON = "com.fasterxml.jackson.core:jackson-databind:2.19.0"
_SILENT_LOGGER = "org.slf4j:slf4j-nop:1.7.36"

SETS: dict[str, tuple[str, ...]] = {
    "kafka-4.3.1": (
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.kafka:kafka-tools:4.3.1",
        _SILENT_LOGGER,
    ),
    "kafka-tools-3.9.2": ("org.apache.kafka:kafka-tools:3.9.2", _SILENT_LOGGER),
    "kafka-clients-4.3.1": ("org.apache.kafka:kafka-clients:4.3.1", _JSON, _SILENT_LOGGER),
    "kafka-clients-3.9.2": ("org.apache.kafka:kafka-clients:3.9.2", _JSON, _SILENT_LOGGER),
    "kafka-streams-4.3.1": ("org.apache.kafka:kafka-streams:4.3.1", _SILENT_LOGGER),
    "kafka-connect-4.3.1": (
        "org.apache.kafka:connect-runtime:4.3.1",
        "org.apache.kafka:connect-file:4.3.1",
        _SILENT_LOGGER,
    ),
    # metrics-core and snappy-java are "provided" in its POM, and without them it never serves.
    "zookeeper-3.9.5": (
        "org.apache.zookeeper:zookeeper:3.9.5",
        "io.dropwizard.metrics:metrics-core:4.1.12.1",
        "org.xerial.snappy:snappy-java:1.1.10.5",
        "org.slf4j:slf4j-nop:2.0.13",
    ),
    # Central has no 4.3.0 of these and no token provider beside 4.0.0; this mix runs on Spark 4.3.0.
    "spark-kafka-4.2.0": (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ),
}
BARE = {"spark-kafka-4.2.0"}
"""Sets of exactly the named jars: their dependencies come with PySpark, or cannot be resolved."""


class JarsUnavailable(Exception):
    """The set is not available on this machine; the text says why and what to do."""


def jars(name: str) -> Path:
    """Return the folder of the set `name`, fetched if it is missing."""
    if name not in SETS:
        raise JarsUnavailable(f"no jar set {name!r}; there are {', '.join(SETS)}")
    folder = CACHE / name
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with _only_one(CACHE / f"{name}.lock"):
            if not folder.is_dir():
                _fetch(SETS[name], folder, bare=name in BARE)
    return folder


def class_path(name: str, *before: Path) -> str:
    """A `-cp` value: the folders in `before`, then every jar of the set."""
    return os.pathsep.join([*map(str, before), f"{jars(name)}/*"])


def _fetch(artifacts: tuple[str, ...], folder: Path, *, bare: bool) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailable(
            f"{folder.name} comes through Maven: install mvn and a JDK 17 or later"
        )
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=CACHE))
    try:
        (work / "pom.xml").write_text(_pom(artifacts, bare=bare))
        command = [maven, "-B", "-q", "-f", str(work / "pom.xml"), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={work / 'lib'}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise JarsUnavailable(f"Maven could not fetch {folder.name}:\n{done.stdout[-2000:]}")
        (work / "lib").rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _pom(artifacts: tuple[str, ...], *, bare: bool) -> str:
    nothing_more = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        "</exclusions>"
    )
    rows = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{nothing_more if bare else ''}</dependency>"
        for group, artifact, version in (coordinates.split(":") for coordinates in artifacts)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>headwater</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{rows}</dependencies></project>"
    )


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # the kernel releases it even if this process is killed
        yield


def main(names: list[str]) -> int:
    """Fetches each named set (all of them without a name) and prints its folder."""
    for name in names or list(SETS):
        try:
            sys.stdout.write(f"{jars(name)}\n")
        except JarsUnavailable as refused:
            sys.stderr.write(f"{refused}\n")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
