"""The interface of the metadata store: ZooKeeper's tree, with callbacks.

Every reply and every watch arrives as a later event, in the order of the calls, and never inside
the call itself. A write is answered only once it is durable. Only a write can end in
CONNECTION_LOSS: the store itself retries reads while the session lives, and after that everything
ends in SESSION_EXPIRED until `on_session` reports a new session, which starts without watches.
Code above this file must not know whether the store is ZooKeeper or embedded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

ANY_VERSION = -1
"""Matches any version of a node."""

DELIVERIES_PER_TICK = 200
"""How many callbacks a store runs before the loop does anything else."""


class StoreFailure(Enum):
    """Why the store refused."""

    NO_NODE = "no such node"
    NODE_EXISTS = "the node exists"
    BAD_VERSION = "the node has another version"
    NOT_EMPTY = "the node has children"
    EPHEMERAL_PARENT = "an ephemeral node cannot have children"
    BAD_PATH = "the path is not valid"
    NOT_AUTHORIZED = "the node's ACL does not allow it"
    INVALID_ACL = "the ACL is not valid"
    AUTH_FAILED = "the store does not accept these credentials"
    SESSION_EXPIRED = "the session has expired"
    CONNECTION_LOSS = "the store cannot be reached, the outcome is unknown"


OVERTAKEN = (StoreFailure.BAD_VERSION, StoreFailure.NODE_EXISTS, StoreFailure.NO_NODE)
"""How a conditional write fails if another write came first, or if it was already applied."""


class StoreError(Exception):
    """A refusal; `path` is the node that caused it, `index` its operation in a multi."""

    def __init__(self, kind: StoreFailure, path: str, index: int = 0) -> None:
        super().__init__(f"{path}: {kind.value}")
        self.kind = kind
        self.path = path
        self.index = index


class Stat(NamedTuple):
    """The metadata of a node.

    `czxid` and `mzxid` are the transactions that created and last changed it, `pzxid` the last
    change of its list of children; `version` counts changes of the data, `cversion` those of the
    list of children, `aversion` those of the ACL.
    """

    czxid: int
    mzxid: int
    version: int
    cversion: int
    ephemeral_owner: int
    num_children: int
    data_length: int = 0
    pzxid: int = 0
    aversion: int = 0
    ctime_ms: int = 0
    mtime_ms: int = 0


class Znode(NamedTuple):
    """The answer to `get`."""

    data: bytes
    stat: Stat


class Acl(NamedTuple):
    """Who may do what to a node: ZooKeeper's permission bits for one identity of a scheme."""

    permissions: int
    scheme: str
    identity: str


class AclAndStat(NamedTuple):
    """The answer to `acl`."""

    acl: tuple[Acl, ...]
    stat: Stat


READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
OPEN_ACL = (Acl(READ | WRITE | CREATE | DELETE | ADMIN, "world", "anyone"),)
"""Everyone may do everything."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node; the name of a sequential one ends with ten digits of its parent's counter."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False
    acl: tuple[Acl, ...] = OPEN_ACL


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a node's data if it still has `version`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a childless node if it still has `version`."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Fail the whole multi unless the node has `version`."""

    path: str
    version: int


Op: TypeAlias = Create | Set | Delete | Check
OpResult: TypeAlias = str | Stat | None
"""The path of a created node, the stat of a changed one, None for delete and check."""

Reply: TypeAlias = Callable[[T | StoreError], None]


class WatchEvent(Enum):
    """What a watch saw."""

    CREATED = "created"
    DELETED = "deleted"
    DATA = "data"
    CHILDREN = "children"


Watch: TypeAlias = Callable[[WatchEvent, str], None]
"""Called once; to follow later changes, read again with a new watch."""


class SessionState(Enum):
    """The state of the session; ephemeral nodes live exactly as long as it does."""

    OPEN = "open"
    EXPIRED = "expired"


class MetadataStore(Protocol):
    """A tree of small versioned nodes, like ZooKeeper's."""

    @property
    def session_id(self) -> int:
        """The owner of the ephemeral nodes created here."""

    def create(
        self,
        path: str,
        data: bytes,
        reply: Reply[str],
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> None:
        """Create a node and answer with its path."""

    def get(self, path: str, reply: Reply[Znode], watch: Watch | None = None) -> None:
        """Data and stat. The watch is left only if the node exists."""

    def exists(self, path: str, reply: Reply[Stat | None], watch: Watch | None = None) -> None:
        """The stat, or None for an absent node. The watch is left either way."""

    def children(self, path: str, reply: Reply[list[str]], watch: Watch | None = None) -> None:
        """The names of the children, sorted. The watch is left only if the node exists."""

    def set(self, path: str, data: bytes, version: int, reply: Reply[Stat]) -> None:
        """Replace the data if the node still has `version`."""

    def delete(self, path: str, version: int, reply: Reply[None]) -> None:
        """Remove a childless node if it still has `version`."""

    def multi(self, ops: Sequence[Op], reply: Reply[list[OpResult]]) -> None:
        """All of it or nothing, in order."""

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` whenever the session expires or a new one begins."""

    def close(self) -> None:
        """End the session: its ephemeral nodes vanish, later calls are refused."""


class AclReader(MetadataStore, Protocol):
    """A store that shows the ACLs of its nodes: one whose brokers have a login."""

    def acl(self, path: str, reply: Reply[AclAndStat]) -> None:
        """The ACL of a node, for clients that may read or administer the node."""
