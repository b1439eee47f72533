"""Adds the users of `sasl.scram.users.file` to the cluster, each of them once.

The controller adds them when it is elected, so that a new cluster has an administrator who can log
in. The store notes who was added: a user that is removed later does not come back with the next
start, and a password that was changed stays.
"""

import logging
from collections.abc import Callable
from functools import partial

from headwater.broker.callbacks import Latch
from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from headwater.config.properties import read_properties
from headwater.controller.commands import AlterUsers, CredentialChange, UserOutcome
from headwater.controller.store.metadata_store import MetadataStore, StoreError, StoreFailure, Znode
from headwater.controller.store.znodes import (
    FIRST_USERS,
    decode_first_users,
    encode_first_users,
)
from headwater.errors import E
from headwater.security.scram_file import FileCredential, credentials_of
from headwater.security.scram_users import ScramUsers

log = logging.getLogger("headwater.server")

Submit = Callable[[AlterUsers, Callable[[list[UserOutcome]], None]], None]


def read_first_users(settings: BrokerSettings) -> list[FileCredential]:
    """Return the credentials of the file; ConfigError for one that cannot be read."""
    path = settings.sasl_scram_users_file
    if path is None:
        return []
    lines = {name: row.value for name, row in read_properties(path).items()}
    try:
        return credentials_of(lines)
    except ValueError as problem:
        raise ConfigError(
            f"sasl.scram.users.file={path} cannot be used: {problem}; `headwater security init` "
            "makes such a file"
        ) from None


class FirstUsers:
    """The users of the file, and whether they are being added."""

    def __init__(
        self, store: MetadataStore, credentials: list[FileCredential], users: ScramUsers
    ) -> None:
        self._store = store
        self._credentials = credentials
        self._users = users
        self._idle = Latch()
        self._idle.set()
        self._noted: set[str] = set()
        self._node: Znode | None = None

    def when_idle(self, call: Callable[[], None]) -> None:
        """Call `call` once no users are being added, at once if that is so now."""
        self._idle.when_set(call)

    def elected(self, submit: Submit) -> None:
        """Add the users that were never added: this broker is the controller now."""
        if self._credentials and self._idle.is_set:
            self._idle = Latch()
            self._store.get(FIRST_USERS, partial(self._read, submit))

    def _read(self, submit: Submit, node: Znode | StoreError) -> None:
        if isinstance(node, Znode):
            self._node, self._noted = node, decode_first_users(node.data)
        elif node.kind is StoreFailure.NO_NODE:
            self._node, self._noted = None, set()
        else:
            self._idle.set()  # the next controller tries again
            return
        due = [one for one in self._credentials if _named(one) not in self._noted]
        changes = [
            CredentialChange(one.user, one.mechanism, one.credential.encode())
            for one in due
            if one.mechanism not in self._users.of(one.user)
        ]
        if due:
            submit(AlterUsers(changes), partial(self._added, due))
        else:
            self._idle.set()

    def _added(self, due: list[FileCredential], outcomes: list[UserOutcome]) -> None:
        if any(one.error is not E.NONE for one in outcomes):
            self._idle.set()
            return
        log.info(
            "added the users of sasl.scram.users.file: %s",
            ", ".join(sorted({one.user for one in due})),
        )
        data = encode_first_users(self._noted.union(map(_named, due)))
        if self._node is None:
            self._store.create(FIRST_USERS, data, self._stored)
        else:
            self._store.set(FIRST_USERS, data, self._node.stat.version, self._stored)

    def _stored(self, result: object) -> None:
        """After a failure, the next controller adds the rest; existing users stay unchanged."""
        self._idle.set()


def _named(one: FileCredential) -> str:
    return f"{one.mechanism}.{one.user}"
