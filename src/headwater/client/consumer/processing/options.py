"""The options of `process`, checked before it begins."""

from headwater.client.consumer.consumer_core import ConsumerCore
from headwater.client.consumer.fetching.completed_fetch import Reshape
from headwater.client.consumer.processing.lanes import ORDERS, Lanes
from headwater.client.errors import SerializationError

_LAST_BACKOFF_S = 10.0


class ProcessOptions:
    """The options of one `process` call."""

    def __init__(
        self,
        core: ConsumerCore,
        *,
        workers: int,
        order: str,
        retries: int,
        backoff_s: float,
        dead_letter_topic: str | None,
        max_unfinished: int,
        commit_interval_s: float,
    ) -> None:
        if order not in ORDERS:
            raise ValueError(f"order is 'key' or 'partition', not {order!r}")
        if workers < 1 or retries < 0 or max_unfinished < 1:
            raise ValueError("workers and max_unfinished are 1 or more, retries 0 or more")
        if dead_letter_topic is not None and core.subscription.wants(dead_letter_topic):
            raise ValueError(
                f"dead_letter_topic {dead_letter_topic!r} is one that this consumer reads, so a dead "
                "letter would fail again forever: choose another topic or another pattern"
            )
        self.workers = workers
        self.retries = retries
        self.backoff_s = backoff_s
        self.dead_letter_topic = dead_letter_topic
        self.max_unfinished = max_unfinished
        self.commit_interval_s = commit_interval_s
        self.lanes = Lanes(ORDERS[order])
        self.shape: Reshape = core.reshape_for("process()")

    def rest_s(self, attempt: int) -> float:
        """Return how long to wait before the next attempt."""
        return float(min(self.backoff_s * 2**attempt, _LAST_BACKOFF_S))

    def retries_after(self, problem: Exception, attempt: int) -> bool:
        """Return whether to retry."""
        return attempt < self.retries and not isinstance(problem, SerializationError)
