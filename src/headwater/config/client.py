"""The settings of producers, consumers and admins, given as keywords in Kafka's words.

`ProducerSettings.of({"bootstrap_servers": "localhost:9092", "linger_ms": 20})`: a keyword is the key
with underscores, or with its dots, as `Producer(**{"linger.ms": 20})` passes it. A `profile` changes
the defaults under the caller's settings; `explain` says where each value came from and why.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from headwater.config.client_oauth import PROVIDERS, TokenProvider, take_provider
from headwater.config.client_sasl import ClientSaslKeys, Credentials, sasl_credentials
from headwater.config.client_tls import ALIASES, ClientTlsKeys, refuse_unused_tls
from headwater.config.connecting_keys import ConnectingKeys
from headwater.config.keys import (
    BOOLEAN,
    INT,
    INT32_MAX,
    LIST,
    LONG,
    STRING,
    ConfigError,
    Key,
    Value,
    key,
    nearest,
)
from headwater.config.other_clients import OTHER_CLIENTS
from headwater.config.producer_conflicts import (
    idempotence_conflict,
    number,
    transactional_id_problem,
    values_of,
)
from headwater.config.profiles import Profile, profile_called

_REFUSED = {"sasl.": "Kerberos and classes of Java are not supported; see sasl_mechanism"}
_ALIKE = 0.8
"""The similarity that a hint requires; a lower one suggests unrelated settings."""
_TYPO = 0.93
"""That of a key with a typo to the right one; Kafka's keys that are refused are less alike."""


class ClientSettings(ConnectingKeys, ClientTlsKeys, ClientSaslKeys):
    """The settings of every client."""

    ROLE: ClassVar[str] = "admin"
    OBJECTS: ClassVar[tuple[str, ...]] = ()
    """Other arguments of the client, which a misspelled setting may mean."""
    INSTEAD: ClassVar[str] = ""
    """What to call with an argument that other clients take without a keyword."""

    profile: Profile | None
    chosen: frozenset[str]
    login: Credentials | None
    """Who the client is; None for one that does not authenticate."""

    def __init__(
        self,
        values: Mapping[str, Value],
        profile: Profile | None,
        chosen: frozenset[str],
        provider: tuple[str, TokenProvider] | None = None,
    ) -> None:
        super().__init__(values)
        login = sasl_credentials(values, provider)
        vars(self).update(profile=profile, chosen=chosen, login=login)

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Self:
        """Return the settings of keyword arguments; ConfigError for the first invalid one."""
        asked = dict(keywords)
        provider = take_provider(asked)
        name = asked.pop("profile", None)
        profile = None if name is None else profile_called(name)
        values = {row.name: row.default for row in cls.KEYS.values()}
        if profile:
            for key_name, (value, _) in profile.client(cls.ROLE).items():
                if key_name in cls.KEYS:
                    values[key_name] = value
        chosen = cls._by_key(asked)
        for key_name, given in chosen.items():
            row = cls.KEYS[key_name]
            text = _text(row, given)
            if key_name == "bootstrap.servers":
                text = ",".join(dict.fromkeys(part.strip() for part in text.split(",")))
            values[key_name] = row.parse(text)
        if "bootstrap.servers" not in chosen:
            raise ConfigError("bootstrap_servers is missing: name at least one broker, HOST:PORT")
        refuse_unused_tls(chosen, values["security.protocol"])
        cls.reconcile(values, frozenset(chosen))
        made = cls(values, profile, frozenset(chosen), provider)
        _ = made.tls  # raises now, not when it connects, if keys contradict each other
        return made

    @classmethod
    def refuse_positional(cls, client: str, given: Sequence[object]) -> None:
        """Raise TypeError for settings in a dict, as other clients take them, or another argument."""
        if not given:
            return
        settings = next((one for one in given if isinstance(one, Mapping)), None)
        if settings is None:
            raise TypeError(
                f"{client}() takes keywords, not {given[0]!r}: "
                f"{client}(bootstrap_servers='localhost:9092'){cls.INSTEAD}"
            )
        changes = [change for name in map(str, settings) if (change := cls._change_of(name))]
        after = f", after these changes: {'; '.join(changes)}" if changes else ""
        raise TypeError(
            f"{client}() takes its settings as keywords, not as a dict: {client}(**{{…}}){after}"
        )

    @classmethod
    def _change_of(cls, name: str) -> str:
        """Return what to change in a dict for another client so that it works here; often nothing."""
        dotted, keyword = name.replace("_", "."), name.replace(".", "_")
        if ALIASES.get(dotted, dotted) in cls.KEYS or name in ("profile", *PROVIDERS, *cls.OBJECTS):
            return ""
        if keyword in cls.OBJECTS or keyword in PROVIDERS:
            return f"rename {name} to {keyword}"
        theirs = OTHER_CLIENTS.get(dotted)
        if theirs in cls.KEYS:
            return f"rename {name} to {theirs}"
        if theirs is not None:
            return f"remove {name} ({theirs})"
        try:
            cls._name_of(name)
        except ConfigError as wrong:
            return str(wrong)
        return ""

    @classmethod
    def reconcile(cls, values: dict[str, Value], chosen: frozenset[str]) -> None:
        """Refuse contradictory settings; a subclass may adjust values that nobody set."""

    @classmethod
    def _by_key(cls, asked: Mapping[str, Any]) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        for keyword, value in asked.items():
            name = cls._name_of(keyword)
            if name in chosen:
                raise ConfigError(f"{name} is set twice, once with dots and once with underscores")
            chosen[name] = value
        return chosen

    @classmethod
    def _name_of(cls, keyword: str) -> str:
        name = keyword.replace("_", ".")
        name = ALIASES.get(name, name)
        if name in cls.KEYS:
            return name
        why = next((why for prefix, why in _REFUSED.items() if name.startswith(prefix)), None)
        if why and name not in OTHER_CLIENTS and not nearest(name, cls.KEYS, cutoff=_TYPO):
            raise ConfigError(f"{keyword} cannot be set: {why}")
        raise ConfigError(f"unknown setting {keyword}{cls._hint(name, keyword)}")

    @classmethod
    def _hint(cls, name: str, keyword: str) -> str:
        """A hint: the equivalent of another client's setting, or the correction of a typo."""
        theirs = OTHER_CLIENTS.get(name)
        spelled = {row.name if "." in keyword else row.attribute: row for row in cls.KEYS.values()}
        if theirs is None:
            return nearest(keyword, [*spelled, *cls.OBJECTS, *PROVIDERS], cutoff=_ALIKE)
        if theirs in cls.KEYS:
            return "; its name here is " + next(
                n for n, row in spelled.items() if row.name == theirs
            )
        return f": {theirs}"

    def explain(self) -> str:
        """Each setting that is not at its default: its value, who set it, and why."""
        lines = []
        given = self.profile.client(self.ROLE) if self.profile else {}
        for row in self.KEYS.values():
            value = row.text(getattr(self, row.attribute))
            if row.name in self.chosen:
                shown = "[hidden]" if row.sensitive else value
                lines.append(f"{row.name}={shown}  (chosen by you) {row.doc}")
            elif row.name in given:
                why = given[row.name][1]
                lines.append(f"{row.name}={value}  (profile {self._profile_name}) {why}")
        lines += self.warnings()
        if self.profile:
            lines += self.profile.around()
        return "\n".join(lines)

    def warnings(self) -> list[str]:
        """The costs of these settings that are not obvious."""
        return []

    @property
    def _profile_name(self) -> str:
        return self.profile.name if self.profile else ""


def _text(row: Key, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Sequence) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    shown = f"[hidden] of type {type(value).__name__}" if row.sensitive else repr(value)
    raise ConfigError(f"{row.name} cannot be {shown}: it takes text, a number or true and false")


class AdminSettings(ClientSettings):
    """The settings of an admin."""

    # fmt: off
    default_api_timeout_ms: int = key(
        "default.api.timeout.ms", INT, default=60_000, at_least=0,
        doc="How long a call may take in all, repetitions included.",
    )
    retries: int = key(
        "retries", INT, default=INT32_MAX, at_least=0, doc="How often a failed call is repeated.",
    )
    # fmt: on


class ProducerSettings(ClientSettings):
    """The settings of a producer."""

    ROLE = "producer"
    OBJECTS = ("key_serializer", "value_serializer", "partitioner", "interceptors")

    # fmt: off
    acks: str = key(
        "acks", STRING, default="all", one_of=("all", "-1", "0", "1"),
        doc="Who must have a record before it counts as sent: all in-sync replicas, the leader "
            "alone (1), nobody (0).",
    )
    enable_idempotence: bool = key(
        "enable.idempotence", BOOLEAN, default=True,
        doc="Number the batches, so that a retried batch is stored once and in order.",
    )
    transactional_id: str | None = key(
        "transactional.id", STRING, default=None, check=transactional_id_problem,
        doc="A lasting name that makes the producer transactional: a new producer with this name "
            "fences the one before it and aborts what that one left open.",
    )
    transaction_timeout_ms: int = key(
        "transaction.timeout.ms", INT, default=60_000, at_least=1,
        doc="How long a transaction may be open before its coordinator aborts it; at most "
            "transaction.max.timeout.ms of the brokers.",
    )
    batch_size: int = key(
        "batch.size", INT, default=16_384, at_least=0,
        doc="The size at which a batch of one partition is full, in bytes before compression.",
        differs="Unless it is set, a batch grows up to 256 KiB while others of its partition wait "
                "to be sent: what cannot leave yet leaves together.",
    )
    linger_ms: int = key(
        "linger.ms", LONG, default=5, at_least=0,
        doc="How long a batch that is not full waits for more records.",
    )
    buffer_memory: int = key(
        "buffer.memory", LONG, default=33_554_432, at_least=0,
        doc="How many bytes may wait to be sent; past it send() blocks for max.block.ms.",
    )
    max_block_ms: int = key(
        "max.block.ms", LONG, default=60_000, at_least=0,
        doc="How long send() may wait for metadata or for room in the buffer.",
    )
    max_request_size: int = key(
        "max.request.size", INT, default=1_048_576, at_least=0,
        doc="The largest request, and so the largest record, in bytes.",
    )
    max_in_flight_requests_per_connection: int = key(
        "max.in.flight.requests.per.connection", INT, default=5, at_least=1,
        doc="How many requests to one broker may wait for their answers.",
    )
    delivery_timeout_ms: int = key(
        "delivery.timeout.ms", INT, default=120_000, at_least=0,
        doc="How long after send() a record is either acknowledged or reported as failed.",
    )
    retries: int = key(
        "retries", INT, default=INT32_MAX, at_least=0,
        doc="How many times a batch is retried; delivery.timeout.ms is the better limit.",
    )
    compression_type: str = key(
        "compression.type", STRING, default="none",
        one_of=("none", "gzip", "snappy", "lz4", "zstd"),
        doc="How batches are compressed.",
    )
    compression_gzip_level: int = key(
        "compression.gzip.level", INT, default=-1, at_least=-1, at_most=9,
        doc="1 is fast, 9 is small, -1 is the library's choice.",
    )
    compression_lz4_level: int = key(
        "compression.lz4.level", INT, default=9, at_least=1, at_most=17,
        doc="1 is fast, 17 is small; 9 is the fast compressor, as in Kafka.",
    )
    compression_zstd_level: int = key(
        "compression.zstd.level", INT, default=3, at_least=-131_072, at_most=22,
        doc="Negative is fast, 22 is small.",
    )
    partitioner_adaptive_partitioning_enable: bool = key(
        "partitioner.adaptive.partitioning.enable", BOOLEAN, default=True,
        doc="Send records without a key more often to partitions whose broker is fast.",
    )
    partitioner_availability_timeout_ms: int = key(
        "partitioner.availability.timeout.ms", LONG, default=0, at_least=0,
        doc="Pass over partitions whose broker has taken nothing for this long; 0 for never.",
        idle="adaptive partitioning passes over long queues already",
    )
    partitioner_ignore_keys: bool = key(
        "partitioner.ignore.keys", BOOLEAN, default=False,
        doc="Choose partitions without regard to the key.",
    )
    metadata_max_idle_ms: int = key(
        "metadata.max.idle.ms", LONG, default=300_000, at_least=5000,
        doc="How long the metadata of a topic without new records is kept.",
    )
    # fmt: on

    @property
    def compression_level(self) -> int | None:
        """The level of the codec in use; None leaves it to the codec."""
        level = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }.get(self.compression_type)
        return None if level == -1 and self.compression_type == "gzip" else level

    @property
    def required_acks(self) -> int:
        """`acks` as the number on the wire."""
        return -1 if self.acks == "all" else int(self.acks)

    @classmethod
    def reconcile(cls, values: dict[str, Value], chosen: frozenset[str]) -> None:
        """Idempotence against acks, retries and requests in flight; the delivery timeout."""
        conflict = idempotence_conflict(values)
        if values["transactional.id"] is not None:
            if conflict or not values["enable.idempotence"]:
                raise ConfigError(f"transactional_id needs {conflict or 'enable_idempotence'}")
        elif conflict and values["enable.idempotence"]:
            if "enable.idempotence" in chosen:
                raise ConfigError(f"enable_idempotence needs {conflict}")
            values["enable.idempotence"] = False
        least = number(values["linger.ms"]) + number(values["request.timeout.ms"])
        if number(values["delivery.timeout.ms"]) < least:
            if "delivery.timeout.ms" in chosen:
                raise ConfigError(
                    f"delivery_timeout_ms must be at least linger_ms + request_timeout_ms "
                    f"({least}): raise it or lower those"
                )
            values["delivery.timeout.ms"] = min(least, INT32_MAX)

    def warnings(self) -> list[str]:
        """The costs of weaker acknowledgements."""
        said = []
        if self.required_acks == 1:
            said.append(
                "acks=1 costs: a record counts as sent when the leader alone has it; it is lost if "
                "that broker fails before a follower has copied it."
            )
        if self.required_acks == 0:
            said.append(
                "acks=0 costs: nobody confirms anything; records are lost without a word, and "
                "offsets are not known."
            )
        if not self.enable_idempotence and "enable.idempotence" not in self.chosen:
            said.append(
                "enable.idempotence is off, because other settings exclude it "
                f"(it needs {idempotence_conflict(values_of(self))}): retries may store a record twice."
            )
        return said


class ConsumerSettings(ClientSettings):
    """The settings of a consumer."""

    ROLE = "consumer"
    OBJECTS = ("key_deserializer", "value_deserializer", "interceptors", "assignors")
    INSTEAD = ", then subscribe(['orders'])"

    # fmt: off
    group_id: str | None = key(
        "group.id", STRING, default=None,
        doc="The group whose members share the partitions; without it partitions are assigned by "
            "hand and no offsets are committed.",
    )
    group_instance_id: str | None = key(
        "group.instance.id", STRING, default=None,
        doc="A lasting name of this member: a restart within the session keeps its partitions.",
    )
    auto_offset_reset: str = key(
        "auto.offset.reset", STRING, default="latest", one_of=("latest", "earliest", "none"),
        doc="Where to start without a committed offset, or if that offset is out of range.",
    )
    enable_auto_commit: bool = key(
        "enable.auto.commit", BOOLEAN, default=True,
        doc="Commit the position periodically, inside poll().",
    )
    auto_commit_interval_ms: int = key(
        "auto.commit.interval.ms", INT, default=5000, at_least=0, doc="How often auto-commit commits.",
    )
    max_poll_records: int = key(
        "max.poll.records", INT, default=500, at_least=1,
        doc="The most records one poll() returns.",
    )
    max_poll_interval_ms: int = key(
        "max.poll.interval.ms", INT, default=300_000, at_least=1,
        doc="The longest time between two calls of poll() before the member leaves its group.",
    )
    session_timeout_ms: int = key(
        "session.timeout.ms", INT, default=45_000, at_least=1,
        doc="How long the group waits for a heartbeat before it gives the partitions to others.",
    )
    heartbeat_interval_ms: int = key(
        "heartbeat.interval.ms", INT, default=3000, at_least=1,
        doc="How often a member sends a heartbeat to its coordinator.",
    )
    partition_assignment_strategy: tuple[str, ...] = key(
        "partition.assignment.strategy", LIST, default=("range", "cooperative-sticky"),
        doc="How the group assigns partitions, in order of preference.",
    )
    fetch_min_bytes: int = key(
        "fetch.min.bytes", INT, default=1, at_least=0,
        doc="The bytes that a broker waits for before it answers a fetch.",
    )
    fetch_max_wait_ms: int = key(
        "fetch.max.wait.ms", INT, default=500, at_least=0,
        doc="The longest time that a broker waits for fetch.min.bytes.",
    )
    fetch_max_bytes: int = key(
        "fetch.max.bytes", INT, default=52_428_800, at_least=0,
        doc="The most bytes of one answer.",
    )
    max_partition_fetch_bytes: int = key(
        "max.partition.fetch.bytes", INT, default=1_048_576, at_least=0,
        doc="The most bytes of one partition in one answer. Unless set, up to 2 MiB while few partitions are read.",
    )
    isolation_level: str = key(
        "isolation.level", STRING, default="read_uncommitted",
        one_of=("read_uncommitted", "read_committed"),
        doc="Whether records of open and aborted transactions are shown.",
    )
    check_crcs: bool = key(
        "check.crcs", BOOLEAN, default=True, doc="Verify the checksum of every batch.",
    )
    allow_auto_create_topics: bool = key(
        "allow.auto.create.topics", BOOLEAN, default=True,
        doc="Let the broker create subscribed topics that do not exist.",
    )
    exclude_internal_topics: bool = key(
        "exclude.internal.topics", BOOLEAN, default=True,
        doc="Exclude internal topics from the matches of a pattern.",
    )
    default_api_timeout_ms: int = key(
        "default.api.timeout.ms", INT, default=60_000, at_least=0,
        doc="How long a call may take in all, repetitions included.",
    )
    client_rack: str = key(
        "client.rack", STRING, default="", doc="The rack of this consumer, for reads from the nearest replica.",
    )
    # fmt: on

    @classmethod
    def reconcile(cls, values: dict[str, Value], chosen: frozenset[str]) -> None:
        """Heartbeats must fit into the session, and commits need a group."""
        if number(values["heartbeat.interval.ms"]) >= number(values["session.timeout.ms"]):
            raise ConfigError(
                "heartbeat_interval_ms must be below session_timeout_ms: a third of it"
            )
        if values["group.id"] is None:
            if "enable.auto.commit" in chosen and values["enable.auto.commit"]:
                raise ConfigError("enable_auto_commit needs a group_id to commit for")
            values["enable.auto.commit"] = False

    def warnings(self) -> list[str]:
        """Warn of a session that one late heartbeat would end."""
        most = self.session_timeout_ms // 3
        if self.group_id is None or self.heartbeat_interval_ms <= most:
            return []
        return [
            f"heartbeat.interval.ms={self.heartbeat_interval_ms} is over a third of "
            f"session.timeout.ms={self.session_timeout_ms}: one heartbeat that is lost or late may "
            f"cost this consumer its partitions; set heartbeat_interval_ms to {most} or less"
        ]
