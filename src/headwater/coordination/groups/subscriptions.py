"""Reads the subscribed topics from a consumer's metadata; the coordinator ignores the rest."""

import struct

from headwater.wire import codec
from headwater.wire.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"
NEWEST_SUBSCRIPTION = 3


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription, or None if the bytes are not one."""
    try:
        (version,) = struct.unpack_from(">h", metadata)
        known = min(version, NEWEST_SUBSCRIPTION)  # later versions only append fields
        found, _ = codec.decode(ConsumerProtocolSubscription, known, metadata, 2)
    except (struct.error, codec.WireError):
        return None
    return frozenset(found.topics)
