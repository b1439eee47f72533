from tools import reference


def test_the_reference_pages_say_what_the_tables_say() -> None:
    assert reference.outdated() == [], "run python -m tools.reference"


def test_each_difference_from_kafka_is_listed() -> None:
    page = reference.configs_page()
    table = page[: page.index("## Topic keys")]
    for key in ("auto.create.topics.enable", "offsets.topic.replication.factor", "listeners"):
        assert f"| {key} |" in table
