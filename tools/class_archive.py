"""An archive of Spark's classes as the JVM keeps them in memory: with it a driver starts twice as fast.

Java checks that an archive fits its own build and the jars it was made from, and goes without where
it does not; so the archive is a help that nothing depends on. It lies in `.cache/spark`, named after
the Java and the PySpark that it is of.

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
    """What to put into JAVA_TOOL_OPTIONS for short-lived Sparks, with the archive where there is one."""
    archive = place()
    if not archive.exists():
        return " ".join(SHORT_LIVED)
    # Java tells of an archive that does not fit on its standard output, where others read.
    return " ".join((*SHORT_LIVED, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"))


def place() -> Path:
    """Where the archive for this Java and this PySpark is, or would be."""
    java = subprocess.run(
        [java_home() / "bin" / "java", "-version"], capture_output=True, check=True
    )
    jars = Path(pyspark.__file__).parent / "jars"
    facts = f"{java.stderr!r} {pyspark.__version__} {jars} {jars.stat().st_mtime_ns}"
    return CACHE / f"classes-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.jsa"


def make() -> Path:
    """The archive, made first if there is none; those of other Javas and PySparks are dropped."""
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
    """Run a little of everything in a Spark that leaves its classes behind when it ends."""
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
    """What pipelines do: a stream in micro-batches, Parquet files, JSON, a shuffle."""
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
    """Make it; with a path, be the Spark that it is made from."""
    if len(sys.argv) > 1:
        _record(Path(sys.argv[1]))
    else:
        print(make())


if __name__ == "__main__":
    main()
