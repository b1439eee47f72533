"""What the broker counts: read from its metrics, after requests of real clients."""

import gc
import time

from headwater.broker.monitoring import survey
from headwater.broker.monitoring.metric_table import METRICS
from headwater.broker.turns import ELEMENTS_A_TURN
from headwater.errors import E
from headwater.wire.messages.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
)
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from tests.unit.broker.live import batch, until


def grown(live, before, name):
    return live.samples().get(name, 0) - before.get(name, 0)


def test_every_row_of_the_table_is_shown_and_nothing_else(live):
    shown = live.broker.parts.monitoring.exposition.registry.shown
    assert sorted(shown) == sorted(row.name for row in METRICS)


def test_requests_and_bytes_count_on_both_paths_of_produce(live, topic):
    before = live.samples()
    data = batch(b"v" * 100)
    with live.client() as client:
        for _ in range(300):  # all but the first by the fast path, some of them timed
            assert client.produce(topic, data).error_code == 0
        assert client.fetch(topic).error_code == 0
    assert grown(live, before, 'headwater_requests_total{api="Produce"}') == 300
    assert grown(live, before, 'headwater_requests_total{api="Fetch"}') == 1
    assert grown(live, before, 'headwater_request_seconds_count{api="Produce"}') >= 3
    stored = 300 * len(data)
    written = f'headwater_topic_bytes_total{{topic="{topic}",direction="in"}}'
    read = f'headwater_topic_bytes_total{{topic="{topic}",direction="out"}}'
    assert (grown(live, before, written), grown(live, before, read)) == (stored, stored)
    until(lambda: grown(live, before, 'headwater_network_bytes_total{direction="in"}') > stored)
    until(lambda: grown(live, before, 'headwater_network_bytes_total{direction="out"}') > stored)
    found = live.samples(topic)
    assert found[f'headwater_log_bytes{{topic="{topic}"}}'] == stored
    assert found[f'headwater_log_segments{{topic="{topic}"}}'] == 1
    assert found[f'headwater_topic_end_offset{{topic="{topic}"}}'] == 300
    assert found[f'headwater_partition_log_bytes{{topic="{topic}",partition="0"}}'] == stored
    assert not any("headwater_partition_" in name for name in live.samples())


def test_errors_count_by_api_and_code(live, client):
    before = live.samples()
    for _ in range(2):
        answer = client.produce("no-such-topic", batch())
        assert answer.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    errors = 'headwater_request_errors_total{api="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"}'
    assert grown(live, before, errors) == 2


def test_connections_are_counted_while_they_are_open(live):
    before = live.samples()["headwater_connections"]
    with live.client() as client:
        client.ask(MetadataRequest(topics=[]), MetadataResponse, 12)
        assert live.samples()["headwater_connections"] == before + 1
    until(lambda: live.samples()["headwater_connections"] == before)


def test_a_deleted_topic_leaves_no_counters(live, topic):
    with live.client() as client:
        for _ in range(3):
            client.produce(topic, batch())
    before = live.samples()
    live.on_loop(lambda: live.context.metrics.topics_deleted([topic]))
    assert not any("topic_bytes" in name and topic in name for name in live.samples())
    produce = 'headwater_requests_total{api="Produce"}'
    assert live.samples()[produce] == before[produce]


def test_the_only_broker_leads_everything_and_is_the_controller(live, topic):
    found = live.samples()
    assert found["headwater_active_controller"] == found["headwater_live_brokers"] == 1
    assert found["headwater_leaders"] == found["headwater_partitions"] >= 1
    assert found["headwater_cluster_partitions"] == found["headwater_partitions"]
    for name in ("under_replicated_partitions", "under_min_isr_partitions", "offline_partitions"):
        assert found[f"headwater_{name}"] == 0
    assert found["headwater_serving"] == found["headwater_store_connected"] == 1
    assert found["process_resident_memory_bytes"] > 1e6
    assert found["process_open_fds"] > 5
    directory = live.settings["log.dirs"]
    size = found[f'headwater_log_dir_size_bytes{{dir="{directory}"}}']
    assert 0 < found[f'headwater_log_dir_free_bytes{{dir="{directory}"}}'] <= size


def test_a_loop_that_was_held_and_a_collection_are_seen(live):
    late = 'headwater_loop_delay_seconds_bucket{le="0.1"}'
    all_of, pauses = "headwater_loop_delay_seconds_count", "headwater_gc_pause_seconds_count"

    def slow():
        found = live.samples()
        return found.get(all_of, 0) - found.get(late, 0)

    before, collected = slow(), live.samples().get(pauses, 0)
    live.on_loop(lambda: time.sleep(0.5))  # a timer that is due every 100 ms
    until(lambda: slow() > before)
    live.on_loop(gc.collect)
    assert live.samples()[pauses] > collected


def _commit(client, group, topic, offset):
    client.ask(FindCoordinatorRequest(key=group), FindCoordinatorResponse, 1)  # makes the topic
    rows = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    ]
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=rows)]
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    answer = client.ask(request, OffsetCommitResponse, 8)
    return answer.topics[0].partitions[0].error_code


def test_lag_and_lead_of_a_group_and_its_rebalances(live, client, topic):
    for _ in range(10):
        client.produce(topic, batch())
    until(lambda: _commit(client, "readers", topic, 4) == E.NONE)
    found = live.samples()
    labels = f'{{group="readers",topic="{topic}"}}'
    assert found[f"headwater_group_lag{labels}"] == 6
    assert found[f"headwater_group_lead{labels}"] == 4
    assert found['headwater_groups{state="Empty"}'] >= 1
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")]
    joined = client.ask(
        JoinGroupRequest(
            group_id="joiners", session_timeout_ms=6000, rebalance_timeout_ms=6000,
            member_id="", protocol_type="consumer", protocols=protocols,
        ),
        JoinGroupResponse, 3,
    )  # fmt: skip
    assert joined.error_code == E.NONE
    rebalances = live.samples()['headwater_group_rebalances_total{group="joiners",reason="join"}']
    assert rebalances == 1


def test_the_groups_with_the_largest_lag_are_shown_if_there_are_too_many(
    live, client, topic, monkeypatch
):
    monkeypatch.setattr(survey, "MOST_GROUPS", 2)
    for _ in range(10):
        client.produce(topic, batch())
    for number in range(5):
        until(lambda number=number: _commit(client, f"g{number}", topic, number) == E.NONE)
    found = live.samples()
    shown = [name for name in found if name.startswith("headwater_group_lag") and topic in name]
    assert sorted(shown) == [
        f'headwater_group_lag{{group="g{number}",topic="{topic}"}}' for number in (0, 1)
    ]
    assert found["headwater_groups_left_out"] >= 3


def test_a_text_is_made_in_steps_with_few_partitions_each(live):
    live.create("wide", partitions=3 * ELEMENTS_A_TURN)
    steps = live.broker.parts.monitoring.exposition.text()
    pauses = live.on_loop(lambda: sum(1 for _ in steps))
    lines = live.metrics_text().count("\n")
    # One for each replica, one for each partition of the cluster, and about one for each line.
    assert pauses > 6 * ELEMENTS_A_TURN + lines / 3
