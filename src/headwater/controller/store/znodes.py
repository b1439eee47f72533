"""The nodes of the metadata store: their paths, and their content as Kafka 3.9 writes it.

One class per kind of node. Readers ignore unknown keys, for compatibility with newer writers; a
missing key raises a ValueError that names the path.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from headwater.controller.store.metadata_store import ADMIN, CREATE, DELETE, READ, WRITE, Acl
from headwater.model import NO_LEADER, ZERO_UUID, Uuid, uuid_parse, uuid_text

CLUSTER_ID = "/cluster/id"
CLUSTER_SECRET = "/headwater_cluster_secret"
FIRST_USERS = "/headwater_first_users"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
DELETED_TOPICS = "/admin/delete_topics"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
LOG_DIRS = "/headwater_log_dirs"
BROKER_EPOCHS = "/headwater_broker_epochs"
STORE_MARKS = "/headwater_store_marks"
TIME_PREFIX = "/headwater_store_marks/time_"
"""Where a broker that starts creates a node for a moment: its ctime is the time of the store."""
TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
DEFAULT_ENTITY = "<default>"

MAX_CONFIG_BYTES = 512 * 1024
MAX_ASSIGNMENT_BYTES = 256 * 1024
"""The largest nodes that clients may cause. ZooKeeper ends the connection of a client that sends 1 MiB
(jute.maxbuffer). A move lists replicas up to four times."""

PERSISTENT_PATHS = (
    "/cluster", "/brokers", BROKER_IDS, TOPICS, "/brokers/seqid", "/admin", DELETED_TOPICS,
    "/isr_change_notification", "/log_dir_event_notification", "/config", "/config/topics",
    "/config/clients", "/config/users", "/config/brokers", "/config/ips", CONFIG_CHANGES,
    PRODUCER_ID_BLOCK, LOG_DIRS, BROKER_EPOCHS, STORE_MARKS,
)  # fmt: skip
"""The paths to create first; parents come before their children."""

SENSITIVE_PATHS = (
    CLUSTER_SECRET, FIRST_USERS, "/config/users", "/config/brokers", CONFIG_CHANGES, TOKENS,
)  # fmt: skip
"""What is here and below may hold secrets, or say whose secrets changed."""

_CREATOR_ONLY = (Acl(READ | WRITE | CREATE | DELETE | ADMIN, "auth", ""),)
_WORLD_READABLE = (*_CREATOR_ONLY, Acl(READ, "world", "anyone"))


def secure_acl(path: str) -> tuple[Acl, ...]:
    """The ACL of a node with `zookeeper.set.acl`: its creator's, and readable unless sensitive."""
    return _CREATOR_ONLY if is_sensitive(path) else _WORLD_READABLE


def is_sensitive(path: str) -> bool:
    """Whether the node may hold secrets or names the users whose secrets changed."""
    return any(path == one or path.startswith(f"{one}/") for one in SENSITIVE_PATHS)


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _decode(path: str, data: bytes, *needed: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as broken:
        raise ValueError(f"{path} is not JSON") from broken
    if not isinstance(value, dict) or any(name not in value for name in needed):
        raise ValueError(f"{path} lacks one of {', '.join(needed)}")
    return value


class BrokerEndpoint(NamedTuple):
    """The address of a broker for clients of one listener."""

    listener: str
    host: str
    port: int
    security_protocol: str


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """/brokers/ids/N: a live broker and how to reach it.

    Two fields are not in Kafka. `kept_since` is the first of the epochs since which the broker has
    lost nothing, -1 if it may have lost records before this one. `lost_log_dirs` is set if it gave up
    log dirs.
    """

    broker_id: int
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    timestamp_ms: int = 0
    kept_since: int = -1
    lost_log_dirs: bool = False

    @staticmethod
    def path(broker_id: int) -> str:
        return f"{BROKER_IDS}/{broker_id}"

    def encode(self) -> bytes:
        """Version 5; host and port repeat the first plain endpoint for old readers."""
        plain = [end for end in self.endpoints if end.security_protocol == "PLAINTEXT"]
        host, port = (plain[0].host, plain[0].port) if plain else (None, -1)
        value: dict[str, Any] = {
            "version": 5,
            "host": host,
            "port": port,
            "jmx_port": -1,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [
                f"{end.listener}://{_bracketed(end.host)}:{end.port}" for end in self.endpoints
            ],
            "listener_security_protocol_map": {
                end.listener: end.security_protocol for end in self.endpoints
            },
            "features": {},
        }
        if self.rack is not None:
            value["rack"] = self.rack
        if self.kept_since >= 0:
            value["kept_since"] = self.kept_since
        if self.lost_log_dirs:
            value["lost_log_dirs"] = True
        return _encode(value)

    @classmethod
    def decode(cls, broker_id: int, data: bytes) -> "BrokerNode":
        value = _decode(cls.path(broker_id), data, "endpoints")
        protocols = value.get("listener_security_protocol_map", {})
        return cls(
            broker_id,
            tuple(_endpoint(text, protocols) for text in value["endpoints"]),
            value.get("rack"),
            int(value.get("timestamp", 0)),
            int(value.get("kept_since", -1)),
            bool(value.get("lost_log_dirs", False)),
        )


@dataclass(frozen=True, slots=True)
class LogDirsNode:
    """/headwater_log_dirs/N: the directory ids of a broker's log dirs, with their paths. Not Kafka's."""

    directories: dict[str, str]

    @staticmethod
    def path(broker_id: int) -> str:
        """The path of the node, which outlives the session."""
        return f"{LOG_DIRS}/{broker_id}"

    def encode(self) -> bytes:
        """Version 1."""
        return _encode({"version": 1, "directories": self.directories})

    @classmethod
    def decode(cls, broker_id: int, data: bytes) -> "LogDirsNode":
        value = _decode(cls.path(broker_id), data, "directories")
        return cls({str(at): str(path) for at, path in value["directories"].items()})


def store_mark_path(broker_id: int) -> str:
    """The node that a broker writes after control requests; its mzxid counts, it has no content."""
    return f"{STORE_MARKS}/{broker_id}"


def encode_broker_epochs(epochs: Mapping[int, int]) -> bytes:
    """The content of /headwater_broker_epochs: the epochs that leaders and in-sync sets refer to."""
    return _encode({"version": 1, "epochs": {str(one): epoch for one, epoch in epochs.items()}})


def decode_broker_epochs(data: bytes) -> dict[int, int]:
    """The epochs; an empty node has none."""
    if not data:
        return {}
    stored = _decode(BROKER_EPOCHS, data, "epochs")["epochs"]
    return {int(broker): int(epoch) for broker, epoch in stored.items()}


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _endpoint(text: str, protocols: Mapping[str, str]) -> BrokerEndpoint:
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return BrokerEndpoint(listener, host.strip("[]"), int(port), protocols.get(listener, listener))


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    """The content of /controller."""
    return _encode(
        {"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1}
    )


def decode_controller(data: bytes) -> int:
    return int(_decode(CONTROLLER, data, "brokerid")["brokerid"])


def encode_first_users(added: Iterable[str]) -> bytes:
    """The credentials of sasl.scram.users.file that were added to the cluster, by MECHANISM.USER."""
    return _encode({"version": 1, "added": sorted(added)})


def decode_first_users(data: bytes) -> set[str]:
    return set(_decode(FIRST_USERS, data, "added")["added"])


def encode_cluster_id(cluster_id: str) -> bytes:
    """The content of /cluster/id."""
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(_decode(CLUSTER_ID, data, "id")["id"])


@dataclass(frozen=True, slots=True)
class TopicNode:
    """/brokers/topics/T: the topic's id and which brokers hold which partition."""

    topic_id: Uuid
    replicas: Mapping[int, Sequence[int]]
    adding: Mapping[int, Sequence[int]] = field(default_factory=dict)
    removing: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @staticmethod
    def path(topic: str) -> str:
        return f"{TOPICS}/{topic}"

    def encode(self) -> bytes:
        """Version 3; formatted by hand, because topics may have thousands of partitions."""
        return (
            f'{{"partitions":{_brokers_json(self.replicas)},"topic_id":"{uuid_text(self.topic_id)}",'
            f'"adding_replicas":{_brokers_json(self.adding)},'
            f'"removing_replicas":{_brokers_json(self.removing)},"version":3}}'
        ).encode()

    @classmethod
    def decode(cls, topic: str, data: bytes) -> "TopicNode":
        """Read an assignment; topics from before Kafka 2.8 have no id and get the zero one."""
        value = _decode(cls.path(topic), data, "partitions")
        text = value.get("topic_id")
        return cls(
            uuid_parse(text) if text else ZERO_UUID,
            _by_number(value["partitions"]),
            _by_number(value.get("adding_replicas", {})),
            _by_number(value.get("removing_replicas", {})),
        )


def _brokers_json(of_partition: Mapping[int, Sequence[int]]) -> str:
    rows = (
        f'"{partition}":[{",".join(map(str, brokers))}]'
        for partition, brokers in of_partition.items()
    )
    return f"{{{','.join(rows)}}}"


def _by_number(of_partition: Mapping[str, Sequence[int]]) -> dict[int, tuple[int, ...]]:
    return {int(partition): tuple(brokers) for partition, brokers in of_partition.items()}


@dataclass(frozen=True, slots=True)
class StateNode:
    """/brokers/topics/T/partitions/P/state: who leads; the node's version is the partition epoch.

    Two fields are not in Kafka's node, whose readers ignore them. `elr` are the eligible leader replicas
    (KIP-966). `last_known_leader` is the last leader of a partition that has none.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovering: bool = False
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER

    @staticmethod
    def path(topic: str, partition: int) -> str:
        return f"{TOPICS}/{topic}/partitions/{partition}/state"

    def encode(self) -> bytes:
        """Version 1; formatted by hand, because topics may have thousands of partitions."""
        more = ',"leader_recovery_state":1' if self.recovering else ""
        if self.elr:
            more += f',"elr":[{",".join(map(str, self.elr))}]'
        if self.last_known_leader != NO_LEADER:
            more += f',"last_known_leader":{self.last_known_leader}'
        return (
            f'{{"controller_epoch":{self.controller_epoch},"leader":{self.leader},"version":1,'
            f'"leader_epoch":{self.leader_epoch},'
            f'"isr":[{",".join(map(str, self.isr))}]{more}}}'
        ).encode()

    @classmethod
    def decode(cls, topic: str, partition: int, data: bytes) -> "StateNode":
        path = cls.path(topic, partition)
        value = _decode(path, data, "leader", "leader_epoch", "isr", "controller_epoch")
        return cls(
            value["leader"],
            value["leader_epoch"],
            tuple(value["isr"]),
            value["controller_epoch"],
            bool(value.get("leader_recovery_state", 0)),
            tuple(value.get("elr", ())),
            int(value.get("last_known_leader", NO_LEADER)),
        )


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def deletion_path(topic: str) -> str:
    """The mark that a topic is being deleted."""
    return f"{DELETED_TOPICS}/{topic}"


def config_path(entity_type: str, name: str) -> str:
    """The overrides of one entity, such as ("topics", "orders") or ("brokers", "<default>").

    The clients of a user are entities of the type `users/NAME/clients`, with the name quoted.
    """
    return f"/config/{entity_type}/{quote_entity(name)}"


def quote_entity(name: str) -> str:
    """A name as one path segment; the default entity keeps its brackets."""
    return name if name == DEFAULT_ENTITY else quote(name, safe="").replace("~", "%7E")


def unquote_entity(segment: str) -> str:
    return unquote(segment)


def encode_config(overrides: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(overrides)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """The overrides; an empty node has none."""
    if not data:
        return {}
    return {str(name): str(text) for name, text in _decode(path, data, "config")["config"].items()}


def encode_config_change(entity_type: str, name: str) -> bytes:
    return _encode({"version": 2, "entity_path": f"{entity_type}/{quote_entity(name)}"})


def decode_config_change(data: bytes) -> tuple[str, str]:
    """The entity that a notification names."""
    path = _decode(CONFIG_CHANGES, data, "entity_path")["entity_path"]
    entity_type, _, name = path.rpartition("/")
    return entity_type, unquote_entity(name)


def clients_of_user(user: str) -> str:
    """The type of the entities that are clients of one user."""
    return f"users/{quote_entity(user)}/clients"


def user_of_clients(entity_type: str) -> str | None:
    """The user, if the entities are clients of one user; None if they are not."""
    kind, _, rest = entity_type.partition("/")
    user, _, below = rest.rpartition("/")
    return unquote_entity(user) if (kind, below) == ("users", "clients") else None


class ProducerIdBlock(NamedTuple):
    """/latest_producer_id_block: the ids handed out last, both ends included."""

    broker_id: int
    first: int
    last: int

    def encode(self) -> bytes:
        """Version 1; the numbers are text, as in Kafka."""
        return _encode(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first),
                "block_end": str(self.last),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> "ProducerIdBlock | None":
        """The block, or None if none was ever claimed."""
        if not data:
            return None
        value = _decode(PRODUCER_ID_BLOCK, data, "broker", "block_start", "block_end")
        return cls(int(value["broker"]), int(value["block_start"]), int(value["block_end"]))
