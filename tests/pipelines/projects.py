"""Pipelines that tests write to disk and run."""

from pathlib import Path
from textwrap import dedent

from headwater.pipelines.declaring.project import load_project

SHOP = """
from headwater import pipelines as hw
from pyspark.sql import functions as sf


@hw.table
def bronze():
    return hw.topic("{topic}").select(
        sf.col("value").cast("string").alias("text"),
        sf.col("topic"), sf.col("partition"), sf.col("offset"), sf.col("timestamp"),
    )


@hw.temporary_view
def parsed():
    return hw.read_stream("bronze").select(
        "topic", "partition", "offset", "timestamp",
        sf.from_json("text", "id BIGINT, price DOUBLE").alias("order"),
    ).select("topic", "partition", "offset", "timestamp", "order.id", "order.price")


@hw.table(partition_by=["partition"])
@hw.expect("price is round", "price = round(price)")
@hw.expect_or_drop("has an id", "id IS NOT NULL")
@hw.expect_or_drop("price is positive", "price > 0")
@hw.quarantine(table="refused", topic="{topic}.dead")
def silver():
    return hw.read_stream("parsed")


hw.create_sink("out", "topic:{topic}.out")


@hw.append_flow(target="out")
def back():
    return hw.read_stream("silver").select(
        sf.col("id").cast("string").alias("key"),
        sf.to_json(sf.struct("id", "price")).alias("value"),
    )
"""

GOLD = """
CREATE MATERIALIZED VIEW totals AS
SELECT count(*) AS orders, sum(price) AS turnover FROM silver;
"""


COPY = """
from headwater import pipelines as hw


@hw.table
def raw():
    return hw.topic("{topic}").selectExpr("CAST(value AS STRING) AS v")


@hw.table
def copy():
    return hw.read_stream("raw")
"""


def write_project(folder: Path, bootstrap: str, files: dict[str, str], extra: str = ""):
    """A project in a folder, with its tables in `<folder>/lake`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.yml").write_text(
        f"name: {folder.name}\nstorage: lake\nbootstrap_servers: {bootstrap}\n" + dedent(extra)
    )
    for name, text in files.items():
        (folder / name).write_text(text)
    return load_project(folder)


def shop(folder: Path, bootstrap: str, topic: str, extra: str = ""):
    """Bronze, silver with quarantine and dead letters, gold in SQL, and a flow back to a topic."""
    files = {"shop.py": SHOP.format(topic=topic), "gold.sql": GOLD}
    return write_project(folder, bootstrap, files, extra)


def copied(folder: Path, bootstrap: str, topic: str):
    """The smallest pipeline with two steps: `raw` from the topic, `copy` from `raw`."""
    return write_project(folder, bootstrap, {"copied.py": COPY.format(topic=topic)})
