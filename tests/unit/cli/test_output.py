import asyncio
import json

import click
import pytest

from headwater.cli.app import OneLineError
from headwater.cli.item_results import ItemResults
from headwater.cli.output import cell, plain_table, show_json
from headwater.errors import E, KafkaError


def test_a_table_in_a_pipe_has_aligned_columns_and_no_trailing_blanks() -> None:
    rows = [
        {"topic": "orders", "partition": 0, "isr": [1, 2], "leader": None},
        {"topic": "t", "partition": 10, "isr": [], "leader": 3},
    ]
    assert plain_table(rows) == (
        "TOPIC   PARTITION  ISR  LEADER\n"
        "orders  0          1,2  -\n"
        "t       10         -    3\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("", "-"),
        ([], "-"),
        (0, "0"),
        (False, "no"),
        (True, "yes"),
        ("a\x1b\n", r"a\x1b\n"),
        (["b", "a\x1b\n"], r"b,a\x1b\n"),
        (("User:x\nUser:admin", 1), r"User:x\nUser:admin,1"),
    ],
)
def test_a_cell_is_one_printable_word(value: object, text: str) -> None:
    assert cell(value) == text


EVIL = "é\n\x1b[31m\x07\x9b2J\u2028\u202e\U000e0001"


def test_json_and_errors_move_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    show_json([{"name": EVIL}])
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.splitlines())
    assert len(shown.splitlines()) == 5
    assert "é" in shown
    assert json.loads(shown) == [{"name": EVIL}]
    error = OneLineError(f"refused: {EVIL}", click.Context(click.Command("x")))
    assert error.message == r"refused: é \x1b[31m\x07\x9b2J \u202e\U000e0001"


def test_the_error_of_an_item_without_a_name_has_no_empty_prefix() -> None:
    async def refuse() -> None:
        raise KafkaError(E.INVALID_TOPIC_EXCEPTION, "the topic name is empty")

    report = ItemResults("topic", "created")
    asyncio.run(report.attempt("", refuse()))
    with pytest.raises(KafkaError, match=r"^the topic name is empty"):
        report.show(as_json=False)
