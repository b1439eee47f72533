"""docs/compatibility.md has the tables of the matrix, and the number of scenes, as they are."""

from pathlib import Path

import tests.compat.differential.scenes  # noqa: F401 - fills SCENES
from tests.compat import matrix
from tests.compat.checks.frameworks import KILLS
from tests.compat.differential.scene import SCENES

PAGE = (Path(__file__).parents[2] / "docs/compatibility.md").read_text(encoding="utf-8")
NO_TABLE = {
    "Kafka's command-line tools",
    "Kafka's command-line tools on three brokers",
    "Kafka Streams and Connect, killed midway",
}
"""Tables of one column: the page names their rows in sentences."""


def tables_of_page():
    """The columns and rows of each table, by the order of the page."""
    found, last = [], ""
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and not last.startswith("|"):
            found.append((cells[1:], []))
        elif line.startswith("|") and not line.startswith("|-"):
            assert set(cells[1:]) <= {"ok", "n/a"}, line
            assert len(cells[1:]) == len(found[-1][0]), line
            found[-1][1].append(cells[0])
        last = line
    return found


def test_the_tables_of_the_page_are_those_of_the_matrix():
    one, three, transactions, on_three, logins, frameworks = (
        (columns, rows) for title, columns, rows in matrix.TABLES if title not in NO_TABLE
    )
    short = [row.removeprefix(matrix.ONE.format("")) for row in transactions[1]]
    again = [row.removeprefix(matrix.THREE.format("")) for row in on_three[1]]
    assert set(short) < set(again), "the page has one table for both"
    # Spark's connector has its tests in tests/pipelines.
    with_spark = ([*frameworks[0], "Spark's connector"], frameworks[1])
    assert tables_of_page() == [one, three, (on_three[0], again), logins, with_spark]


def test_the_numbers_of_the_page_are_those_of_the_tests():
    assert f"\n{len(SCENES)} scripts of valid and invalid requests" in PAGE
    assert KILLS in (2, 3)
    assert f"midway {'twice' if KILLS == 2 else 'three times'}" in PAGE
