"""Makes a class data archive of Spark for the JVM, with which a driver starts twice as fast.

Java checks that an archive matches its build and the jars, and ignores it otherwise, so nothing
depends on it. It is in `.cache/spark`, named after the Java and the PySpark that made it.

    python -m tools.class_archive
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from headwater.pipelines.java import java_home
from headwater.pipelines.session import spark_session

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "spark"
PATIENCE_S = 300
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a JVM that lives for seconds: one compiler tier and the serial collector."""


class ArchiveUnavailable(Exception):
    """No archive could be made; the text says why."""


def quick_java() -> str:
    """Return JAVA_TOOL_OPTIONS for short-lived Sparks, with the archive if there is one."""
    archive = place()
    if not archive.exists():
        return " ".join(SHORT_LIVED)
    # Java would report an archive that does not match on its standard output, which others read.
    return " ".join((*SHORT_LIVED, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"))


def place() -> Path:
    """Return the path of the archive for this Java and this PySpark."""
    java = subprocess.run(
        [java_home() / "bin" / "java", "-version"], capture_output=True, check=True
    )
    jars = Path(pyspark.__file__).parent / "jars"
    facts = f"{java.stderr!r} {pyspark.__version__} {jars} {jars.stat().st_mtime_ns}"
    return CACHE / f"classes-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.jsa"


def make() -> Path:
    """Return the archive, made if missing; delete those of other Javas and PySparks."""
    archive = place()
    if archive.exists():
        return archive
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        draft = Path(folder) / archive.name
        command = [sys.executable, "-m", "tools.class_archive", str(draft)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not draft.exists():
            raise ArchiveUnavailable(f"Spark left no archive: {done.stderr[-300:]}")
        for old in CACHE.glob("classes-*.jsa"):
            old.unlink()
        draft.replace(archive)
    return archive


def _record(draft: Path) -> None:
    """Run typical work in a Spark that writes its classes to the archive when it ends."""
    settings = {
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": f"{' '.join(SHORT_LIVED)} -XX:ArchiveClassesAtExit={draft}",
    }
    spark = spark_session("class-archive", master="local[1]", settings=settings)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    _work(spark, draft.parent)
    spark.stop()
    java.stdin.close()  # which ends it
    java.wait(PATIENCE_S)


def _work(spark: SparkSession, folder: Path) -> None:
    """Do what pipelines do: a stream in micro-batches, Parquet files, JSON, a shuffle."""
    (folder / "in").mkdir()
    (folder / "in" / "one.json").write_text('{"n": 1}')
    texts = spark.readStream.text(str(folder / "in"))
    query = (
        texts.selectExpr("from_json(value, 'n BIGINT').n AS n", "value")
        .writeStream.foreachBatch(lambda rows, _: rows.write.parquet(str(folder / "out")))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.read.parquet(str(folder / "out")).groupBy("n").count().collect()


def main() -> None:
    """Make the archive; with a path, run the Spark that records it."""
    if len(sys.argv) > 1:
        _record(Path(sys.argv[1]))
    else:
        print(make())


if __name__ == "__main__":
    main()
