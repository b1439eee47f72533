"""A folder with everything that a secured broker and its clients need, created and kept up to date.

ca.pem ca.key            the authority; the key signs, so it belongs on no broker
broker.pem               the brokers' key and certificate
broker.properties        settings of a broker
scram-users.properties   the credentials with which brokers check the users' passwords
users/NAME.properties    settings of a client, as Kafka's tools and clients read them
users/NAME.pem           a user's key and certificate, where users have certificates, not passwords
"""

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from headwater.config.properties import read_properties
from headwater.pki.authority import STORE_DAYS, Authority, checked_name, write_private
from headwater.pki.settings_files import (
    ADMIN,
    bracketed,
    broker_text,
    certificate_client_text,
    password_client_text,
    properties,
)
from headwater.security.certificates import (
    Certificate,
    certificates_of,
    parse_certificate,
    shown_name,
)
from headwater.security.principals import ANONYMOUS
from headwater.security.scram_credentials import (
    DEFAULT_ITERATIONS,
    SALT_BYTES,
    SCRAM_SHA_512,
    ScramCredential,
)
from headwater.security.scram_file import FileCredential, lines_of

SOON_DAYS = 30
"""A certificate that ends within this time is reported, and renewed."""
PASSWORD_BYTES = 24

NewSecret = Callable[[int], bytes]
"""Returns that many random bytes."""


class SecureFolder:
    """The files of `headwater security init`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.authority = Authority(self.folder)
        self.broker_store = self.folder / "broker.pem"
        self.broker_file = self.folder / "broker.properties"
        self.users_file = self.folder / "scram-users.properties"
        self.users_folder = self.folder / "users"
        self.closed: list[Path] = []
        """Folders that others could enter until `make`."""

    def make(
        self,
        hosts: Sequence[str],
        users: Iterable[str],
        port: int,
        new_secret: NewSecret,
        *,
        certificates: bool = False,
    ) -> list[Path]:
        """Create what is missing, and return it; existing files stay unchanged."""
        wanted = [checked_name(user) for user in dict.fromkeys((ADMIN, *users))]
        if ANONYMOUS.name in wanted:
            raise ConfigError(
                f"no user may have the name {ANONYMOUS.name}: clients that do not log in have it"
            )
        with_passwords = self._with_passwords(certificates)
        addresses = _connectable(hosts) if not self.broker_file.exists() else []
        made: list[Path] = []
        self._close_folders()
        if not self.authority.exists:
            self.authority.create("headwater-ca")
            made.append(self.authority.certificate)
        if not self.broker_store.exists():
            self.authority.sign(self.broker_store, "broker", hosts)
            made.append(self.broker_store)
        if not self.broker_file.exists():
            users_file = self.users_file if with_passwords else None
            text = broker_text(
                self.broker_store, self.authority.certificate, addresses, port,
                new_secret(PASSWORD_BYTES).hex(), users_file,
            )  # fmt: skip
            write_private(self.broker_file, text)
            made.append(self.broker_file)
        for user in wanted:
            made += self._add_password(user, new_secret) if with_passwords else self._certify(user)
        return made

    def _close_folders(self) -> None:
        """Create the folders, which only their owner may enter; existing ones may have had a wider mode."""
        for path in (self.folder, self.users_folder):
            if path.exists() and _is_open(path):
                self.closed.append(path)
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)

    def kept(self, hosts: Sequence[str], port: int | None) -> Iterator[str]:
        """Yield the hosts and the port of the folder that differ from the requested ones."""
        found = certificate_in(self.broker_store)
        names = sorted(map(shown_name, found.names))
        missing = [host for host in hosts if _host_in_certificate(host) not in names]
        if missing:
            yield (
                f"{', '.join(missing)} not added: {self.broker_store} is for {', '.join(names)}; to "
                f"change that, remove it and run this again with --host for each name"
            )
        host, _, present = self._bootstrap.rpartition(":")
        wanted = bracketed(_connectable(hosts)[0]) if hosts else host
        if (wanted, str(port or present)) != (host, present):
            yield (
                f"{host}:{present} stays the address of the broker: to change it to "
                f"{wanted}:{port or present}, edit listeners and advertised.listeners in "
                f"{self.broker_file}, and bootstrap.servers in {self.folder}/users/*.properties"
            )

    def settings_of(self, user: str) -> Path:
        """Return the file with the settings of a user."""
        return self.users_folder / f"{user}.properties"

    def stores(self) -> list[Path]:
        """Return the stores that this folder's authority signed."""
        found = (self.broker_store, *sorted(self.users_folder.glob("*.pem")))
        return [store for store in found if store.exists()]

    def certificates(self) -> Iterator[tuple[Path, Certificate]]:
        """Yield each store with its certificate; `problems` names those that are damaged."""
        for store in self.stores():
            with suppress(ConfigError):
                yield store, certificate_in(store)

    def renew(self, now: datetime, *, everything: bool = False) -> list[Path]:
        """Renew the stores that expire soon, with the same names, and return them."""
        self._require_authority()
        limit = now + timedelta(days=SOON_DAYS)
        due = [
            (store, found)
            for store, found in [(store, certificate_in(store)) for store in self.stores()]
            if everything or ends_at(found) < limit
        ]
        for store, found in due:
            hosts = sorted(map(shown_name, found.names))
            self.authority.sign(store, found.subject.removeprefix("CN="), hosts)
        return [store for store, _ in due]

    def problems(self, now: datetime) -> Iterator[str]:
        """Yield what is wrong: open files, and certificates that are damaged or expire soon."""
        self._require_authority()
        for path in (self.folder, self.users_folder):
            if path.exists() and _is_open(path):
                yield f"others can enter {path}: run chmod 700 {path}"
        for path in (*self.folder.glob("*"), *self.users_folder.glob("*")):
            private = path.suffix in (".key", ".properties") or path.name != "ca.pem"
            if private and path.is_file() and _is_open(path):
                yield f"others can read {path}: run chmod 600 {path}"
        authority = self.authority.certificate
        for store in (authority, *self.stores()):
            try:
                left = (ends_at(certificate_in(store)) - now).days
            except ConfigError as damaged:
                yield damaged.message
                continue
            if store == authority and left < STORE_DAYS:
                yield (
                    f"the authority in {authority} ends in {left} days, and all certificates with "
                    "it: make another in a new folder, and let brokers and clients trust both "
                    "meanwhile"
                )
            elif left < SOON_DAYS:
                said = f"ends in {left} days" if left >= 0 else "has expired"
                yield f"the certificate in {store} {said}: run `headwater security renew`"

    def _require_authority(self) -> None:
        """Refuse another folder; the key of the authority may be kept elsewhere."""
        if not self.authority.certificate.exists():
            raise ConfigError(
                f"{self.folder} has no ca.pem: name the folder of `headwater security init` "
                "with --dir"
            )

    def _with_passwords(self, certificates: bool) -> bool:
        """Return whether users have passwords, as decided when the folder was made."""
        if not self.broker_file.exists():
            return not certificates
        if certificates and self.users_file.exists():
            raise ConfigError(
                f"the users in {self.folder} have passwords: leave --certificates out, or choose "
                "another folder with --dir"
            )
        return self.users_file.exists()

    @property
    def _bootstrap(self) -> str:
        """The address for clients: the first listener for them that the broker advertises."""
        settings = BrokerSettings.load(str(self.broker_file))
        protocol = "SASL_SSL" if settings.sasl_scram_users_file else "SSL"
        for listener in settings.advertised:
            if listener.protocol == protocol:
                return f"{bracketed(listener.host)}:{listener.port}"
        raise ConfigError(
            f"{self.broker_file} has no listener with {protocol}, to which users connect: add one to "
            f"listeners and advertised.listeners, as in {protocol}://HOST:9093"
        )

    def _certify(self, user: str) -> list[Path]:
        settings = self.settings_of(user)
        store = settings.with_suffix(".pem")
        if store.exists() and settings.exists():
            return []
        text = certificate_client_text(user, store, self.authority.certificate, self._bootstrap)
        self.authority.sign(store, user)
        write_private(settings, text)
        return [store, settings]

    def _add_password(self, user: str, new_secret: NewSecret) -> list[Path]:
        settings, name = self.settings_of(user), f"{SCRAM_SHA_512.name}.{user}"
        present = {}
        if self.users_file.exists():
            present = {key: row.value for key, row in read_properties(str(self.users_file)).items()}
        if name in present and settings.exists():
            return []
        if name in present or settings.exists():
            missing = settings if name in present else self.users_file
            raise ConfigError(
                f"user {user!r} exists, but {missing} does not have it: restore the file, or choose "
                "another name or another folder"
            )
        password, salt = new_secret(PASSWORD_BYTES).hex(), new_secret(SALT_BYTES)
        salted = SCRAM_SHA_512.salted_password(password, salt, DEFAULT_ITERATIONS)
        credential = ScramCredential.of_salted_password(
            SCRAM_SHA_512, salt, salted, DEFAULT_ITERATIONS
        )
        added = lines_of([FileCredential(user, SCRAM_SHA_512.name, credential)])
        # The password first: without it, nobody could use the credential.
        trust = self.authority.certificate
        write_private(settings, password_client_text(user, password, trust, self._bootstrap))
        head = "Users whom a cluster gets at its start. Their passwords cannot be read from this."
        write_private(self.users_file, properties(head, {**present, **added}))
        return [settings, self.users_file] if not present else [settings]


def _is_open(path: Path) -> bool:
    """Whether the mode lets others than the owner do anything."""
    return bool(path.stat().st_mode & 0o077)


def certificate_in(store: Path) -> Certificate:
    """Return the first certificate of a PEM file; ConfigError if it cannot be read."""
    try:
        return parse_certificate(certificates_of(store.read_text())[0])
    except (ValueError, IndexError):
        raise ConfigError(
            f"{store} has no certificate that can be read: restore it from a copy; a store that the "
            "authority signed can also be removed and made again with `headwater security init`"
        ) from None


def ends_at(certificate: Certificate) -> datetime:
    """Return when a certificate ends."""
    return datetime.strptime(certificate.not_after, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _connectable(hosts: Sequence[str]) -> list[str]:
    """Return the hosts that are no wildcards; ConfigError without any."""
    found = [host for host in hosts if "*" not in host]
    if not found:
        raise ConfigError(
            f"clients cannot connect to {hosts[0]}: name the broker's own host with --host too; the "
            "certificate is for both"
        )
    return found


def _host_in_certificate(host: str) -> str:
    """Return a host as `shown_name` has it."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host
