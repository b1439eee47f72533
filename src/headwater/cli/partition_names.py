"""Partitions as people type them: TOPIC, or TOPIC:PARTITION."""

import click

from headwater.client.admin import Admin
from headwater.model import TopicPartition


def named_partition(name: str) -> TopicPartition | None:
    """Parse TOPIC:PARTITION; None for a whole topic."""
    topic, colon, number = name.rpartition(":")
    if colon and topic and number.isdecimal():
        return TopicPartition(topic, int(number))
    if colon:
        raise click.UsageError(f"{name}: write TOPIC:PARTITION")
    return None


async def partitions_of(admin: Admin, name: str) -> list[TopicPartition]:
    """Return the partition that is named, or all partitions of the topic."""
    one = named_partition(name)
    if one is not None:
        return [one]
    view = (await admin.describe_topics([name]))[name]
    return [TopicPartition(name, row.partition) for row in view.partitions]
