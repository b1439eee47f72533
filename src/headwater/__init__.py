"""Headwater: event streaming in Python that Kafka clients take for Kafka."""

__version__ = "0.1.0"

codec: str
"""Which record codec the clients of this process use: "compiled" or "pure"."""


def __getattr__(name: str) -> object:
    """What is only known, or only paid for, once it is asked for."""
    if name == "codec":
        from headwater.records.codec import NAME

        return NAME
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
