"""`headwater log`: look into the files of a log, with the broker running or not."""

import click

from headwater.cli.dump import DamagedBatch, batch_text, batches_of, json_line
from headwater.cli.options import json_option
from headwater.errors import E, KafkaError


@click.group("log")
def command() -> None:
    """Look into the files of a log."""


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--records/--no-records", default=True, help="Show the records of each batch.")
@json_option
def dump(file: str, records: bool, as_json: bool) -> None:
    """Show the batches and records of a segment (a .log file). JSON comes one batch a line."""
    damage = None
    for batch in batches_of(file):
        if isinstance(batch, DamagedBatch):
            damage = batch
        elif as_json:
            click.echo(json_line(batch, with_records=records))
        else:
            click.echo(batch_text(batch, with_records=records), nl=False)
    if damage is not None:
        raise KafkaError(
            E.CORRUPT_MESSAGE, f"{file}: at position {damage.position}: {damage.reason}"
        )
