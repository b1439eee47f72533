"""Debian's Prometheus, its rules of this project, and what they may name."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from headwater.broker.monitoring.metric_table import HISTOGRAM, METRICS

FOLDER = Path(__file__).parents[2] / "examples" / "monitoring"
RULES = FOLDER / "alerts.yml"
_SUFFIXES = ("_bucket", "_sum", "_count")
_NAME = re.compile(r"\b(?:headwater|process)_\w+\b")
_SELECTOR = re.compile(r"(\w+)\{([^}]*)\}")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)\"")
_BY = re.compile(r"\bby \(([^)]*)\)")
TARGET_LABELS = {"job", "instance", "le"}


def installed(program: str) -> str:
    """The path of a program; the test is skipped without it."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed (sh tools/apt-packages)")
    return found


def rules() -> dict[str, dict]:
    """The alert rules by name."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def problems(expression: str) -> list[str]:
    """The names and labels of an expression that the table of metrics lacks."""
    rows = {row.name: row for row in METRICS}
    for row in METRICS:
        if row.kind == HISTOGRAM:
            del rows[row.name]
            rows |= {row.name + suffix: row for suffix in _SUFFIXES}
    named = _NAME.findall(expression)
    found = [name for name in named if name not in rows]
    known = {label for name in named if name in rows for label in rows[name].labels}
    used = {label for by in _BY.findall(expression) for label in re.split(r",\s*", by)}
    for _, selector in _SELECTOR.findall(expression):
        used |= set(_LABEL.findall(selector))
    return found + sorted(used - known - TARGET_LABELS)
