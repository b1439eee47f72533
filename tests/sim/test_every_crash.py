"""A small life, ended before each of its file operations in turn, by a crash and by a power cut."""

import pytest

from simulator.cluster import Cluster
from simulator.invariants import Promises
from simulator.workload.admin import Admin
from simulator.workload.audit import Auditor
from simulator.workload.producer import Producer
from tests.sim.support import AT, TOPIC

SEED = 8
SETTINGS = {"log.flush.interval.messages": "1", "log.segment.bytes": "5000"}
PARTS = 6


class Play:
    """Produce until a segment is full and another begun, stop cleanly, look at what is left."""

    def __init__(self, crash_before: int | None, power_cut: bool) -> None:
        self.crash_before = crash_before
        self.power_cut = power_cut
        self.operations = 0

    def run(self) -> list[str]:
        with Cluster(SEED, SETTINGS, slowest_network_ms=1, slowest_thread_ms=1) as cluster:
            self.cluster, self.node = cluster, cluster.node
            self.promises = Promises(cluster.scheduler.complain, all_synced=True)
            self.node.faults.crash_before = self.crash_before
            self._perform()
            self._look()
            return cluster.complaints

    def _perform(self) -> None:
        """The first life, whose operations are numbered from its start to its clean stop."""
        work = self.cluster.clients.create_task(self._produce())
        self.node.start()
        life = self.node.life
        self._until(lambda: work.done() or life.ended)
        if not life.ended:
            self.node.stop()
            self._until(lambda: life.ended)
        self.operations = life.files.operations
        if self.power_cut:
            self.node.lose_power()
        self.node.start()
        self._until(work.done)
        work.result()

    def _look(self) -> None:
        self.cluster.run(Auditor(self.cluster, self.promises, "first look").run())
        self.cluster.stop()
        self.node.verify_logs()
        self.cluster.start()
        self.cluster.run(Auditor(self.cluster, self.promises, "second look").run())

    async def _produce(self) -> None:
        admin = Admin(self.cluster, self.promises, "admin")
        await admin.create(TOPIC, 1, {})
        admin.disconnect()
        self.promises.add_topic(TOPIC, 1, synced=True)
        producer = Producer(
            self.cluster, self.promises, "producer", AT, acks=-1, once=True, batches=5
        )
        await producer.run()

    def _until(self, done) -> None:
        self.cluster.wait(lambda: done() or bool(self.cluster.complaints))


def test_the_play_rolls_a_segment_and_keeps_its_promises():
    play = Play(None, power_cut=False)
    assert play.run() == []
    assert play.operations > 80
    logs = [path for path, _ in play.node.disk.walk() if path.endswith(".log")]
    assert len([path for path in logs if TOPIC in path]) >= 2


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("power_cut", [False, True], ids=["crash", "power cut"])
def test_a_crash_before_any_operation_breaks_no_promise(power_cut, part):
    whole = Play(None, power_cut=False)
    whole.run()
    for number in range(part, whole.operations, PARTS):
        complaints = Play(number, power_cut).run()
        assert complaints == [], f"crash before operation {number}"
