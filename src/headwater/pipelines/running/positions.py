"""Reads topic offsets from what Spark reports of a query's sources. Pure."""

import json
from collections.abc import Iterable
from typing import Any

from headwater.model import TopicPartition


def end_positions(sources: Iterable[str | None]) -> dict[TopicPartition, int]:
    """Return how far a query has read its topics, from the end offset of each source.

    Our own source and Spark's Kafka connector report `{"topic": {"0": 12}}`. Other sources are
    ignored. If two sources read one partition the lower offset counts, so that lag is never hidden.
    """
    found: dict[TopicPartition, int] = {}
    for text in sources:
        for place, offset in _topic_offsets(text).items():
            found[place] = min(offset, found.get(place, offset))
    return found


def _topic_offsets(text: str | None) -> dict[TopicPartition, int]:
    try:
        topics: Any = json.loads(text or "null")
        return {
            TopicPartition(topic, int(number)): int(offset)
            for topic, partitions in topics.items()
            for number, offset in partitions.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
