"""One dataset of a project from made-up rows, in Python and in SQL, with its expectations."""

import pytest

from headwater.pipelines.declaring.project import load_project
from headwater.pipelines.running.quality import ExpectationError
from headwater.testing.pipelines import records, rows_of

PIPELINE = {
    "shop.py": """
from headwater import pipelines as hw


@hw.table
def bronze():
    return hw.topic("orders").selectExpr("CAST(value AS STRING) AS id", "1.0D AS price")


@hw.append_flow(target="bronze")
def older():
    return hw.topic("older").selectExpr("CAST(value AS STRING) AS id", "2.0D AS price")


@hw.temporary_view
def doubled():
    return hw.read_stream("bronze").selectExpr("id", "price * 2 AS price")


@hw.table(schema="price DOUBLE, id STRING")
@hw.expect_or_drop("positive", "price > 0")
@hw.expect_or_fail("has an id", "id IS NOT NULL")
def silver():
    return hw.read_stream("doubled")
""",
    "gold.sql": "CREATE MATERIALIZED VIEW gold AS SELECT id, sum(price) AS sum FROM silver GROUP BY id;",
    "pipeline.yml": "name: shop\ndefinitions: [shop.py, gold.sql]\n",
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    for name, text in PIPELINE.items():
        (folder / name).write_text(text)
    return load_project(folder)


def test_rows_are_computed_and_refused_without_broker_and_tables(spark, shop):
    bronze = spark.createDataFrame([("a", 1.0), ("b", -1.0)], "id STRING, price DOUBLE")
    found = rows_of(shop, "silver", bronze=bronze)
    assert [tuple(row) for row in found.good.collect()] == [(2.0, "a")]
    assert [(row.id, row._reasons) for row in found.refused.collect()] == [("b", ["positive"])]
    assert found.good.columns == ["price", "id"]
    (gold,) = rows_of(shop, "gold", silver=found.good).good.collect()
    assert tuple(gold) == ("a", 2.0)
    with pytest.raises(ExpectationError, match="has an id"):
        rows_of(
            shop, "silver", bronze=spark.sql("SELECT CAST(NULL AS STRING) AS id, 1.0D AS price")
        )


def test_topics_are_records_and_all_flows_into_a_table_are_its_rows(spark, shop):
    topics = {"orders": records(spark, ["x"]), "older": records(spark, [b"y", {"z": 1}])}
    rows = rows_of(shop, "bronze", topics=topics).good.collect()
    assert sorted(row.id for row in rows) == ["x", "y", '{"z": 1}']
    (one,) = rows_of(shop, "older", topics=topics).good.limit(1).collect()
    assert one.price == 2.0


def test_what_is_not_given_is_an_error_with_the_argument_to_add(spark, shop):
    with pytest.raises(ValueError, match=r"reads bronze: give its rows as .*bronze=frame"):
        rows_of(shop, "silver", spark=spark)
    with pytest.raises(ValueError, match="reads the topic orders"):
        rows_of(shop, "bronze", spark=spark)
    with pytest.raises(
        ValueError, match="no dataset or flow slver; there are bronze, gold, silver"
    ):
        rows_of(shop, "slver", spark=spark)
