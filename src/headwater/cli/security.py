"""`headwater security`: certificates and settings of secured brokers and clients."""

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from headwater.pki.authority import write_private
from headwater.pki.pkcs12 import pem_of_pkcs12
from headwater.pki.secure_folder import SecureFolder, ends_at
from headwater.pki.settings_files import ADMIN
from headwater.seams.clock import SystemClock
from headwater.seams.randomness import SystemRandomness

DEFAULT_PORT = 9093

dir_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default="secure",
    show_default=True,
    help="The folder of the certificates and settings.",
)


@click.group("security")
def command() -> None:
    """Create, check, renew and import certificates and secured settings."""


@command.command("init")
@dir_option
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="A name or address of the brokers; may be repeated, clients get the first. "
    "Default: 127.0.0.1 and localhost.",
)
@click.option("--user", "users", multiple=True, help="A user besides admin; may be repeated.")
@click.option("--port", type=click.IntRange(1, 65535), show_default="9093")
@click.option("--certificates", is_flag=True, help="Give users certificates instead of passwords.")
def init(
    folder: Path,
    hosts: tuple[str, ...],
    users: tuple[str, ...],
    port: int | None,
    certificates: bool,
) -> None:
    """Create an authority, a certificate for the brokers, users, and settings for all of them.

    Every connection is encrypted, users log in, and only admin may do anything until ACLs allow
    more. The settings of a user hold the password; Kafka's tools take the same file. Existing
    files stay unchanged: run the command again to add users.
    """
    secure = SecureFolder(folder)
    found = hosts or ("127.0.0.1", "localhost")
    is_new = not secure.broker_file.exists()
    made = secure.make(found, users, port or DEFAULT_PORT, _random_bytes, certificates=certificates)
    for path in made:
        click.echo(f"created {os.path.relpath(path)}")
    if not made:
        click.echo("everything already exists")
    for path in secure.closed:
        click.echo(f"{os.path.relpath(path)} was open to others: its mode is 700 now", err=True)
    for note in secure.kept(hosts, port):
        click.echo(note, err=True)
    click.echo(f"start a broker: headwater up --config {os.path.relpath(secure.broker_file)}")
    click.echo(f"use it:         headwater --config {_shown(secure, ADMIN)} topics list")
    if not is_new:
        for settings in made:
            if settings.parent == secure.users_folder and secure.users_file.exists():
                _say_how_to_add(secure, settings)


def _say_how_to_add(secure: SecureFolder, settings: Path) -> None:
    """Brokers read the users' file when they start, so running brokers do not know a new user."""
    click.echo(
        f"add {settings.stem} to a running cluster: headwater --config {_shown(secure, ADMIN)} "
        f"users add {settings.stem} --password-file {os.path.relpath(settings)}"
    )


@command.command("check")
@dir_option
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The settings of the broker to check. Default: broker.properties in the folder.",
)
@click.option(
    "--zookeeper",
    metavar="HOSTS",
    help="Check the nodes of this ZooKeeper (HOST:PORT,...[/CHROOT]). Default: zookeeper.connect of "
    "the settings.",
)
def check(folder: Path, file: Path | None, zookeeper: str | None) -> None:
    """Report readable secrets, expiring certificates, and weak or unusable settings.

    With a ZooKeeper, report nodes that others than the brokers may change, or read where they hold
    secrets; the login of the settings is used. The exit code is 1 if anything is found.
    """
    from headwater.cli.security_findings import of_broker

    secure = SecureFolder(folder)
    problems: list[str] = []
    if secure.authority.certificate.exists() or not (file or zookeeper):
        problems += secure.problems(_now())
        for store, found in secure.certificates():
            shown = os.path.relpath(store)
            click.echo(f"{shown}: {found.subject}, until {ends_at(found):%Y-%m-%d}")
        if file is None and secure.broker_file.exists():
            file = secure.broker_file
    problems += of_broker(file, zookeeper)
    problems = list(dict.fromkeys(problems))
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        where = ", ".join(map(str, filter(None, (file or folder, zookeeper))))
        raise click.ClickException(
            f"{len(problems)} problem{'' if len(problems) == 1 else 's'} in {where}"
        )
    click.echo("no problems")


def _shown(secure: SecureFolder, user: str) -> str:
    return os.path.relpath(secure.settings_of(user))


def _random_bytes(size: int) -> bytes:
    return SystemRandomness().below(1 << 8 * size).to_bytes(size)


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC)


@command.command("renew")
@dir_option
@click.option(
    "--all", "everything", is_flag=True, help="Renew all certificates, even those that last longer."
)
def renew(folder: Path, everything: bool) -> None:
    """Renew certificates that expire within 30 days.

    Running brokers use the new ones within seconds, clients when they connect again.
    """
    renewed = SecureFolder(folder).renew(_now(), everything=everything)
    for path in renewed:
        click.echo(f"renewed {os.path.relpath(path)}")
    if not renewed:
        click.echo("no certificate expires within 30 days")


@command.command("import")
@click.argument("store", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option(
    "--password",
    envvar="HEADWATER_STORE_PASSWORD",
    prompt=True,
    hide_input=True,
    show_envvar=True,
    help="The password of STORE; asked for if it is missing.",
)
def import_store(store: Path, out: Path, password: str) -> None:
    """Convert a PKCS12 key store or trust store to PEM."""
    write_private(out, pem_of_pkcs12(store, password))
    click.echo(f"created {out}")
