"""Headwater: event streaming in Python that Kafka clients take for Kafka."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.client.admin import BlockingAdmin as Admin
    from headwater.client.admin import ConfigResource, NewTopic, ResetTo
    from headwater.client.consumer.blocking import Consumer
    from headwater.client.consumer.listener import RebalanceListener
    from headwater.client.consumer.record import OffsetAndMetadata
    from headwater.client.offsets_sql import SqlOffsets
    from headwater.client.producer.blocking import Producer
    from headwater.config.keys import ConfigError
    from headwater.errors import *  # noqa: F403 - the errors that `__getattr__` finds
    from headwater.errors import KafkaError
    from headwater.model import TopicPartition

__version__ = "0.1.0"
__all__ = [
    "Admin",
    "ConfigError",
    "ConfigResource",
    "Consumer",
    "KafkaError",
    "NewTopic",
    "OffsetAndMetadata",
    "Producer",
    "RebalanceListener",
    "ResetTo",
    "SqlOffsets",
    "TopicPartition",
    "__version__",
    "codec",
]

codec: str
"""Which record codec the clients of this process use: "compiled" or "pure"."""


_HOMES = {
    "Admin": ("headwater.client.admin", "BlockingAdmin"),
    "ConfigError": ("headwater.config.keys", "ConfigError"),
    "Consumer": ("headwater.client.consumer.blocking", "Consumer"),
    "KafkaError": ("headwater.errors", "KafkaError"),
    "NewTopic": ("headwater.client.admin", "NewTopic"),
    "OffsetAndMetadata": ("headwater.client.consumer.record", "OffsetAndMetadata"),
    "Producer": ("headwater.client.producer.blocking", "Producer"),
    "RebalanceListener": ("headwater.client.consumer.listener", "RebalanceListener"),
    "ResetTo": ("headwater.client.admin", "ResetTo"),
    "ConfigResource": ("headwater.client.admin", "ConfigResource"),
    "SqlOffsets": ("headwater.client.offsets_sql", "SqlOffsets"),
    "TopicPartition": ("headwater.model", "TopicPartition"),
    "codec": ("headwater.records.codec", "NAME"),
}


def __getattr__(name: str) -> Any:
    """What is only known, or only paid for, once it is asked for."""
    if name in _HOMES:
        home, there = _HOMES[name]
        return getattr(import_module(home), there)
    if name.endswith("Error"):
        errors = import_module("headwater.errors")
        if name in dir(errors):
            return getattr(errors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Names for completion at the prompt."""
    return sorted(__all__)
