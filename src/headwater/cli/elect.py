"""`headwater elect`: return leadership to preferred replicas, or accept losses for a leader."""

import click

from headwater.cli.options import with_admin
from headwater.cli.output import show
from headwater.cli.partition_names import partitions_of
from headwater.client.admin import Admin
from headwater.errors import E, KafkaError


@click.command("elect")
@click.argument("names", nargs=-1, metavar="[TOPIC[:PARTITION]]...")
@click.option("--all", "everything", is_flag=True, help="Elect the leaders of all partitions.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Where no in-sync replica is live, let any live replica lead. Records are lost.",
)
@with_admin
async def command(
    admin: Admin, names: tuple[str, ...], everything: bool, unclean: bool, as_json: bool
) -> None:
    """Elect the preferred leader, the first replica, of partitions."""
    if bool(names) == everything:
        raise click.UsageError("name topics or partitions (TOPIC:PARTITION), or give --all")
    wanted = (
        None if everything else [at for name in names for at in await partitions_of(admin, name)]
    )
    results = await admin.elect_leaders(wanted, unclean=unclean)
    rows = [
        {"topic": at.topic, "partition": at.partition, "result": _result(error)}
        for at, error in sorted(results.items())
    ]
    has = "a leader" if unclean else "its preferred leader"
    show(rows, as_json=as_json, nothing=f"every partition has {has}")
    refused = {
        at: error for at, error in results.items() if error not in (E.NONE, E.ELECTION_NOT_NEEDED)
    }
    if refused:
        first = next(iter(refused.values()))
        said = "; ".join(f"{at}: {error.text}" for at, error in sorted(refused.items()))
        raise KafkaError(first, said)


def _result(error: E) -> str:
    if error is E.NONE:
        return "elected"
    return "nothing to do" if error is E.ELECTION_NOT_NEEDED else error.name
