"""The client by check table at the end of a run, made from the reports of the tests."""

from collections.abc import Iterable
from typing import Any

from tests.compat.cells import Cell

Table = dict[Cell, str]


def read_reports(reports: Iterable[Any]) -> tuple[Table, set[str]]:
    """The word for each cell, and the reasons of those that do not apply."""
    table: Table = {}
    reasons: set[str] = set()
    for report in reports:
        properties = dict(getattr(report, "user_properties", ()))
        if "cell" not in properties or (report.when != "call" and report.passed):
            continue
        cell = Cell(*properties["cell"])
        reason = properties.get("reason")
        table[cell] = "FAILED" if report.failed else "skipped" if report.skipped else "ok"
        if report.passed and reason:
            table[cell] = "n/a"
            reasons.add(reason)
    return table, reasons


def lines(table: Table, clients: list[str], checks: list[str]) -> list[str]:
    """The table as text; a cell without a word is shown as EMPTY."""
    first = max(map(len, checks), default=0) + 2
    widths = [max(len(client), 7) + 2 for client in clients]
    titles = "".join(client.center(width) for client, width in zip(clients, widths, strict=True))
    out = [" " * first + titles]
    for check in checks:
        words = [table.get(Cell(client, check), "EMPTY") for client in clients]
        row = "".join(word.center(width) for word, width in zip(words, widths, strict=True))
        out.append(check.ljust(first) + row)
    return out


def empty_cells(table: Table, expected: Iterable[Cell]) -> list[Cell]:
    """The cells that nobody filled."""
    return [cell for cell in expected if cell not in table]
