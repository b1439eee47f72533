"""What clients do with three brokers while all of them are up."""

from tests.compat.broker_under_test import eventually
from tests.compat.checks import cluster_check, refused
from tests.compat.client import BEGINNING, END, Client, NotOffered
from tests.compat.three_brokers import PATIENCE_S, ThreeBrokers


@cluster_check("three replicas")
def three_replicas(client: Client, brokers: ThreeBrokers) -> None:
    topic, everyone = brokers.fresh("replicated"), {1, 2, 3}
    client.create_topic(topic, 3, {}, replicas=3)

    def in_sync() -> bool:
        found = client.describe_topic(topic)
        return sorted(found) == [0, 1, 2] and all(set(v.isr) == everyone for v in found.values())

    eventually(in_sync, PATIENCE_S)
    views = client.describe_topic(topic).values()
    assert all(view.leader in view.isr and set(view.replicas) == everyone for view in views)
    assert {view.replicas[0] for view in views} == everyone, "preferred leaders are spread"
    with refused(client, "INVALID_REPLICATION_FACTOR"):
        client.create_topic(brokers.fresh("larger"), 1, {}, replicas=4)


@cluster_check("read, write at all leaders")
def all_leaders(client: Client, brokers: ThreeBrokers) -> None:
    """Offsets of all partitions, and records of one, through metadata of any broker."""
    topic = brokers.topic(3)
    sent = brokers.fill(topic, 10, partitions=3)
    assert client.offsets(topic, END) == dict.fromkeys(range(3), 10)
    received = client.consume(topic, BEGINNING, 10)
    assert [record.value for record in received] == [m.value for m in sent if m.partition == 0]
    assert client.delete_records(topic, {0: 2, 1: 4, 2: 6}) == {0: 2, 1: 4, 2: 6}


@cluster_check("admin at any broker")
def any_broker(client: Client, brokers: ThreeBrokers) -> None:
    """All that needs the controller, by a client that knows another broker alone."""
    there = client.at(brokers.address_beside_the_controller())
    topic = brokers.fresh("from-elsewhere")
    there.create_topic(topic, 1, {"retention.ms": "3600000"}, replicas=2)
    eventually(lambda: there.topic_configs(topic)["retention.ms"] == "3600000", PATIENCE_S)
    there.set_topic_config(topic, "retention.ms", "60000")
    eventually(lambda: there.topic_configs(topic)["retention.ms"] == "60000", PATIENCE_S)
    there.grow_topic(topic, 4)
    eventually(lambda: len(there.describe_topic(topic)) == 4, PATIENCE_S)
    there.delete_topic(topic)
    eventually(lambda: topic not in there.topics(), PATIENCE_S)


@cluster_check("move partitions")
def move(client: Client, brokers: ThreeBrokers) -> None:
    topic = brokers.topic(2, replicas=2)
    brokers.fill(topic, 10)
    former = brokers.hand.describe_topic(topic)[0].replicas
    (new,) = {1, 2, 3} - set(former)
    client.reassign(topic, {0: [new, former[0]]})

    def moved() -> bool:
        view = client.describe_topic(topic)[0]
        return view.replicas == (new, former[0]) and set(view.isr) == set(view.replicas)

    eventually(moved, PATIENCE_S)
    eventually(lambda: client.reassigning(topic) == set(), PATIENCE_S)
    assert len(brokers.hand.consume(topic, BEGINNING, 10)) == 10
    with refused(client, "INVALID_REPLICA_ASSIGNMENT"):
        client.reassign(topic, {0: [new, 77]})
    try:
        with refused(client, "NO_REASSIGNMENT_IN_PROGRESS"):
            client.reassign(topic, {0: None})
    except NotOffered:
        return  # it cancels what is being moved, and nothing else


@cluster_check("preferred election")
def preferred_election(client: Client, brokers: ThreeBrokers) -> None:
    topic = brokers.topic()
    preferred = brokers.prefer_another_leader(topic)
    client.elect(topic, 0)
    eventually(lambda: client.describe_topic(topic)[0].leader == preferred, PATIENCE_S)
    with refused(client, "ELECTION_NOT_NEEDED"):
        client.elect(topic, 0)
    with refused(client, "UNKNOWN_TOPIC_OR_PARTITION"):
        client.elect(topic, 9)


@cluster_check("groups at all coordinators")
def groups_at_all_coordinators(client: Client, brokers: ThreeBrokers) -> None:
    topic = brokers.topic()
    brokers.fill(topic, 10)
    names = {brokers.fresh("group") for _ in range(4)}
    for group in names:
        eventually(lambda group=group: client.commit(group, topic, {0: 7}) is None, PATIENCE_S)  # type: ignore[misc]
    assert names <= client.groups(), "groups of all coordinators are listed"
    assert all(client.committed(group, topic) == {0: 7} for group in names)
