"""The browser script in Chromium: events of a page reach the topic, whatever becomes of the page."""

import contextlib
import functools
import http.server
import json
import threading
import time

import pytest

from headwater.testing import Broker
from tests.integration.chromium import FOUND, chromium
from tests.integration.collector import PATIENCE_S, http_collector, stored

pytestmark = pytest.mark.skipif(
    FOUND is None, reason="Chromium is missing: run tools/apt-packages as root"
)


@pytest.fixture(scope="module")
def broker():
    with Broker(subprocess=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@contextlib.contextmanager
def collected_shop(broker, topic, folder, *options):
    """A collector and a site that uses it."""
    words = ("--allow-origin", "*", *options)
    with http_collector(broker, topic, *words) as collector, shop(folder, collector.port) as site:
        yield collector, site


@contextlib.contextmanager
def shop(folder, port):
    """A site of its own origin, whose pages load the script from the collector."""
    script = f'<script src="http://127.0.0.1:{port}/headwater.js"></script>'
    (folder / "index.html").write_text(f"<!doctype html><title>shop</title>{script}")
    (folder / "thanks.html").write_text("<!doctype html><title>thanks</title>")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def events(broker, topic):
    """The events of a topic, one of each id, by their name."""
    rows = [json.loads(value) for _, value, _ in stored(broker, topic)]
    found = {}
    for row in {row["event_id"]: row for row in rows}.values():
        found.setdefault(row["event"], []).append(row)
    return found


def until(holds):
    limit = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_events_of_a_page_reach_the_topic(broker, browser, tmp_path):
    broker.create_topic("clicks", partitions=2)
    with collected_shop(broker, "clicks", tmp_path) as (_, site):
        browser.open(f"{site}/index.html")
        browser.run(
            'headwater.identify("anna"); headwater.track("browse", {item: "ß\\n\U0001f45f"})'
        )
        browser.run('for (let n = 0; n < 120; n++) headwater.track("like", {n, user_id: "x"})')
        until(lambda: browser.run("headwater.stats()")["waiting"] == 0)
        assert browser.run("headwater.stats()") == {
            "sent": 121,
            "refused": 0,
            "dropped": 0,
            "waiting": 0,
        }
        [browse] = events(broker, "clicks")["browse"]
        assert (browse["user_id"], browse["item"]) == ("anna", "ß\n\U0001f45f")
        likes = events(broker, "clicks")["like"]
        assert [row["n"] for row in likes] == list(range(120))
        assert {key for key, _, _ in stored(broker, "clicks")} == {b"anna"}

        browser.run('headwater.track("leave", {})')  # and away, before the batch is sent
        browser.go(f"{site}/thanks.html")
        until(lambda: "leave" in events(broker, "clicks"))


def test_events_wait_in_the_browser_while_the_collector_is_away(broker, browser, tmp_path):
    broker.create_topic("patient")
    with http_collector(broker, "patient", "--allow-origin", "*") as collector:
        port = collector.port
    with shop(tmp_path, port) as site:
        with http_collector(broker, "patient", "--allow-origin", "*", port=port):
            browser.open(f"{site}/index.html")
        browser.run('headwater.track("offline", {n: 1}); headwater.flush()')
        browser.go(f"{site}/thanks.html")
        assert "offline" not in events(broker, "patient")
        # The next page finds it, once it is old enough to be nobody else's.
        browser.run(
            """for (const name of Object.keys(localStorage).filter((key) => key.includes("event"))) {
                 const old = name.replace(/[0-9]{15}/, (stamp) => String(stamp - 60000).padStart(15, "0"));
                 localStorage.setItem(old, localStorage.getItem(name));
                 localStorage.removeItem(name);
               }"""
        )
        with http_collector(broker, "patient", "--allow-origin", "*", port=port) as collector:
            browser.go(f"{site}/index.html")
            until(lambda: "offline" in events(broker, "patient"))
            until(lambda: browser.run("headwater.stats()")["waiting"] == 0)
        # A page that stays tries again by itself.
        browser.run('headwater.track("later", {}); headwater.flush()')
        assert browser.run("headwater.stats()")["waiting"] == 1
        with http_collector(broker, "patient", "--allow-origin", "*", port=port):
            until(lambda: "later" in events(broker, "patient"))


def test_the_oldest_events_are_dropped_past_the_bound_and_counted(broker, browser, tmp_path):
    broker.create_topic("bounded")
    with collected_shop(broker, "bounded", tmp_path) as (collector, site):
        browser.open(f"{site}/index.html")
        collector.stop()
        browser.run('for (let n = 0; n < 1010; n++) headwater.track("many", {n})')
        told = browser.run("headwater.stats()")
        assert (told["dropped"], told["waiting"]) == (10, 1000)
        kept = browser.run(
            'Object.keys(localStorage).filter((key) => key.startsWith("headwater.event.")).length'
        )
        assert kept == 1000


def test_what_is_refused_is_counted_and_not_sent_again(broker, browser, tmp_path):
    broker.create_topic("strict")
    limit = ("--max-event-bytes", "300")
    with collected_shop(broker, "strict", tmp_path, *limit) as (_, site):
        browser.open(f"{site}/index.html")
        browser.run('headwater.track("good", {}); headwater.track("bad", {x: "x".repeat(300)})')
        until(lambda: browser.run("headwater.stats()")["waiting"] == 0)
        told = browser.run("headwater.stats()")
        assert (told["sent"], told["refused"]) == (1, 1)
    assert set(events(broker, "strict")) == {"good"}
