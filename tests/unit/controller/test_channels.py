"""The way to each broker: in order, one at a time, always answered."""

from collections.abc import Callable
from typing import Any

import pytest

from headwater.controller.channel_loop import Channels, error_of
from headwater.errors import E
from headwater.wire.messages.control import (
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tests.unit.controller.fake_loop import FakeLoop, no_other_broker


class SlowBroker:
    def __init__(self) -> None:
        self.taken: list[tuple[Any, Callable[[Any], None]]] = []

    def receive(self, message: Any, reply: Callable[[Any], None]) -> None:
        self.taken.append((message, reply))


@pytest.fixture
def loop():
    return FakeLoop()


def message(epoch: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_epoch=epoch)


def test_the_next_message_waits_for_the_answer_to_the_last(loop):
    broker, channels = SlowBroker(), Channels(loop.call_soon, no_other_broker)
    channels.attach(1, broker.receive)
    answers: list[Any] = []
    channels.send(1, message(1), answers.append)
    channels.send(1, message(2), answers.append)
    assert broker.taken == [], "nothing happens inside the call"
    loop.run()
    assert [one.controller_epoch for one, _ in broker.taken] == [1]
    broker.taken[0][1](UpdateMetadataResponse())
    loop.run()
    assert [one.controller_epoch for one, _ in broker.taken] == [1, 2]
    assert len(answers) == 1


def test_an_unknown_broker_answers_with_none_later(loop):
    answers: list[Any] = []
    Channels(loop.call_soon, no_other_broker).send(1, message(1), answers.append)
    assert answers == []
    loop.run()
    assert answers == [None]


def test_a_broker_out_of_reach_answers_what_was_queued_with_none(loop):
    broker, channels = SlowBroker(), Channels(loop.call_soon, no_other_broker)
    channels.attach(1, broker.receive)
    answers: list[Any] = []
    for epoch in (1, 2, 3):
        channels.send(1, message(epoch), answers.append)
    loop.run()
    channels.detach(1)
    broker.taken[0][1](UpdateMetadataResponse())
    loop.run()
    assert answers == [UpdateMetadataResponse(), None, None]


def test_a_receiver_that_raises_does_not_stop_the_channel(loop, caplog):
    def broken(message: Any, reply: Any) -> None:
        raise RuntimeError("no disk")

    channels = Channels(loop.call_soon, no_other_broker)
    channels.attach(1, broken)
    answers: list[Any] = []
    channels.send(1, message(1), answers.append)
    channels.send(1, message(2), answers.append)
    loop.run()
    assert answers == [None, None]
    assert "no disk" in caplog.text


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (None, E.BROKER_NOT_AVAILABLE),
        (UpdateMetadataResponse(), E.NONE),
        (UpdateMetadataResponse(error_code=11), E.STALE_CONTROLLER_EPOCH),
        (
            StopReplicaResponse(
                partition_errors=[StopReplicaResponse.StopReplicaPartitionError(error_code=56)]
            ),
            E.KAFKA_STORAGE_ERROR,
        ),
        (
            LeaderAndIsrResponse(
                topics=[
                    LeaderAndIsrResponse.LeaderAndIsrTopicError(
                        partition_errors=[
                            LeaderAndIsrResponse.LeaderAndIsrPartitionError(error_code=56)
                        ]
                    )
                ]
            ),
            E.KAFKA_STORAGE_ERROR,
        ),
        (UpdateMetadataResponse(error_code=9999), E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_the_first_error_of_a_response_counts(response, error):
    assert error_of(response) is error
