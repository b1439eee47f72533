"""What a quota counts, and the interface of whatever enforces quotas."""

from enum import Enum
from typing import Protocol

from headwater.security.principals import Principal


class QuotaKind(Enum):
    """Which quota of a client a request counts against."""

    PRODUCE = "bytes produced"
    FETCH = "bytes fetched"
    REQUEST = "request time"
    CONTROLLER_MUTATION = "topics and partitions created or deleted"
    EXEMPT = "nothing: requests of the cluster itself"


class ClientQuotas(Protocol):
    """Says for how long a client must pause; never waits."""

    def throttle_ms(
        self, principal: Principal, client_id: str | None, kind: QuotaKind, size: int
    ) -> int:
        """Count a request of `size` bytes; 0 while the client is within its quota."""
