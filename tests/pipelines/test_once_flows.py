"""Flows that are declared `once`: what their first run gives is all that they ever give."""

from headwater.pipelines.running.runner import run
from tests.pipelines.lake import rows_of
from tests.pipelines.projects import write_project

FLOW = """
@hw.append_flow(target="loaded", once=True)
def {name}():
    return hw.topic_snapshot("{topic}").selectExpr("CAST(value AS STRING) AS v")
"""


def test_a_flow_that_had_no_rows_has_run_once_all_the_same(
    spark, bootstrap, topic, produce, tmp_path
):
    some, none = topic("some"), topic("none")
    flows = [FLOW.format(name="one", topic=some), FLOW.format(name="two", topic=none)]
    head = 'from headwater import pipelines as hw\n\nhw.create_streaming_table("loaded")\n'
    project = write_project(tmp_path / "once", bootstrap, {"a.py": "\n".join([head, *flows])})
    produce(some, ["a"])
    run(project, once=True, spark=spark)
    produce(some, ["late"])
    produce(none, ["late"])
    run(project, once=True, spark=spark)
    assert rows_of(project.storage / "loaded", "v") == [("a",)]
