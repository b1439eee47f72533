"""A shop writes orders, shipping reads them, and later analytics joins without anybody's help.

    python -m examples.decoupling [--bootstrap-server HOST:PORT]

The shop knows the topic and nothing else. Shipping is a group that is there from the start.
Analytics is thought of later, while the shop is busy: it is one more group, has its own place in
the topic, and gets every order from the first on. Not a line of the shop changes, nor does it wait.
Without an address the example starts a broker of its own.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import click

from headwater import Admin, Consumer, NewTopic, Producer
from headwater.testing import Broker

ORDERS = 300
JOINS_AFTER = 100


@dataclass
class Shop:
    """Writes orders, and that is all it does."""

    bootstrap: str
    topic: str
    written: int = 0

    def run(self) -> None:
        """Customers come and buy."""
        with Producer(bootstrap_servers=self.bootstrap, value_serializer="json") as producer:
            for number in range(ORDERS):
                customer = f"customer-{number % 20}"
                order = {"order": number, "customer": customer, "cents": 100 + number}
                producer.send(self.topic, order, key=customer.encode())
                self.written += 1
                time.sleep(0.002)


@dataclass
class Group:
    """A service that reads the orders under a name of its own."""

    bootstrap: str
    topic: str
    name: str
    orders: list[int] = field(default_factory=list)
    started_at: int = 0

    def run(self) -> None:
        """Read until every order was seen."""
        for order in self._read():
            self.orders.append(order["order"])
            if len(self.orders) == ORDERS:
                return

    def _read(self) -> Iterator[dict[str, int]]:
        with Consumer(
            bootstrap_servers=self.bootstrap, group_id=self.name, auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([self.topic])
            for record in consumer:
                yield json.loads(record.value)


def run(bootstrap: str, topic: str) -> tuple[Group, Group]:
    """Let it happen; the two groups with what each has read."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 3)])
    shop = Shop(bootstrap, topic)
    shipping = Group(bootstrap, topic, f"{topic}-shipping")
    analytics = Group(bootstrap, topic, f"{topic}-analytics")

    threads = [threading.Thread(target=shop.run), threading.Thread(target=shipping.run)]
    for thread in threads:
        thread.start()
    while shop.written < JOINS_AFTER:
        time.sleep(0.001)

    analytics.started_at = shop.written  # a year later, in a real shop
    threads.append(threading.Thread(target=analytics.run))
    threads[-1].start()
    for thread in threads:
        thread.join()
    return shipping, analytics


@click.command()
@click.option("--bootstrap-server", "bootstrap", metavar="HOST:PORT", help="A running broker.")
@click.option("--topic", default="orders", show_default=True)
def main(bootstrap: str | None, topic: str) -> None:
    """Run the example and say what happened."""
    with ExitStack() as stack:
        address = bootstrap or stack.enter_context(Broker()).bootstrap
        shipping, analytics = run(address, topic)
    click.echo(f"the shop wrote {ORDERS} orders and knows nobody who reads them")
    click.echo(f"shipping was there from the start and has {len(set(shipping.orders))} of them")
    click.echo(
        f"analytics joined when {analytics.started_at} were written and has "
        f"{len(set(analytics.orders))}, from order {min(analytics.orders)} on"
    )


if __name__ == "__main__":
    main()
