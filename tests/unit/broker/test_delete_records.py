"""DeleteRecords where the high watermark is behind the log's end."""

import pytest

from headwater.broker.handlers.delete_records import UP_TO_HIGH_WATERMARK, _advance
from headwater.errors import E, KafkaError
from tests.unit.broker.live import batch
from tests.unit.replication.stage import NOW, Stage


@pytest.fixture
def replica(tmp_path):
    """A leader of five records, of which a follower has three."""
    stage = Stage(tmp_path, replicas=(1, 2))
    for _ in range(5):
        stage.append(batch(now=NOW))
    stage.around.end_tick()
    stage.replica.run(stage.replica.partition.follower_fetched(0, 2, 3, 0))
    assert (stage.replica.partition.high_watermark, stage.replica.log.log_end_offset) == (3, 5)
    return stage.replica


@pytest.mark.parametrize("offset", [4, 5, 6, -2])
def test_records_that_are_not_committed_are_not_deleted(replica, offset):
    with pytest.raises(KafkaError) as refused:
        _advance(replica, offset)
    assert refused.value.code is E.OFFSET_OUT_OF_RANGE
    assert replica.log.log_start_offset == 0


@pytest.mark.parametrize(("offset", "start"), [(0, 0), (2, 2), (3, 3), (UP_TO_HIGH_WATERMARK, 3)])
def test_the_log_starts_where_the_request_says(replica, offset, start):
    assert _advance(replica, offset) == start
    assert replica.log.log_start_offset == start
