"""A broker asks the controller to take over what it leads, and says what nobody takes over."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.broker import controlled_shutdown_loop
from headwater.broker.controlled_shutdown_loop import ATTEMPTS, hand_over_leadership
from headwater.controller.commands import ControlledShutdown, HandoverAnswer
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from headwater.wire.messages.control import ControlledShutdownResponse


class Asked:
    """A broker among others, and the controller that answers it."""

    def __init__(self, *answers: Any, controller_id: int = 1, brokers: int = 2) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[int, int]] = []
        self.closed = 0
        self.node_id = 1
        self.settings = SimpleNamespace(controlled_shutdown_enable=True)
        self.metadata = SimpleNamespace(
            controller_id=controller_id, brokers=range(brokers), partition=self.partition
        )
        self.replicas: list[Any] = []
        self.assigned: dict[TopicPartition, list[int]] = {}
        self.control = SimpleNamespace(broker_epoch=40)
        self.controller = self.peers = self

    def lead(self, topic: str, index: int, replicas: list[int]) -> None:
        at = TopicPartition(topic, index)
        self.replicas.append(SimpleNamespace(topic_partition=at, is_leader=True))
        self.assigned[at] = replicas

    def partition(self, topic: str, index: int) -> Any:
        return SimpleNamespace(replicas=self.assigned[TopicPartition(topic, index)])

    def submit(self, command: Any, reply: Any) -> None:
        self.requests.append((command.broker_id, command.broker_epoch))
        asyncio.get_running_loop().call_soon(reply, self.answers.pop(0))

    def open(self, broker_id: int, purpose: str) -> "Asked":
        assert broker_id == self.metadata.controller_id
        return self

    def send(self, request: Any, answer: type, on_reply: Any, *, timeout_ms: int) -> None:
        self.requests.append((request.broker_id, request.broker_epoch))
        asyncio.get_running_loop().call_soon(on_reply, self.answers.pop(0))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(controlled_shutdown_loop, "PAUSE_S", 0)


def stop(asked: Asked) -> None:
    asyncio.run(hand_over_leadership(asked))  # type: ignore[arg-type]


def test_a_local_controller_is_asked_in_this_process(caplog):
    asked = Asked(HandoverAnswer(remaining=[TopicPartition("orders", 3)]))
    stop(asked)
    assert asked.requests == [(1, 40)]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "orders-3" in record.getMessage()


def test_another_controller_is_asked_until_one_answers(caplog):
    row = ControlledShutdownResponse.RemainingPartition(topic_name="t", partition_index=7)
    asked = Asked(
        KafkaError(E.NETWORK_EXCEPTION, "gone"),
        ControlledShutdownResponse(error_code=E.NOT_CONTROLLER),
        ControlledShutdownResponse(remaining_partitions=[row]),
        controller_id=0,
    )
    stop(asked)
    assert asked.requests == [(1, 40)] * 3
    assert asked.closed == 3
    assert "t-7" in caplog.text


def test_a_broker_that_nobody_answers_stops_all_the_same(caplog):
    asked = Asked(*[HandoverAnswer(E.NOT_CONTROLLER)] * ATTEMPTS)
    stop(asked)
    assert not asked.answers
    assert "stopping without handing over" in caplog.text
    stop(Asked(controller_id=-1))
    assert "no controller is known" in caplog.text


def test_partitions_without_another_replica_are_named_too(caplog):
    caplog.set_level("INFO")
    asked = Asked(HandoverAnswer())
    asked.lead("solo", 0, [1])
    asked.lead("orders", 0, [1, 2])
    stop(asked)
    (record,) = caplog.records
    assert "no leader until this broker returns: solo-0" in record.getMessage()
    assert "orders" not in record.getMessage()


def test_a_handover_that_takes_too_long_is_not_taken_for_one_that_ended(caplog):
    command = ControlledShutdown(1, 40)
    late = KafkaError(E.REQUEST_TIMED_OUT, "begun, not finished")
    asked = Asked(command.overdue(HandoverAnswer(), late))
    stop(asked)
    assert len(asked.requests) == 1
    assert "stopping without handing over what this broker leads: REQUEST_TIMED_OUT" in caplog.text


def test_a_broker_alone_asks_nobody():
    asked = Asked(brokers=1)
    stop(asked)
    asked.metadata.brokers, asked.settings.controlled_shutdown_enable = range(2), False
    stop(asked)
    assert asked.requests == []
