"""Every error that a user may catch: found in one place, and as good after a pickle as before."""

import copy
import importlib
import pickle
import pkgutil

import pytest

import headwater
import headwater.aio
import headwater.client
from headwater import errors
from headwater.client.consumer.processing.process import ProcessingError
from headwater.client.consumer.record import ConsumerRecord
from headwater.client.offsets_sql import StaleOffsetsError
from headwater.errors import E, KafkaError, error_of
from headwater.model import TopicPartition

RECORD = ConsumerRecord("t", 1, 7, 0, 0, b"k", b"v", ())


def all_classes():
    for found in pkgutil.walk_packages(headwater.client.__path__, "headwater.client."):
        importlib.import_module(found.name)
    classes, seen = [KafkaError], set()
    while classes:
        one = classes.pop()
        classes += one.__subclasses__()
        if one.__module__.startswith(("headwater.client", "headwater.errors")):
            seen.add(one)
    return sorted(seen, key=lambda one: one.__name__)


def made(kind):
    if kind is KafkaError:
        return KafkaError(E.INVALID_TOPIC_EXCEPTION, "words")
    if issubclass(kind, ProcessingError):
        return kind(RECORD, 3)
    if issubclass(kind, StaleOffsetsError):
        return kind("words", TopicPartition("t", 1))
    return kind("words", E.INVALID_TOPIC_EXCEPTION) if hasattr(kind, "CODE") else kind(E.NONE, "w")


@pytest.mark.parametrize("kind", all_classes(), ids=lambda kind: kind.__name__)
def test_an_error_survives_pickle_and_copy(kind) -> None:
    error = made(kind)
    error.__notes__ = ["a note"]
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert (str(again), again.code, again.args) == (str(error), error.code, error.args)
        assert vars(again) == vars(error)


@pytest.mark.parametrize("kind", all_classes(), ids=lambda kind: kind.__name__)
def test_an_error_is_found_in_one_place_and_at_the_top(kind) -> None:
    if not kind.__name__.startswith("_"):
        assert getattr(errors, kind.__name__) is kind
        assert getattr(headwater, kind.__name__) is kind
        assert getattr(headwater.aio, kind.__name__) is kind
        for module in (errors, headwater, headwater.aio):
            assert kind.__name__ in dir(module)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError, match="NoSuchError"):
        errors.NoSuchError  # noqa: B018
    with pytest.raises(AttributeError, match="NoSuchError"):
        headwater.NoSuchError  # noqa: B018


def test_a_code_survives_pickle() -> None:
    assert pickle.loads(pickle.dumps(error_of(6))) is E.NOT_LEADER_OR_FOLLOWER
