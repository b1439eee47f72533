"""The errors of a coordinator whose log refuses its records."""

from headwater.errors import E, KafkaError

FAULTS_OF_PRODUCERS = frozenset({E.INVALID_PRODUCER_EPOCH})
"""Errors of appends that say nothing about the log."""


def as_coordinator_error(failure: KafkaError) -> KafkaError:
    """Map an error to a coordinator error: retry here, find the coordinator again, or fail."""
    if failure.code in (
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ):
        return KafkaError(E.COORDINATOR_NOT_AVAILABLE, failure.message)
    if failure.code in (E.NOT_LEADER_OR_FOLLOWER, E.KAFKA_STORAGE_ERROR):
        return KafkaError(E.NOT_COORDINATOR, failure.message)
    if failure.code in (E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE, E.INVALID_FETCH_SIZE):
        return KafkaError(E.UNKNOWN_SERVER_ERROR, failure.message)
    return failure
