"""Prints results: a table on a terminal, aligned text in a pipe, JSON on request."""

import json
import select
import sys
from collections.abc import Awaitable, Mapping, Sequence
from io import UnsupportedOperation
from typing import IO, TypeVar

import click

from headwater.errors import E, KafkaError
from headwater.observe.logs import printable

T = TypeVar("T")
Row = Mapping[str, object]


def check_stdout() -> None:
    """Raise BrokenPipeError if the reader of standard output is gone (`… | head`)."""
    if stdout_is_closed():
        raise BrokenPipeError("standard output is closed")


def stdout_is_closed() -> bool:
    """Return whether the reader of standard output is gone; a file has none."""
    watched = select.poll()
    try:
        watched.register(sys.stdout.fileno(), 0)
    except UnsupportedOperation:  # it was replaced by an object in this process
        return False
    return bool(watched.poll(0))


def require_stdout() -> IO[str]:
    """Return standard output; ClickException if there is none (`>&-`)."""
    if sys.stdout is None:
        raise click.ClickException("standard output is closed; redirect it to a file or /dev/null")
    return sys.stdout


def show(rows: Sequence[Row], *, as_json: bool, nothing: str = "", title: str = "") -> None:
    """Print rows that all have the same keys; the keys are the column names."""
    if as_json:
        show_json(list(rows))
    elif not rows:
        if nothing:
            click.echo(nothing, err=True)
    elif require_stdout().isatty():
        _rich_table(rows, title)
    else:
        if title:
            click.echo(title)
        click.echo(plain_table(rows), nl=False)


async def if_allowed(what: str, asked: Awaitable[T]) -> T | None:
    """Return the broker's answer; None, after printing a line, if this user may not know it."""
    try:
        return await asked
    except KafkaError as refusal:
        if refusal.code not in (E.CLUSTER_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED):
            raise
        click.echo(f"{what} not shown: {refusal.message}", err=True)
        return None


def show_json(value: object) -> None:
    """Print a value as indented JSON; control characters of any kind are escaped."""
    require_stdout()
    text = json.dumps(value, indent=2, ensure_ascii=False)
    click.echo("".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text))


def plain_table(rows: Sequence[Row]) -> str:
    """Return aligned columns with upper-case headings, separated by two spaces (works with awk)."""
    lines = [[name.upper() for name in rows[0]]]
    lines += [[cell(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "".join(f"{line}\n" for line in padded)


def cell(value: object) -> str:
    """Return a value as printable text; a dash for None."""
    if value is None or value in ("", []):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    return printable(str(value))


def _rich_table(rows: Sequence[Row], title: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left")
    for name, value in rows[0].items():
        number = isinstance(value, int) and not isinstance(value, bool)
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row.values()))
    Console().print(table)
