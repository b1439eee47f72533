"""An operator at work during a run: elections, moves, topics deleted and created, members that change."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping

import headwater
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from tools.client_chaos import QUICK
from tools.cluster_chaos.access import Access
from tools.cluster_chaos.history import History
from tools.recreated_topic import RecreatedTopic

BETWEEN_S = 2.0


class Operator:
    """Does one thing after the other on a thread; what a cluster in motion refuses is left."""

    def __init__(
        self,
        access: Access,
        moved: list[TopicPartition],
        brokers: list[int],
        recreated: RecreatedTopic,
        works: Mapping[str, Callable[[], object]],
        history: History,
        chance: random.Random,
    ) -> None:
        self.done: Counter[str] = Counter()
        self._admin = headwater.Admin(**access.own, default_api_timeout_ms=20_000, **QUICK)
        self._moved, self._brokers = moved, brokers
        self._history, self._chance = history, chance
        self._works: dict[str, Callable[[], object]] = {
            "election": self._elect,
            "reassignment": self._move,
            "topic recreated": recreated.again,
            "topic truncated": recreated.truncate,
            **works,
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operator", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._chance.uniform(0.2, BETWEEN_S)):
            kind = self._chance.choice(list(self._works))
            try:
                self._works[kind]()
            except KafkaError as refusal:
                self._history.note("refused", kind=kind, error=str(refusal))
            except TimeoutError as failure:
                self._history.note("problem", text=f"operator: {failure}")
            else:
                self.done[kind] += 1
                self._history.note("operation", kind=kind)

    def _elect(self) -> None:
        self._admin.elect_leaders(self._moved)

    def _move(self) -> None:
        """Other replicas, or the same in another order: another preferred leader."""
        targets = {}
        for at in self._moved:
            count = self._chance.choice((2, 3))
            targets[at] = self._chance.sample(self._brokers, count)
        self._admin.reassign_partitions(targets)

    def finish(self) -> None:
        """Finish what is under way."""
        self._stop.set()
        self._thread.join()
        self._admin.close()
