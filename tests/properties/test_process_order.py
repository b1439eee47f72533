"""Parallel work, in any interleaving: order within a lane, and only finished prefixes committed."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.client.consumer.processing.lanes import ORDERS, Lanes
from headwater.client.consumer.record import ConsumerRecord
from headwater.model import TopicPartition

keys = st.sampled_from([None, b"a", b"b", b"c"])
gaps = st.integers(1, 3)


def records_of(rows):
    offsets = {0: 0, 1: 0}
    made = []
    for partition, key, gap in rows:
        made.append(ConsumerRecord("t", partition, offsets[partition], 0, 0, key, b"", ()))
        offsets[partition] += gap
    return made


rows = st.lists(st.tuples(st.integers(0, 1), keys, gaps), max_size=30)


@given(rows=rows, order=st.sampled_from(["key", "partition"]), data=st.data())
def test_lanes_keep_order_and_commits_keep_prefixes(rows, order, data) -> None:
    lanes, waiting, out, finished = Lanes(ORDERS[order]), records_of(rows), [], []
    total, committed = len(waiting), {}
    while len(finished) < total:
        choices = [name for name, on in (("add", waiting), ("finish", out)) if on] + ["next"]
        step = data.draw(st.sampled_from(choices))
        if step == "add":
            lanes.add([waiting.pop(0)])
        elif step == "finish":
            record = out.pop(data.draw(st.integers(0, len(out) - 1)))
            lanes.finish(record)
            finished.append(record)
        else:
            record = lanes.next()
            if record is not None:
                out.append(record)
            elif not waiting and not out:
                raise AssertionError("records wait and nobody may have them")
        committed |= lanes.commits()
        done = set(map(id, finished))
        for record in records_of(rows):
            if record.offset < committed.get(record.topic_partition, 0):
                assert any(one == record for one in finished)
        assert len(done) == len(finished)
    assert lanes.unfinished == 0
    lane = (lambda r: (r.partition, r.key)) if order == "key" else (lambda r: r.partition)
    for name in {lane(record) for record in finished}:
        offsets = [record.offset for record in finished if lane(record) == name]
        assert offsets == sorted(offsets)


@given(rows=rows, taken=st.integers(0, 10))
def test_partitions_that_went_count_no_more(rows, taken) -> None:
    lanes = Lanes(ORDERS["key"])
    lanes.add(records_of(rows))
    out = [record for record in (lanes.next() for _ in range(taken)) if record is not None]
    gone = TopicPartition("t", 0)
    lanes.hold_back([gone])
    assert lanes.at_work([gone]) == sum(record.partition == 0 for record in out)
    lanes.forget([gone])
    for record in out:
        lanes.finish(record)
    while (record := lanes.next()) is not None:
        assert record.partition == 1
        lanes.finish(record)
    assert gone not in lanes.committable()
    assert lanes.unfinished == 0
