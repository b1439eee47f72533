"""The texts of the properties files that `headwater security init` writes."""

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.config.broker_keys.authorization import STANDARD_AUTHORIZER
from headwater.security.scram_credentials import SCRAM_SHA_512

ADMIN = "admin"
CERTIFICATE_RULES = "RULE:^CN=([^,]+)$/$1/"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_ESCAPED = str.maketrans({"\\": "\\\\", "=": "\\=", ":": "\\:", " ": "\\ "})


def broker_text(
    store: Path,
    trust: Path,
    hosts: Sequence[str],
    port: int,
    zookeeper_password: str,
    users_file: Path | None,
) -> str:
    """Return the settings of a broker; without a file of users, certificates say who is who."""
    protocol = "SSL" if users_file is None else "SASL_SSL"
    everywhere = any(not _is_loopback(host) for host in hosts)
    login = _users_by_certificate() if users_file is None else _users_by_password(users_file)
    return properties(
        "Made by `headwater security init`. security.profile=hardened sets stricter limits.",
        {
            "listeners": f"{protocol}://{'' if everywhere else bracketed(hosts[0])}:{port}",
            "advertised.listeners": f"{protocol}://{bracketed(hosts[0])}:{port}",
            "inter.broker.listener.name": protocol,
            **login,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{ADMIN}",
            **_pem("keystore", store),
            **_pem("truststore", trust),
            "zookeeper.set.acl": "true",
            "zookeeper.digest.username": "headwater",
            "zookeeper.digest.password": zookeeper_password,
        },
    )


def certificate_client_text(user: str, store: Path, trust: Path, bootstrap: str) -> str:
    """Return the settings of a client that shows a certificate."""
    return properties(
        f"The user {user}.",
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SSL",
            **_pem("keystore", store),
            **_pem("truststore", trust),
        },
    )


def password_client_text(user: str, password: str, trust: Path, bootstrap: str) -> str:
    """Return the settings of a client that logs in with a password."""
    return properties(
        f"The user {user}, with the password.",
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": SCRAM_SHA_512.name,
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="{user}" password="{password}";',
            **_pem("truststore", trust),
        },
    )


def properties(head: str, values: Mapping[str, str]) -> str:
    """Return a file of Java's properties with a comment above."""
    lines = (f"{name.translate(_ESCAPED)}={value}" for name, value in values.items())
    return "\n".join([f"# {head}", *lines]) + "\n"


def _users_by_certificate() -> dict[str, str]:
    return {"ssl.client.auth": "required", "ssl.principal.mapping.rules": CERTIFICATE_RULES}


def _users_by_password(users_file: Path) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": SCRAM_SHA_512.name,
        "sasl.scram.users.file": str(users_file),
    }


def _pem(store: str, place: Path) -> dict[str, str]:
    return {f"ssl.{store}.type": "PEM", f"ssl.{store}.location": str(place)}


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
