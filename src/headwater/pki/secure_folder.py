"""A folder with all that a secured broker and its clients need, made at once and kept up to date.

ca.pem ca.key          the authority; the key signs, so it belongs on no broker
broker.pem             the brokers' key and certificate
broker.properties      settings of a broker
users/NAME.pem         a user's key and certificate
users/NAME.properties  settings of a client, as Kafka's tools and clients read them
"""

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headwater.config.keys import ConfigError
from headwater.pki.authority import STORE_DAYS, Authority, write_private
from headwater.pki.openssl import openssl
from headwater.security.certificates import Certificate, certificates_of, parse_certificate

ADMIN = "admin"
SOON_DAYS = 30
"""A certificate that ends within this time is reported, and renewed."""
BROKER_RULES = "RULE:^CN=([^,]+)$/$1/"


class SecureFolder:
    """The files of `headwater security init`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.authority = Authority(self.folder)
        self.broker_store = self.folder / "broker.pem"
        self.broker_file = self.folder / "broker.properties"

    def make(self, hosts: Sequence[str], users: Iterable[str], port: int) -> list[Path]:
        """Make what is missing, and return it; files that are there stay as they are."""
        made: list[Path] = []
        (self.folder / "users").mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        if not self.authority.exists:
            self.authority.create("headwater-ca")
            made.append(self.authority.certificate)
        if not self.broker_store.exists():
            self.authority.sign(self.broker_store, "broker", hosts)
            made.append(self.broker_store)
        if not self.broker_file.exists():
            write_private(self.broker_file, self._broker_text(hosts, port))
            made.append(self.broker_file)
        for user in dict.fromkeys((ADMIN, *users)):
            made += self._make_user(user, hosts, port)
        return made

    def certificates(self) -> Iterator[tuple[Path, Certificate]]:
        """Yield each store that this folder's authority signed, with its certificate."""
        for store in (self.broker_store, *sorted((self.folder / "users").glob("*.pem"))):
            if store.exists():
                yield store, parse_certificate(certificates_of(store.read_text())[0])

    def renew(self, now: datetime, *, everything: bool = False) -> list[Path]:
        """Sign stores again that end soon, with the same names, and return them."""
        self._require_authority()
        limit = now + timedelta(days=SOON_DAYS)
        due = [
            (store, found)
            for store, found in self.certificates()
            if everything or ends_at(found) < limit
        ]
        for store, found in due:
            hosts = sorted(map(_host_of, found.names))
            self.authority.sign(store, found.subject.removeprefix("CN="), hosts)
        return [store for store, _ in due]

    def problems(self, now: datetime) -> Iterator[str]:
        """Yield what is wrong: files that others can read, certificates that end soon."""
        self._require_authority()
        for path in (*self.folder.glob("*"), *(self.folder / "users").glob("*")):
            private = path.suffix in (".key", ".properties") or path.name != "ca.pem"
            if private and path.is_file() and path.stat().st_mode & 0o077:
                yield f"others can read {path}: run chmod 600 {path}"
        authority = self.authority.certificate
        own = parse_certificate(certificates_of(authority.read_text())[0])
        if (left := (ends_at(own) - now).days) < STORE_DAYS:
            yield (
                f"the authority in {authority} ends in {left} days, and all certificates with it: "
                "make another in a new folder, and let brokers and clients trust both meanwhile"
            )
        for store, found in self.certificates():
            left = (ends_at(found) - now).days
            if left < SOON_DAYS:
                said = f"ends in {left} days" if left >= 0 else "has expired"
                yield f"the certificate in {store} {said}: run `headwater security renew`"

    def _require_authority(self) -> None:
        """Refuse another folder; the key of the authority may be kept elsewhere."""
        if not self.authority.certificate.exists():
            raise ConfigError(
                f"{self.folder} has no ca.pem: name the folder of `headwater security init` "
                "with --dir"
            )

    def _make_user(self, user: str, hosts: Sequence[str], port: int) -> list[Path]:
        store = self.folder / "users" / f"{user}.pem"
        settings = store.with_suffix(".properties")
        if store.exists() and settings.exists():
            return []
        self.authority.sign(store, user)
        write_private(settings, self._client_text(store, hosts, port))
        return [store, settings]

    def _broker_text(self, hosts: Sequence[str], port: int) -> str:
        everywhere = any(not _is_loopback(host) for host in hosts)
        listen = f"SSL://:{port}" if everywhere else f"SSL://{hosts[0]}:{port}"
        return _properties(
            f"# Made by `headwater security init`; certificates are valid for {STORE_DAYS} days.",
            {
                "listeners": listen,
                "advertised.listeners": f"SSL://{hosts[0]}:{port}",
                "inter.broker.listener.name": "SSL",
                "ssl.client.auth": "required",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.broker_store),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.certificate),
                "ssl.principal.mapping.rules": BROKER_RULES,
            },
        )

    def _client_text(self, store: Path, hosts: Sequence[str], port: int) -> str:
        return _properties(
            f"# The user {store.stem}.",
            {
                "bootstrap.servers": f"{hosts[0]}:{port}",
                "security.protocol": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(store),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.certificate),
            },
        )


def ends_at(certificate: Certificate) -> datetime:
    """Return when a certificate ends."""
    return datetime.strptime(certificate.not_after, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _properties(head: str, values: dict[str, str]) -> str:
    return "\n".join([head, *(f"{name}={value}" for name, value in values.items())]) + "\n"


def _host_of(name: str) -> str:
    kind, _, value = name.partition(":")
    return value if kind == "DNS" else str(ipaddress.ip_address(bytes.fromhex(value)))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def pem_of_pkcs12(store: Path, password: str) -> str:
    """Return the key, its certificate and the authorities of a PKCS12 store as PEM."""
    parts = [
        openssl("pkcs12", "-in", str(store), "-nodes", *which, "-passin", "stdin", secret=password)
        for which in (("-nocerts",), ("-nokeys", "-clcerts"), ("-nokeys", "-cacerts"))
    ]
    text = "".join(map(_pem_blocks, parts))
    if not text:
        raise ConfigError(f"{store} has neither a key nor a certificate")
    return text


def _pem_blocks(text: str) -> str:
    """Drop what openssl writes between the PEM blocks."""
    lines, inside = [], False
    for line in text.splitlines():
        inside |= line.startswith("-----BEGIN ")
        if inside:
            lines.append(line + "\n")
        inside &= not line.startswith("-----END ")
    return "".join(lines)
