"""The kinds of quotas, and the interface that enforces them."""

from enum import Enum
from typing import Protocol

from headwater.security.principals import Principal


class QuotaKind(Enum):
    """The quota that a request counts against."""

    PRODUCE = "bytes produced"
    FETCH = "bytes fetched"
    REQUEST = "request time"
    CONTROLLER_MUTATION = "topics and partitions created or deleted"
    EXEMPT = "nothing: requests of the cluster itself"


class ClientQuotas(Protocol):
    """Returns how long to throttle a client; must not wait."""

    def throttle_ms(
        self, principal: Principal, client_id: str | None, kind: QuotaKind, size: int
    ) -> int:
        """Count a request of `size` bytes; return the throttle time in ms, 0 within the quota."""
