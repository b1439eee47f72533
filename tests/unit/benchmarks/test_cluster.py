"""The benchmark of clusters: each connection is a producer that writes where its partition is led."""

import pytest
from benchmarks.cluster import replicated_load
from benchmarks.load.encode import Producer, Topic
from benchmarks.load.generator import Sample
from benchmarks.load.rounds import QUICK

from headwater.records.batch import batches
from headwater.wire import codec
from headwater.wire.apis import API
from headwater.wire.framing import read_request_header


class Server:
    """Hands out producer ids."""

    def __init__(self):
        self.producers = 0

    def producer(self):
        self.producers += 1
        return Producer(self.producers, 0)


def test_connection_i_writes_to_partition_i_modulo_three_with_an_id_of_its_own():
    load = replicated_load.LOADS["produce-1rec-100c"].requests(
        Server(), Topic("bench", bytes(16), 3), QUICK
    )
    found = []
    for frame, _ in load.frames:
        header = read_request_header(frame, 4, len(frame))
        body, _ = codec.decode(API[header.api_key].request, header.version, frame, header.body)
        (partition,) = body.topic_data[0].partition_data
        ((_, batch),) = batches(bytes(partition.records))
        found.append((partition.index, batch.producer_id, body.acks))
    assert found == [(i % 3, i + 1, -1) for i in range(load.connections)]


def sample(requests, cpu_seconds):
    return Sample(requests, requests * 16_000, 1.0, cpu_seconds, 100.0, 200.0, 300.0)


def test_a_figure_is_the_ratio_of_each_round_with_its_target():
    samples = {
        "produce-16KiB": {
            "kafka": [sample(100, 1.0), sample(200, 1.0)],
            "headwater": [sample(150, 0.75), sample(200, 0.5)],
        }
    }
    found = {one.measure: one for one in replicated_load.figures(samples, "headwater")}
    rate = found["rate ÷ kafka"]
    assert rate.values == pytest.approx([1.5, 1.0])
    assert (str(rate.limit), rate.verdict) == ("≥ 1.2", "met")
    cost = found["CPU per request, all processes ÷ kafka"]
    assert cost.values == pytest.approx([0.5, 0.5])
    assert (str(cost.limit), cost.verdict) == ("≤ 0.7", "met")
