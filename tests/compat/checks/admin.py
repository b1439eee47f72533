"""Topics, configs and offsets as an operator handles them."""

from tests.compat.broker_under_test import BASE_TIME, BrokerUnderTest, eventually
from tests.compat.checks import check, refused
from tests.compat.client import BEGINNING, END, LATEST_TIME, Client, Message, Start


@check("create topics")
def create(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.fresh("created")
    client.create_topic(topic, 3, {"retention.ms": "3600000"})
    eventually(lambda: len(broker.hand.describe_topic(topic)) == 3)
    assert broker.hand.topic_configs(topic)["retention.ms"] == "3600000"
    with refused(client, "TOPIC_ALREADY_EXISTS"):
        client.create_topic(topic, 3, {})
    with refused(client, "INVALID_TOPIC_EXCEPTION"):
        client.create_topic("no spaces", 1, {})
    with refused(client, "INVALID_CONFIG"):
        client.create_topic(broker.fresh("bad"), 1, {"retention.ms": "soon"})


@check("list, describe topics")
def describe(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic(3)
    assert topic in client.topics()
    found = client.describe_topic(topic)
    assert sorted(found) == [0, 1, 2]
    for view in found.values():
        assert view.replicas == view.isr == (view.leader,)
    with refused(client, "UNKNOWN_TOPIC_OR_PARTITION"):
        client.describe_topic(broker.fresh("absent"))


@check("alter configs")
def alter_configs(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    assert client.topic_configs(topic)["retention.ms"] == "604800000"
    client.set_topic_config(topic, "retention.ms", "60000")
    eventually(lambda: client.topic_configs(topic)["retention.ms"] == "60000")
    client.set_topic_config(topic, "retention.ms", None)
    eventually(lambda: client.topic_configs(topic)["retention.ms"] == "604800000")
    with refused(client, "INVALID_CONFIG"):
        client.set_topic_config(topic, "retention.ms", "soon")


@check("broker configs")
def broker_configs(client: Client, broker: BrokerUnderTest) -> None:
    found = client.broker_configs()
    assert found["message.max.bytes"] == "1048588"
    assert found["log.retention.hours"] == "168"


@check("add partitions")
def add_partitions(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    client.grow_topic(topic, 4)
    eventually(lambda: len(broker.hand.describe_topic(topic)) == 4)
    broker.hand.produce(topic, [Message(b"here", partition=3)])
    with refused(client, "INVALID_PARTITIONS"):
        client.grow_topic(topic, 2)


@check("list offsets")
def list_offsets(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic(2)
    broker.fill(topic, 10, partitions=2)
    assert client.offsets(topic, BEGINNING) == {0: 0, 1: 0}
    assert client.offsets(topic, END) == {0: 10, 1: 10}
    assert client.offsets(topic, Start("time", BASE_TIME + 2001)) == {0: 3, 1: 3}


@check("offset of latest time")
def latest_time(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    times = [BASE_TIME, BASE_TIME + 9000, BASE_TIME + 5000]
    for at in times:
        broker.hand.produce(topic, [Message(b"in its own batch", timestamp=at)])
    assert client.offsets(topic, LATEST_TIME) == {0: 1}


@check("delete records")
def delete_records(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    broker.fill(topic, 10)
    assert client.delete_records(topic, {0: 4}) == {0: 4}
    assert broker.hand.offsets(topic, BEGINNING) == {0: 4}
    assert [r.offset for r in broker.hand.consume(topic, BEGINNING, 2)] == [4, 5]
    with refused(client, "OFFSET_OUT_OF_RANGE"):
        client.delete_records(topic, {0: 11})
    assert client.delete_records(topic, {0: -1}) == {0: 10}


@check("delete topics")
def delete_topics(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    client.delete_topic(topic)
    eventually(lambda: topic not in broker.hand.topics())
    with refused(client, "UNKNOWN_TOPIC_OR_PARTITION"):
        client.delete_topic(topic)
    broker.hand.create_topic(topic, 1, {})
    eventually(lambda: len(broker.hand.describe_topic(topic)) == 1)
    assert broker.end(topic) == 0
