"""What a stream plans when brokers tell it things at awkward moments."""

import pytest

from headwater.config.keys import ConfigError
from headwater.model import TopicPartition
from headwater.pipelines.topic_source.options import Bound, parse
from headwater.pipelines.topic_source.pace import MOST_ROWS
from headwater.pipelines.topic_source.range_reader import DataLossError
from headwater.pipelines.topic_source.stream_plan import StreamPlan
from headwater.pipelines.topic_source.topics_view import (
    ExistingPartitions,
    OffsetBounds,
    TopicsView,
)

HERE = TopicPartition("t", 0)


class Topics(TopicsView):
    """Partitions, one by default, that end where the test says."""

    def __init__(self, options, end):
        self._options = options
        self.brokers = self
        self.end = end
        self.hidden = 0
        """Records after the end that are not committed."""
        self.id = b"1" * 16
        self.partitions = [HERE]

    def seen(self):
        return ExistingPartitions(self.partitions, {"t": self.id})

    def ends(self, partitions):
        return OffsetBounds(dict.fromkeys(partitions, 0), self.latest(partitions))

    def latest(self, partitions):
        return dict.fromkeys(partitions, self.end)

    def log_ends(self, partitions):
        return dict.fromkeys(partitions, self.end + self.hidden)

    def pause(self, interval_ms):
        pass


def planned(end, **chosen):
    base = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}
    options = parse({**base, **chosen}, streaming=True)
    view = Topics(options, end)
    return StreamPlan(options, view), view


def test_records_that_come_while_an_available_now_query_starts_at_latest_are_no_loss():
    plan, view = planned(100, startingOffsets="latest")
    plan.stop_here()
    view.end = 105
    start = plan.initial()
    assert start == {HERE: 105}
    assert plan.next_end(start, None, None) == start
    assert plan.ranges(start, start) == []
    view.end = 110
    assert plan.next_end(start, None, None) == start


def test_a_log_that_was_cut_is_not_read_again_from_its_beginning():
    plan, view = planned(100, startingOffsets="earliest", failOnDataLoss="false")
    end = plan.next_end(plan.initial(), None, None)
    assert end == {HERE: 100}
    view.end = 90
    assert plan.next_end(end, None, None) == end
    view.end = 103
    onward = plan.next_end(end, None, None)
    assert [tuple(one) for one in plan.ranges(end, onward)] == [("t", 0, 100, 103)]


def test_an_open_transaction_below_what_was_read_is_no_loss():
    plan, view = planned(100, startingOffsets="earliest")
    end = plan.next_end(plan.initial(), None, None)
    view.end, view.hidden = 90, 20  # what was read uncommitted is now read committed
    assert plan.next_end(end, None, None) == end
    assert plan.ranges(end, end) == []
    view.end, view.hidden = 103, 8
    assert plan.next_end(end, None, None) == {HERE: 103}


def test_a_log_that_was_cut_is_a_loss():
    plan, view = planned(100, startingOffsets="earliest")
    end = plan.next_end(plan.initial(), None, None)
    view.end = 90
    with pytest.raises(
        DataLossError, match="the log was truncated: the query had read to offset 100"
    ):
        plan.next_end(end, None, None)


@pytest.mark.parametrize("end", [5, 500])
def test_another_topic_of_the_same_name_is_read_from_its_beginning(end):
    plan, view = planned(100, startingOffsets="earliest", failOnDataLoss="false")
    start = plan.next_end(plan.initial(), None, None)
    view.id, view.end = b"2" * 16, end
    onward = plan.next_end(start, None, None)
    assert [tuple(one) for one in plan.ranges(start, onward)] == [("t", 0, 0, min(end, 99))]


def test_a_topic_that_is_shorter_than_the_checkpoint_of_an_earlier_run_is_another_one():
    plan, _ = planned(5, startingOffsets="earliest", failOnDataLoss="false")
    start = {HERE: 100}
    onward = plan.next_end(start, None, None)
    assert [tuple(one) for one in plan.ranges(start, onward)] == [("t", 0, 0, 5)]


def test_the_checkpoint_of_another_topic_is_refused_even_where_loss_is_allowed():
    plan, _ = planned(5, startingOffsets="earliest", failOnDataLoss="false")
    with pytest.raises(ConfigError, match="is of a stream from other, and this one reads t"):
        plan.next_end({TopicPartition("other", 0): 3}, None, None)


def test_a_commit_that_retention_has_overtaken_begins_at_what_is_left(caplog):
    _, view = planned(100, startingOffsets="committed", **{"group.id": "g"})
    view.committed = lambda group: {HERE: 3}
    bound = Bound("committed", group="g")
    assert view.starts(bound, OffsetBounds({HERE: 10}, {HERE: 100})) == {HERE: 10}
    assert "group g committed offset 3 but the partition begins at 10" in caplog.text
    assert view.starts(bound, OffsetBounds({HERE: 2}, {HERE: 100})) == {HERE: 3}


class Clock:
    """Time that passes as the test says."""

    now = 0

    def monotonic_ms(self):
        return self.now


@pytest.mark.parametrize("partitions", [1, 3, 7, 64])
@pytest.mark.parametrize("rows_per_ms", [1, 50])
def test_batches_grow_again_after_slow_ones_however_many_partitions_share_them(
    partitions, rows_per_ms
):
    clock = Clock()
    base = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", "targetBatchTime": "5s"}
    options = parse({**base, "startingOffsets": "earliest"}, streaming=True)
    view = Topics(options, 10_000_000)
    view.partitions = [TopicPartition("t", number) for number in range(partitions)]
    plan = StreamPlan(options, view, clock=clock)
    start, took = plan.initial(), []
    for batch in range(40):
        end = plan.next_end(start, MOST_ROWS, None)
        rows = sum(one.size for one in plan.ranges(start, end))
        took.append(60_000 if batch < 8 else 100 + rows / rows_per_ms)
        clock.now += int(took[-1])
        start = end
    assert 4000 <= took[-1] <= 6000
