"""How an ingest reads its topic: where the first run begins, and which options a user may choose."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from headwater.pipelines.ingest.frozen_schema import IngestError
from headwater.pipelines.topic_source.options import NAMES

STARTS: Final = ("earliest", "latest", "committed")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_READS_TOPIC: Final = "an ingest reads its TOPIC alone: name the topic as the argument"
_OWN_OPTIONS: Final = {
    "subscribe": _READS_TOPIC,
    "subscribepattern": _READS_TOPIC,
    "assign": _READS_TOPIC,
    "includeheaders": "dead letters keep the headers of their records, so they are always read",
    "kafka.bootstrap.servers": "name the brokers with --bootstrap-server",
}
"""Why options of the source, in lower case, cannot be chosen."""


def starting(start: str) -> dict[str, str]:
    """Return the source options for the start of the first run."""
    if start in STARTS:
        return {"startingOffsets": start}
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        ways = ", ".join(STARTS)
        raise IngestError(
            f"--from {start}: write {ways} or a time such as 2026-01-31T12:00Z"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    millis = (moment - _EPOCH) // timedelta(milliseconds=1)
    return {
        "startingTimestamp": str(millis),
        "startingOffsetsByTimestampStrategy": "latest",
    }


def source_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return options of the source by their usual names; refuse those that the ingest sets itself."""
    for name in given:
        if name.lower() in _OWN_OPTIONS:
            raise IngestError(f"--option {name}: {_OWN_OPTIONS[name.lower()]}")
    return {NAMES.get(name.lower(), name): value for name, value in given.items()}
