"""The controller that this broker follows, and the state received from it."""

from collections.abc import Callable

from headwater.broker.callbacks import Latch
from headwater.errors import E


class ControlState:
    """The epochs that fence control requests, and the two events that a start waits for."""

    def __init__(self) -> None:
        self.controller_epoch = -1
        # The epoch of this broker's registration; -1 until it is known.
        self.broker_epoch = -1
        # The first UpdateMetadata was applied: the cluster is known, perhaps only in part.
        self.metadata_known = Latch()
        # The controller has sent every partition of this broker; a full LeaderAndIsr says so.
        # Only then is a log without a partition a stray.
        self.assignment_known = Latch()
        self.on_applied: Callable[[], None] = lambda: None
        """Called after every LeaderAndIsr and UpdateMetadata that was applied."""

    def refuse(self, controller_epoch: int, broker_epoch: int) -> E:
        """NONE for a request of the newest controller to this registration of the broker.

        Remembers the controller's epoch.
        """
        if controller_epoch < self.controller_epoch:
            return E.STALE_CONTROLLER_EPOCH
        if -1 < broker_epoch < self.broker_epoch:
            return E.STALE_BROKER_EPOCH
        self.controller_epoch = controller_epoch
        return E.NONE
