"""No key pretends: what the tables offer is read somewhere, or says that it has no effect."""

import re
from pathlib import Path

import pytest

import headwater
from headwater.config.broker import BrokerSettings
from headwater.config.keys import Key
from headwater.config.resolve import BROKER_SYNONYMS
from headwater.config.topic import TopicSettings

ROOT = Path(headwater.__file__).parent
NOT_A_BROKER = ("cli", "client", "collect", "config", "pipelines")
OUTSIDE = "\n".join(
    file.read_text()
    for file in ROOT.rglob("*.py")
    if not any(file.is_relative_to(ROOT / room) for room in NOT_A_BROKER)
)
READ = set(re.findall(r"\b[a-z_0-9]+\b", OUTSIDE))
READ |= set(re.findall(r"self\.([a-z_]+)", (ROOT / "config" / "broker.py").read_text()))
TOPIC_DEFAULTS = {name for row in TopicSettings.KEYS.values() for name in row.synonyms}
TOPIC_DEFAULTS |= {name for group in BROKER_SYNONYMS for name in group}
ALIASES = {"broker.id", "log.dir"}


@pytest.mark.parametrize("row", TopicSettings.KEYS.values(), ids=lambda row: row.name)
def test_a_topic_key_is_read_or_says_why_not(row: Key) -> None:
    assert (row.attribute in READ) != bool(row.idle)


@pytest.mark.parametrize(
    "row",
    [r for r in BrokerSettings.KEYS.values() if r.name not in TOPIC_DEFAULTS | ALIASES],
    ids=lambda row: row.name,
)
def test_a_broker_key_is_read_or_says_why_not(row: Key) -> None:
    assert (row.attribute in READ) != bool(row.idle)
