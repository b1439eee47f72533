"""The one thing the coordinator reads in a consumer's metadata: which topics it subscribes to."""

import struct

from headwater.wire import codec
from headwater.wire.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"
NEWEST_SUBSCRIPTION = 3


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription, or None when the blob is not one."""
    try:
        (version,) = struct.unpack_from(">h", metadata)
        known = min(version, NEWEST_SUBSCRIPTION)  # later versions only append fields
        found, _ = codec.decode(ConsumerProtocolSubscription, known, metadata, 2)
    except (struct.error, codec.WireError):
        return None
    return frozenset(found.topics)
