"""Offsets in what Spark reports of sources."""

import pytest

from headwater.model import TopicPartition
from headwater.pipelines.running.positions import end_positions


def test_every_partition_of_every_source_counts():
    told = [('{"a": {"0": 3, "1": 4}}'), ('{"b": {"2": 0}}')]
    assert end_positions(told) == {
        TopicPartition("a", 0): 3,
        TopicPartition("a", 1): 4,
        TopicPartition("b", 2): 0,
    }


def test_of_two_readers_the_one_behind_counts():
    assert end_positions(['{"a": {"0": 9}}', '{"a": {"0": 5}}']) == {TopicPartition("a", 0): 5}


@pytest.mark.parametrize("text", [None, "", "17", '{"logOffset": 3}', "null", "[1]", "not json"])
def test_sources_that_are_no_topics_are_passed_over(text):
    assert end_positions([text]) == {}
