"""How the clients of a run reach the cluster: in plain text, or with certificates and ACLs."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import headwater
from headwater.client.admin.acls import AclBinding
from headwater.config.broker_keys.authorization import STANDARD_AUTHORIZER
from headwater.pki.secure_folder import SecureFolder
from headwater.security.acls import CLUSTER_NAME, AclOperation, AclPatternType, AclResourceType
from tools.client_chaos import QUICK

HOSTS = ("127.0.0.1", "localhost")
OPERATOR, WRITER, READER, GUEST = "client", "writer", "reader", "guest"
"""The operator is the user of the cluster's own admin; guests get rights and lose them."""
_ANY = "*"


class Access(NamedTuple):
    """Where the brokers are, and the settings of one user."""

    bootstrap: str
    security: Mapping[str, str] = MappingProxyType({})
    """Names of Kafka and librdkafka, which both libraries know."""

    @property
    def own(self) -> dict[str, Any]:
        """Settings of our clients."""
        values = {name.replace(".", "_"): value for name, value in self.security.items()}
        return {"bootstrap_servers": self.bootstrap, **values}

    @property
    def confluent(self) -> dict[str, Any]:
        """Settings of confluent-kafka."""
        return {"bootstrap.servers": self.bootstrap, **self.security}


class Users:
    """The users of a run; without certificates all of them are anonymous."""

    def __init__(self, bootstrap: str, folder: SecureFolder | None) -> None:
        self._bootstrap = bootstrap
        self._folder = folder

    @property
    def secured(self) -> bool:
        """Whether users prove who they are."""
        return self._folder is not None

    def access(self, user: str, bootstrap: str | None = None) -> Access:
        """Return how this user connects."""
        reached = bootstrap or self._bootstrap
        if self._folder is None:
            return Access(reached)
        store = str(self._folder.folder / "users" / f"{user}.pem")
        return Access(
            reached,
            {
                "security.protocol": "SSL",
                "ssl.ca.location": str(self._folder.authority.certificate),
                "ssl.certificate.location": store,
                "ssl.key.location": store,
            },
        )


def secure_folder(folder: Path) -> SecureFolder:
    """Make what `headwater security init` makes, where the cluster looks for its certificates."""
    secure = SecureFolder(folder)
    users = (OPERATOR, WRITER, READER, GUEST)
    secure.make(HOSTS, users, 9093, secrets.token_bytes, certificates=True)
    return secure


SECURED_SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": f"User:{OPERATOR}",
}


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
