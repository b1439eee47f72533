from tools import blocking_faces, client_options, reference


def test_the_reference_pages_say_what_the_tables_say() -> None:
    assert reference.outdated() == [], "run python -m tools.reference"


def test_each_difference_from_kafka_is_listed() -> None:
    page = reference.configs_page()
    table = page[: page.index("## Topic keys")]
    for key in ("auto.create.topics.enable", "offsets.topic.replication.factor", "listeners"):
        assert f"| {key} |" in table


def test_the_typed_keywords_of_clients_are_those_of_the_tables() -> None:
    assert not client_options.outdated(), "run python -m tools.client_options"


def test_the_blocking_clients_are_derived_from_the_asyncio_ones() -> None:
    assert blocking_faces.outdated() == [], "run python -m tools.blocking_faces"
