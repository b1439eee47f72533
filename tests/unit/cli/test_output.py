import pytest

from headwater.cli.output import cell, plain_table


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
    ],
)
def test_a_cell_is_one_printable_word(value: object, text: str) -> None:
    assert cell(value) == text
