"""What metrics cost: a broker that is scraped every second beside one without a listener for them.

Counters cannot be turned off: they are additions to slots. What can be is all that reads them, the
watch over the event loop, and the scrapes themselves.
"""

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tools.free_ports import free_port

from benchmarks.load import rounds
from benchmarks.load.cases import CASES
from benchmarks.load.rounds import Scale, rate
from benchmarks.load.servers import Headwater
from benchmarks.load.targets import Figure, at_least

SCRAPE_S = 1.0
_CASES = ("produce-1rec-100c-new", "produce-16KiB-new", "fetch-4c-new")


class _Broker(Headwater):
    def __init__(self, name: str, listener: str) -> None:
        super().__init__({"metrics.listener": listener})
        self.name = name


@contextmanager
def _scraped(url: str) -> Iterator[None]:
    """Reads the metrics every second; a failed reading ends the measurement at the end."""
    ended, failures = threading.Event(), []

    def scrape() -> None:
        try:
            while not ended.wait(SCRAPE_S):
                with urllib.request.urlopen(url, timeout=10) as answer:
                    answer.read()
        except OSError as failure:
            failures.append(failure)

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]


def metrics(scale: Scale) -> list[Figure]:
    """Rates with metrics over rates without, in rounds of both."""
    cases, listener = [CASES[name] for name in _CASES], f"127.0.0.1:{free_port()}"
    with (
        _Broker("without", "") as without,
        _Broker("scraped", listener) as scraped,
        _scraped(f"http://{listener}/metrics"),
    ):
        found = rounds.run_rounds(cases, [without, scraped], scale, lambda _: None)
    if found.failures:
        raise RuntimeError(str(found.failures))
    figures = []
    for case in cases:
        by_server = found.samples[case.name]
        pairs = zip(by_server["scraped"], by_server["without"], strict=True)
        ratios = [rate(case, on) / rate(case, off) for on, off in pairs]
        figures.append(
            Figure(f"metrics-{case.name}", "rate ÷ without metrics", ratios, at_least(0.99))
        )
    return figures
