"""Arguments that cannot be are refused in words, before any broker is asked."""

import asyncio

import pytest

from headwater import ConfigResource, NewTopic, ResetTo
from headwater.aio import Admin

HERE = ("orders", 0)


@pytest.mark.parametrize(
    ("call", "arguments", "says"),
    [
        ("create_topics", [None], "create_topics takes a list, not None"),
        ("create_topics", [[3]], "takes names and NewTopics, not 3"),
        ("create_topics", [["\udcff"]], "not valid Unicode"),
        ("create_topics", [[NewTopic("t", "3")]], "the number of partitions is '3'"),
        ("create_topics", [[NewTopic("t", 2**40)]], "does not fit into 32 bits"),
        ("create_topics", [[NewTopic("t", 1, True)]], "the replication factor is True"),
        ("create_partitions", [{"t": "3"}], "the number of partitions of t is '3'"),
        ("delete_topics", [[5]], "a name given to delete_topics is 5"),
        ("delete_records", [{HERE: "x"}], "give a whole number"),
        ("delete_records", [{"orders": 1}], r"is not a \(topic, partition\)"),
        ("delete_records", [[HERE]], r"delete_records takes \{\(topic, partition\): number\}"),
        ("list_offsets", [{HERE: 1.5}], "give a whole number"),
        ("alter_configs", [[1]], r"takes \{ConfigResource"),
        ("alter_configs", [{ConfigResource.topic("t"): [1]}], "takes ConfigChanges"),
        ("alter_configs", [{ConfigResource("broker", "1"): {}}], "'broker' is not a type of"),
        ("describe_configs", [[ConfigResource(9, "1")]], "9 is not a type of ConfigResource"),
        ("describe_configs", [[ConfigResource.broker("a")]], "'a' is not the id of a broker"),
        ("replace_configs", [{"t": {}}], "'t' is not a ConfigResource"),
        ("replace_configs", [[1]], r"takes \{ConfigResource"),
        ("describe_group", [5], "the group id is 5"),
        ("describe_groups", [[5]], "a name given to describe_groups is 5"),
        ("set_group_offsets", ["g", {HERE: "1"}], "an offset is a whole number"),
        ("set_group_offsets", ["g", [HERE]], "set_group_offsets takes"),
        ("delete_group_offsets", ["g", ["orders"]], r"is not a \(topic, partition\)"),
        ("reset_group_offsets", ["g", "earliest"], "is not a ResetTo"),
        ("describe_log_dirs", [5], "describe_log_dirs takes a list, not 5"),
    ],
)
def test_arguments_of_a_wrong_kind_are_refused_in_words(call, arguments, says) -> None:
    async def ask() -> None:
        async with Admin(bootstrap_servers="127.0.0.1:1") as admin:
            await getattr(admin, call)(*arguments)

    with pytest.raises((TypeError, ValueError), match=says):
        asyncio.run(ask())


def test_a_time_or_duration_that_is_none_says_how_to_write_it() -> None:
    with pytest.raises(ValueError, match="'soon' is not a time: write ISO 8601"):
        ResetTo.datetime("soon")
    with pytest.raises(ValueError, match="'soon' is not a duration: write PnDTnHnMnS"):
        ResetTo.duration("soon")
