"""Partitions move between real brokers, and a broker that stops hands over what it leads."""

import pytest

from headwater import Admin, Consumer, NewTopic, Producer, TopicPartition
from headwater.errors import E
from tests.integration.brokers import running, store_process, until

RECORDS = 200


@pytest.fixture
def brokers():
    with store_process() as store, running(store.address) as made:
        yield made


def test_records_survive_a_move_a_planned_stop_and_elections(brokers):
    with Admin(bootstrap_servers=brokers.bootstrap) as admin:
        admin.create_topics([NewTopic("moved", replicas={0: [1, 2], 1: [2, 1]})])
        with Producer(bootstrap_servers=brokers.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send("moved", b"%d" % number, partition=number % 2)

        def view(partition: int):
            return admin.describe_topics(["moved"])["moved"].partitions[partition]

        here = TopicPartition("moved", 0)
        admin.reassign_partitions({here: [3, 2]})
        until(lambda: not admin.list_reassignments(), "the end of the move")
        until(lambda: (view(0).leader, view(0).replicas) == (3, (3, 2)), "the new replicas")
        assert set(view(0).isr) == {3, 2}
        until(lambda: here not in sizes(admin, 1), "the deletion of the old replica")

        brokers.all[3].stop()
        until(lambda: view(0).leader == 2, "a leader that does not stop")
        brokers.all[3].start()
        until(lambda: set(view(0).isr) == {3, 2}, "the return of the replica")
        assert admin.elect_leaders([here]) == {here: E.NONE}
        until(lambda: view(0).leader == 3, "the preferred leader")
        until(lambda: set(view(1).isr) == {2, 1}, "all replicas of the other partition")

        brokers.all[3].kill()
        until(lambda: view(0).leader == 2, "a leader after a kill")
        brokers.all[3].start()
        until(lambda: set(view(0).isr) == {3, 2}, "the return after a kill")

    with Consumer(bootstrap_servers=brokers.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("moved", 0), TopicPartition("moved", 1)])
        read: list[int] = []

        def all_read() -> bool:
            read.extend(int(record.value) for record in consumer.poll(0.2))
            return len(read) >= RECORDS

        until(all_read, "all records")
    assert sorted(read) == list(range(RECORDS))


def sizes(admin: Admin, broker_id: int) -> dict[TopicPartition, int]:
    return {
        at: size for one in admin.describe_log_dirs([broker_id]) for at, size in one.sizes.items()
    }
