"""A peak that brings more than the pipeline takes: the lag shows it, and nothing else suffers."""

from examples.behavior.festival import PARTITIONS, TOPIC, Plan, draw, hold

from tests.pipelines.lake import rows_of

PLAN = Plan(steady=600, peak=1500, after=60, steady_s=2.0, peak_s=3.0)


def test_a_peak_waits_in_the_topic_drains_as_predicted_and_loses_nothing(spark, broker, tmp_path):
    broker.create_topic(TOPIC, PARTITIONS)
    outcome = hold(spark, broker.bootstrap, tmp_path, PLAN)

    assert sorted(rows_of(tmp_path / "table", "event")) == sorted(
        (f"event {number}",) for number in range(outcome.sent)
    )
    assert outcome.sent >= PLAN.due(PLAN.peak_ends_s)
    assert outcome.waits_for_room == 0, "no send waited, however far behind the pipeline was"
    assert outcome.highest_lag >= 0.7 * PLAN.excess
    assert outcome.samples[-1].lag <= PLAN.batch
    assert outcome.predicted_s > 0

    draw(outcome, tmp_path / "lag.png")
    drawn = (tmp_path / "lag.png").read_bytes()
    assert drawn.startswith(b"\x89PNG")
    assert len(drawn) > 10_000
