"""`headwater consume` without a broker."""

import os
from types import SimpleNamespace

import pytest

from headwater.cli.consume import _print
from headwater.client.consumer.record import ConsumerRecord


class Consumer:
    """Has one record; then `then` is called, and nothing follows."""

    settings = SimpleNamespace(max_poll_records=500, group_id=None)

    def __init__(self, then) -> None:
        self.polls, self._then = 0, then

    def poll(self, timeout_s: float, limit: int | None) -> list[ConsumerRecord]:
        self.polls += 1
        if self.polls == 1:
            return [ConsumerRecord("t", 0, 0, 0, 0, b"k", b"v", ())]
        self._then()
        assert self.polls < 5
        return []


def test_follow_ends_when_the_reader_of_its_output_is_gone(monkeypatch) -> None:
    reader, writer = os.pipe()
    with open(reader, "rb") as head, open(writer, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        consumer = Consumer(head.close)
        with pytest.raises(BrokenPipeError):
            _print(consumer, None, True, None, lambda record: record.value)
        assert consumer.polls == 2
