import pytest

from headwater.pipelines.targets import Target, TargetError, parse_target


@pytest.mark.parametrize("text", ["delta:/a/b", "iceberg:lake/x", "parquet:/p", "topic:events"])
def test_a_target_reads_back_as_it_was_written(text):
    assert str(parse_target(text)) == text


def test_only_topics_are_not_tables():
    assert [parse_target(f"{kind}:x").is_table for kind in ("delta", "iceberg", "parquet")] == [
        True,
        True,
        True,
    ]
    assert not parse_target("topic:x").is_table


def test_file_addresses_and_slashes_behind_are_folders():
    assert parse_target("delta:file:///a/b/") == Target("delta", "/a/b")
    assert parse_target("delta:file:/a/b") == Target("delta", "/a/b")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("detla:/x", "did you mean delta:"),
        ("/only/a/path", "write delta:PATH"),
        ("delta:", "has no path or name"),
        ("topic: ", "has no path or name"),
        ("delta:s3://bucket/x", "mounted folder"),
    ],
)
def test_what_is_no_target_is_refused_with_the_way_out(text, says):
    with pytest.raises(TargetError, match=says):
        parse_target(text)
