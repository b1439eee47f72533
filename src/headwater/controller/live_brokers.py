"""Watches which brokers are live: /brokers/ids."""

from collections.abc import Callable

from headwater.controller.metadata_loader import read_brokers
from headwater.controller.state import LiveBroker
from headwater.controller.store.metadata_store import MetadataStore, StoreError, WatchEvent
from headwater.controller.store.znodes import BROKER_IDS


class BrokerWatcher:
    """Reports all live brokers, at first and after every change, until `stop`."""

    def __init__(
        self, store: MetadataStore, report: Callable[[dict[int, LiveBroker] | StoreError], None]
    ) -> None:
        self._store = store
        self._report = report
        self._stopped = False
        self._read()

    def stop(self) -> None:
        self._stopped = True

    def _read(self) -> None:
        self._store.children(BROKER_IDS, self._names, self._changed)

    def _changed(self, change: WatchEvent, path: str) -> None:
        if not self._stopped:
            self._read()

    def _names(self, names: list[str] | StoreError) -> None:
        if isinstance(names, StoreError):
            self._report_brokers(names)
        else:
            read_brokers(self._store, names, self._report_brokers)

    def _report_brokers(self, brokers: dict[int, LiveBroker] | StoreError) -> None:
        if not self._stopped:
            self._report(brokers)
