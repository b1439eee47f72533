"""A real broker for tests: no containers, ready in milliseconds, cleaned up afterwards.

    from headwater.testing import Broker

    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

The pytest fixture `headwater_broker` gives each test such a broker.
"""

from headwater.testing.broker import Broker
from headwater.testing.cluster import Cluster

__all__ = ["Broker", "Cluster"]
