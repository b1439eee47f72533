"""Headwater: event streaming in Python that Kafka clients take for Kafka."""

__version__ = "0.1.0"
