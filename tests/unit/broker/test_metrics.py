"""What the broker counts: read from the registry, after requests of real clients."""

from headwater.errors import E
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.broker.live import batch, until


def samples(live):
    """Every line of the registry: name with labels, and value."""
    text = live.on_loop(live.context.metrics.registry.prometheus_text)
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def grown(live, before, name):
    return samples(live).get(name, 0) - before.get(name, 0)


def test_requests_and_bytes_count_on_both_paths_of_produce(live, topic):
    before = samples(live)
    data = batch(b"v" * 100)
    with live.client() as client:
        for _ in range(300):  # all but the first by the fast path, some of them timed
            assert client.produce(topic, data).error_code == 0
        assert client.fetch(topic).error_code == 0
    assert grown(live, before, 'headwater_requests_total{api="Produce"}') == 300
    assert grown(live, before, 'headwater_requests_total{api="Fetch"}') == 1
    assert grown(live, before, 'headwater_request_time_ms_count{api="Produce"}') >= 3
    stored = 300 * len(data)
    written = f'headwater_topic_bytes_total{{direction="in",topic="{topic}"}}'
    read = f'headwater_topic_bytes_total{{direction="out",topic="{topic}"}}'
    assert (grown(live, before, written), grown(live, before, read)) == (stored, stored)
    until(lambda: grown(live, before, 'headwater_network_bytes_total{direction="in"}') > stored)
    until(lambda: grown(live, before, 'headwater_network_bytes_total{direction="out"}') > stored)


def test_errors_count_by_api_and_code(live, client):
    before = samples(live)
    for _ in range(2):
        answer = client.produce("no-such-topic", batch())
        assert answer.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    errors = 'headwater_request_errors_total{api="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"}'
    assert grown(live, before, errors) == 2


def test_connections_are_counted_while_they_are_open(live):
    before = samples(live)["headwater_connections"]
    with live.client() as client:
        client.ask(MetadataRequest(topics=[]), MetadataResponse, 12)
        assert samples(live)["headwater_connections"] == before + 1
    until(lambda: samples(live)["headwater_connections"] == before)


def test_a_deleted_topic_leaves_no_counters(live, topic):
    with live.client() as client:
        for _ in range(3):
            client.produce(topic, batch())
    before = samples(live)
    live.on_loop(lambda: live.context.metrics.topics_deleted([topic]))
    assert not any(topic in name for name in samples(live))
    produce = 'headwater_requests_total{api="Produce"}'
    assert samples(live)[produce] == before[produce]
