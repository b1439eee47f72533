"""The error table against kio's, which was generated from Kafka's own."""

import pytest
from kio.schema.errors import ErrorCode

from headwater.errors import E, KafkaError


@pytest.mark.parametrize("theirs", list(ErrorCode), ids=lambda code: code.name)
def test_a_code_has_kafkas_number_and_may_be_retried_when_kafka_says_so(theirs: ErrorCode) -> None:
    ours = E(theirs.value)
    assert ours.retriable is theirs.retriable


def test_codes_are_contiguous_from_minus_one() -> None:
    assert sorted(E) == list(range(-1, max(E) + 1))


def test_each_text_is_one_sentence_of_its_own() -> None:
    texts = [row.text for row in E]
    assert len(set(texts)) == len(texts)
    for row in E:
        assert row.text == row.text.strip().rstrip(".")
        assert row.text.lower() != row.name.lower().replace("_", " ")


def test_an_error_without_a_message_says_the_text_of_its_row() -> None:
    assert KafkaError(E.NON_EMPTY_GROUP).message == E.NON_EMPTY_GROUP.text
    assert KafkaError(E.NON_EMPTY_GROUP, "two members").message == "two members"
