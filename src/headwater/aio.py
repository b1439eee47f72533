"""The asyncio face of the clients: `from headwater.aio import Producer`.

Names are imported when first used: a program that only produces loads no consumer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.consumer.consumer import Consumer
    from headwater.client.producer.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]

_HOMES = {
    "Admin": "headwater.client.admin",
    "Consumer": "headwater.client.consumer.consumer",
    "Producer": "headwater.client.producer.producer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
