"""When a backlog will be gone, reckoned from samples of the lag."""

from examples.behavior.festival import Outcome, Plan, Sample, predicted_s

PLAN = Plan(steady=600, peak=1500, after=60)


def test_the_prediction_divides_what_waits_by_how_much_faster_reading_is_than_writing():
    outcome = Outcome(PLAN)
    for second in range(8):  # reads 600 a second in steps, samples twice a second
        outcome.samples += [
            Sample(second, 5_000 + 1_500 * second, 600 * second),
            Sample(second + 0.5, 5_750 + 1_500 * second, 600 * second),
        ]
    lag = outcome.samples[-1].lag
    assert predicted_s(outcome) == (lag - PLAN.batch) / (600 - PLAN.after)


def test_a_pipeline_that_has_read_nothing_yet_is_taken_at_its_planned_rate():
    outcome = Outcome(PLAN, [Sample(0.0, 6_000, 0), Sample(1.0, 6_000, 0)])
    assert predicted_s(outcome) == (6_000 - PLAN.batch) / (600 - PLAN.after)
