"""How the clients of a run reach the cluster: in plain text, or as `headwater security init` has it.

A secured cluster runs with the files of that command and no other settings of security: each broker
with `broker.properties`, each client with the properties of its user. Users also need ACLs.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import headwater
from headwater.client.admin.acls import AclBinding
from headwater.config.client_file import read_client_file
from headwater.config.jaas import parse_jaas
from headwater.config.properties import read_properties
from headwater.pki.secure_folder import SecureFolder
from headwater.security.acls import CLUSTER_NAME, AclOperation, AclPatternType, AclResourceType
from headwater.testing import Cluster
from tools.client_chaos import QUICK

OPERATOR, WRITER, READER, GUEST = "admin", "writer", "reader", "guest"
"""The operator is the user whom the command makes in any case; guests get rights and lose them."""
_ANY = "*"


class Access(NamedTuple):
    """Where the brokers are, and the settings of one user."""

    bootstrap: str
    file: Mapping[str, str] = MappingProxyType({})
    """What the user's file has."""

    @property
    def own(self) -> dict[str, Any]:
        """Settings of our clients."""
        values = {name.replace(".", "_"): value for name, value in self.file.items()}
        return {**values, "bootstrap_servers": self.bootstrap}

    @property
    def security(self) -> dict[str, str]:
        """The file in keys that librdkafka knows, and our clients, too."""
        if not self.file:
            return {}
        (login,) = parse_jaas(self.file["sasl.jaas.config"])
        return {
            "security.protocol": self.file["security.protocol"],
            "sasl.mechanism": self.file["sasl.mechanism"],
            "sasl.username": login.options["username"],
            "sasl.password": login.options["password"],
            "ssl.ca.location": self.file["ssl.truststore.location"],
        }

    @property
    def confluent(self) -> dict[str, Any]:
        """Settings of confluent-kafka."""
        return {"bootstrap.servers": self.bootstrap, **self.security}


class Secured:
    """A folder of `headwater security init`, and what runs with it."""

    protocol = "SASL_SSL"

    def __init__(self, folder: Path) -> None:
        """Run the command."""
        users = [word for user in (WRITER, READER, GUEST) for word in ("--user", user)]
        subprocess.run(
            [sys.executable, "-m", "headwater", "security", "init", "--dir", str(folder), *users],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self._made = SecureFolder(folder)

    def broker_options(self) -> Sequence[str]:
        """Options of `headwater up`."""
        return ["--config", str(self._made.broker_file)]

    def broker_settings(self) -> dict[str, str]:
        """Return nothing: a broker reads the file."""
        return {}

    def client_settings(self, user: str = OPERATOR) -> dict[str, str]:
        """Settings of our clients, without the addresses."""
        own = Access("", self.of(user)).own
        del own["bootstrap_servers"]
        return own

    def of(self, user: str) -> dict[str, str]:
        """Return the file of a user."""
        return read_client_file(str(self._made.settings_of(user)))

    @property
    def store_login(self) -> str:
        """The login to the metadata store, whose nodes belong to the brokers."""
        rows = read_properties(str(self._made.broker_file))
        return ":".join(rows[f"zookeeper.digest.{part}"].value for part in ("username", "password"))


class SecuredCluster(Cluster):
    """Three brokers with the files of a folder."""

    def __init__(self, secured: Secured, settings: Mapping[str, str], **more: Any) -> None:
        super().__init__(3, settings, **more)
        self._stores = secured

    def client_settings(self, user: str = OPERATOR) -> dict[str, Any]:
        """Return the settings of a client that is this user."""
        return super().client_settings(user)


class Users:
    """The users of a run; without a secured cluster all of them are anonymous."""

    def __init__(self, bootstrap: str, secured: Secured | None) -> None:
        self._bootstrap = bootstrap
        self._secured = secured

    @property
    def secured(self) -> bool:
        """Whether users prove who they are."""
        return self._secured is not None

    def access(self, user: str, bootstrap: str | None = None) -> Access:
        """Return how this user connects."""
        reached = bootstrap or self._bootstrap
        return Access(reached) if self._secured is None else Access(reached, self._secured.of(user))


def grant_rights(access: Access) -> None:
    """Give writers and readers the rights that they need, and no others."""
    topic, group, cluster = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
    rights = [
        (WRITER, AclOperation.WRITE, topic, _ANY),
        (WRITER, AclOperation.IDEMPOTENT_WRITE, cluster, CLUSTER_NAME),
        (READER, AclOperation.READ, topic, _ANY),
        (READER, AclOperation.READ, group, _ANY),
    ]
    with headwater.Admin(**access.own, **QUICK) as admin:
        admin.create_acls(
            AclBinding(f"User:{user}", operation, kind, name, AclPatternType.LITERAL)
            for user, operation, kind, name in rights
        )
