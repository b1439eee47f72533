"""No key pretends: what the tables offer is read somewhere, or says that it has no effect.

Read means: taken as an attribute of an object called settings (or of itself, in the settings'
own modules). A word in a comment or a variable of the same name does not count. That a changed
value is looked at again is tested with a broker (tests/unit/broker/test_dynamic_settings.py).
"""

import ast
from pathlib import Path

import pytest

import headwater
from headwater.config.broker import BrokerSettings
from headwater.config.keys import Key
from headwater.config.resolve import BROKER_SYNONYMS
from headwater.config.topic import TopicSettings

ROOT = Path(headwater.__file__).parent
NOT_A_BROKER = ("cli", "client", "collect", "config", "pipelines")


def _reads(tree: ast.AST, owners: set[str]) -> set[str]:
    """Attributes taken from names or attributes called like one of `owners`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if name in owners:
                found.add(node.attr)
    return found


def _looked_up(tree: ast.AST) -> set[str]:
    """Keys that are looked up by name, for one listener."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("of_listener", "value_of", "text"):
                texts = (getattr(argument, "value", None) for argument in node.args)
                found |= {text.replace(".", "_") for text in texts if isinstance(text, str)}
    return found


READ = set()
for file in ROOT.rglob("*.py"):
    room = file.relative_to(ROOT).parts[0]
    if room not in NOT_A_BROKER:
        READ |= _reads(ast.parse(file.read_text()), {"settings", "_settings"})
        READ |= _looked_up(ast.parse(file.read_text()))
READ |= _reads(ast.parse((ROOT / "config" / "broker.py").read_text()), {"self"})
for name in ("broker.py", "tls.py"):
    READ |= _looked_up(ast.parse((ROOT / "config" / name).read_text()))
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
