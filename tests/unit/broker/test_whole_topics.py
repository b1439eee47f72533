"""A new topic appears with all of its partitions, although a few are created at a time."""

import pytest

from headwater.model import CONSUMER_OFFSETS, TRANSACTION_STATE
from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from tests.unit.broker.live import Live, until

MANY = 50


@pytest.fixture
def seen(tmp_path):
    """A broker with coordinators of many partitions, and the counts that it knew of each topic."""
    settings = {
        "offsets.topic.num.partitions": str(MANY),
        "transaction.state.log.num.partitions": str(MANY),
    }
    with Live(tmp_path, settings) as live:
        counts: dict[str, set[int]] = {}
        metadata = live.context.metadata
        apply = metadata.apply

        def watched(update):
            removed = apply(update)
            for state in update.topic_states:
                known = counts.setdefault(state.topic_name, set())
                known.add(metadata.partition_count(state.topic_name))
                topic = metadata.topics.get(state.topic_name)
                known.add(0 if topic is None else len(topic.partitions))
            return removed

        live.on_loop(lambda: setattr(metadata, "apply", watched))
        yield live, counts


@pytest.mark.parametrize(("kind", "topic"), [(0, CONSUMER_OFFSETS), (1, TRANSACTION_STATE)])
def test_no_key_has_one_coordinator_now_and_another_one_later(seen, kind, topic):
    """A group that joined in between would lose its offsets, a producer its transactional id."""
    live, counts = seen

    def found() -> bool:
        with live.client() as client:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["a"])
            answer = client.ask(request, FindCoordinatorResponse, 4)
        return answer.coordinators[0].error_code == 0

    until(found)
    assert counts[topic] == {0, MANY}


def test_clients_never_see_a_part_of_a_new_topic(seen):
    live, counts = seen
    live.create("t", partitions=MANY)
    assert counts["t"] == {0, MANY}
