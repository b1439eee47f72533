"""Headwater: event streaming in Python that Kafka clients take for Kafka."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.client.admin import BlockingAdmin as Admin
    from headwater.client.consumer.blocking import Consumer
    from headwater.client.producer.blocking import Producer

__version__ = "0.1.0"
__all__ = ["Admin", "Consumer", "Producer", "__version__", "codec"]

codec: str
"""Which record codec the clients of this process use: "compiled" or "pure"."""


_HOMES = {
    "Admin": ("headwater.client.admin", "BlockingAdmin"),
    "Consumer": ("headwater.client.consumer.blocking", "Consumer"),
    "Producer": ("headwater.client.producer.blocking", "Producer"),
    "codec": ("headwater.records.codec", "NAME"),
}


def __getattr__(name: str) -> Any:
    """What is only known, or only paid for, once it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, there = _HOMES[name]
    return getattr(import_module(home), there)
