"""A shop answers its customers at once; the invoice, which is slow, is written by a worker.

    python -m examples.asynchronous [--bootstrap-server HOST:PORT]

Two ways to take an order, over real HTTP. POST /waiting writes the invoice while the customer
waits. POST /orders stores the order in a topic, answers as soon as the broker has it, and leaves
the invoice to a worker: if the worker is away, orders wait for it and none is lost. Both are timed.
Without an address the example starts a broker of its own.
"""

import http.client
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import click

from headwater import Admin, Consumer, NewTopic, Producer
from headwater.testing import Broker

INVOICE_S = 0.1
REQUESTS = 5


@dataclass
class Times:
    """When what happened, by order, in seconds."""

    waiting: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    asked_at: dict[bytes, float] = field(default_factory=dict)
    invoiced_after: dict[bytes, float] = field(default_factory=dict)


def write_invoice(order: bytes) -> None:
    """The slow step: a PDF, an e-mail, a call to another company."""
    time.sleep(INVOICE_S)


def shop(producer: Producer, topic: str) -> type[BaseHTTPRequestHandler]:
    """The request handler."""

    class Shop(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            order = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/waiting":
                write_invoice(order)
            else:
                producer.send(topic, order, key=order).result(timeout=10)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    return Shop


def work(bootstrap: str, topic: str, times: Times) -> None:
    """The worker: one invoice after the other, each order's place committed after its invoice."""
    with Consumer(
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-invoices",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=1,
    ) as consumer:
        consumer.subscribe([topic])
        while len(times.invoiced_after) < REQUESTS:
            for record in consumer.poll(0.1):
                write_invoice(record.value)
                times.invoiced_after[record.value] = (
                    time.perf_counter() - times.asked_at[record.value]
                )
                consumer.commit()


def run(bootstrap: str, topic: str) -> Times:
    """Ask both ways, and wait until the worker has caught up."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    times = Times()
    worker = threading.Thread(target=work, args=(bootstrap, topic, times))
    worker.start()
    with (
        Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer,
        ThreadingHTTPServer(("127.0.0.1", 0), shop(producer, topic)) as server,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ask = _customer(server.server_port, times)
        for number in range(REQUESTS):
            times.waiting.append(ask("/waiting", b"waiting %d" % number))
        for number in range(REQUESTS):
            times.answered.append(ask("/orders", b"order %d" % number))
        server.shutdown()
    worker.join()
    return times


def _customer(port: int, times: Times) -> Callable[[str, bytes], float]:
    def ask(path: str, order: bytes) -> float:
        times.asked_at[order] = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", path, order)
        connection.getresponse().read()
        connection.close()
        return time.perf_counter() - times.asked_at[order]

    return ask


@click.command()
@click.option("--bootstrap-server", "bootstrap", metavar="HOST:PORT", help="A running broker.")
@click.option("--topic", default="orders", show_default=True)
def main(bootstrap: str | None, topic: str) -> None:
    """Run the example and print the times."""
    with ExitStack() as stack:
        times = run(bootstrap or stack.enter_context(Broker()).bootstrap, topic)
    for text, seconds in (
        ("with the invoice, a request took", statistics.median(times.waiting)),
        ("with a topic, a request took", statistics.median(times.answered)),
        ("and its invoice was ready after", statistics.median(times.invoiced_after.values())),
    ):
        click.echo(f"{text:34} {1000 * seconds:7.1f} ms")


if __name__ == "__main__":
    main()
