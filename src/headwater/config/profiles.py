"""Profiles: named sets of settings for one goal (durable, fast, quick), with reasons.

A client uses its part of a profile as defaults. `around` lists the settings of topics and brokers that
the goal also needs, and that a client cannot set.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headwater.config.keys import ConfigError, Value, nearest

Part = Mapping[str, tuple[Value, str]]
"""Keys, each with its value and the reason for it."""


class Profile(NamedTuple):
    """The settings for one goal."""

    name: str
    producer: Part
    consumer: Part
    topic: Part
    broker: Part

    def client(self, role: str) -> Part:
        """The defaults for a client of that role; an admin has none."""
        return {"producer": self.producer, "consumer": self.consumer}.get(role, {})

    def around(self) -> list[str]:
        """The settings that the goal needs on topics and brokers."""
        parts = (("topic", self.topic), ("broker", self.broker))
        return [
            f"{where}: {key}={_shown(value)}  (needed by profile {self.name}) {why}"
            for where, part in parts
            for key, (value, why) in part.items()
        ]


def profile_called(name: object) -> Profile:
    """The profile called `name`; the ConfigError for an unknown one lists the names."""
    profile = PROFILES.get(name) if isinstance(name, str) else None
    if profile is None:
        hint = nearest(str(name), PROFILES)
        raise ConfigError(f"unknown profile {name!r}{hint or '; there are ' + ', '.join(PROFILES)}")
    return profile


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_DURABLE = Profile(
    "durable",
    producer={
        "acks": ("all", "a record counts as sent when every in-sync replica has it"),
        "enable.idempotence": (True, "a repeated batch is stored once"),
    },
    consumer={
        "enable.auto.commit": (False, "commit after the work is done, not before"),
        "isolation.level": ("read_committed", "aborted records are not seen"),
    },
    topic={
        "replication.factor": (3, "two copies survive the loss of a broker"),
        "min.insync.replicas": (2, "replicas - 1: writes go on while one broker is down"),
        "unclean.leader.election.enable": (False, "a replica that lacks records may not lead"),
    },
    broker={
        "default.replication.factor": (3, "for topics that are made without a number of their own"),
    },
)
_THROUGHPUT = Profile(
    "throughput",
    producer={
        "batch.size": (131_072, "large batches cost less per record"),
        "linger.ms": (20, "time for batches to fill"),
        "compression.type": ("lz4", "fewer bytes at little cost; zstd packs tighter"),
        "buffer.memory": (67_108_864, "room for the batches under way"),
    },
    consumer={
        "fetch.min.bytes": (65_536, "fuller answers, fewer of them"),
        "max.partition.fetch.bytes": (4_194_304, "more of a partition in one answer"),
        "max.poll.records": (5000, "fewer calls for the same records"),
    },
    topic={"compression.type": ("producer", "batches are stored as they come")},
    broker={},
)
_LATENCY = Profile(
    "latency",
    producer={
        "linger.ms": (0, "a record leaves at once"),
        "compression.type": ("none", "no time is spent on packing"),
    },
    consumer={
        "fetch.min.bytes": (1, "the broker answers as soon as there is a record"),
    },
    topic={"compression.type": ("producer", "batches are stored as they come")},
    broker={},
)

PROFILES: Mapping[str, Profile] = {
    profile.name: profile for profile in (_DURABLE, _THROUGHPUT, _LATENCY)
}
