"""Writes docs/reference from the tables in the code.

python -m tools.reference            writes the pages
python -m tools.reference --check    says which are out of date, exit status 1
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from headwater.broker.apis import SERVED, Access
from headwater.broker.monitoring.metric_table import METRICS
from headwater.config.broker import BrokerSettings
from headwater.config.keys import INT32_MAX, INT64_MAX, Key
from headwater.config.topic import TopicSettings
from headwater.errors import E
from headwater.security.rights import Right
from headwater.wire.apis import API

PAGES = Path(__file__).parent.parent / "docs" / "reference"
_NOTE = "Derived from the tables by `python -m tools.reference`; do not edit.\n"
_LARGE = {INT32_MAX: "2³¹-1", INT64_MAX: "2⁶³-1", sys.float_info.max: "no limit"}


def configs_page() -> str:
    """Return the page with every config key, and the differences from Kafka."""
    both = {**TopicSettings.KEYS, **BrokerSettings.KEYS}
    differing = [row for row in both.values() if row.differs]
    return "\n".join(
        [
            "# Configs\n",
            _NOTE,
            "Names, types, defaults and bounds are those of Kafka 4.3 unless the first table says "
            "otherwise. Set broker keys in a properties file (`headwater up --config FILE`), with "
            "`-o KEY=VALUE`, or while the broker runs with `headwater configs set`; topic keys "
            "with `headwater topics create -c KEY=VALUE` or `headwater configs set --topic`. An "
            "unknown key or a value out of bounds is an error.\n",
            "## Where Headwater differs from Kafka\n",
            _table(
                ("key", "default here", "why"),
                ([r.name, _default(r), r.differs] for r in differing),
            ),
            "## Topic keys\n",
            "A topic that does not set a key takes the broker's; of several broker keys the first "
            "that is set counts. All can be changed while the broker runs.\n",
            _table(
                ("key", "type", "default", "allowed", "broker keys", "what it does"),
                (
                    [*_row(r), ", ".join(map(_code, r.synonyms)), r.explanation]
                    for r in TopicSettings.KEYS.values()
                ),
            ),
            "## Broker keys\n",
            "*read-only* keys change at a restart, *cluster-wide* ones while running, for one "
            "broker or for all. Per-broker beats cluster-wide beats the file beats the default.\n",
            _table(
                ("key", "type", "default", "allowed", "changes", "what it does"),
                ([*_row(r), r.mode.value, r.explanation] for r in BrokerSettings.KEYS.values()),
            ),
        ]
    )


def errors_page() -> str:
    """Return the page with every error code."""
    rows = ([str(int(row)), _code(row.name), _yes(row.retriable), row.text] for row in E)
    return "\n".join(
        [
            "# Errors\n",
            _NOTE,
            "The codes of the Kafka protocol. A client may send the request again where *retry* "
            "says so; clients do that by themselves.\n",
            _table(("code", "name", "retry", "what happened and what to do"), rows),
        ]
    )


def apis_page() -> str:
    """Return the page with every API and its served versions."""
    rows = (
        [
            str(api.key),
            api.name,
            f"{api.served.lowest}-{api.served.highest}",
            _rights(SERVED[api.key].access),
            SERVED[api.key].quota.value,
        ]
        for api in sorted(API.values(), key=lambda api: api.key)
        if api.advertised is not None
    )
    return "\n".join(
        [
            "# APIs\n",
            _NOTE,
            "The requests of the Kafka protocol that a broker answers, and in which versions. Any "
            "other closes the connection. Produce is advertised from version 0, because older "
            "librdkafka stops compressing otherwise, but versions 0-2 close the connection, as "
            "with Kafka 4.\n",
            "*Rights* are the operations on resources that [ACLs](../operations/acls.md) grant: which "
            "of them a request needs is up to what it asks for. *Counts* is what the request takes of "
            "a [quota](../operations/quotas.md); all but those that count nothing count their time, "
            "too. A broker does not start if an API lacks its rights.\n",
            _table(("key", "name", "versions", "rights", "counts"), rows),
        ]
    )


def metrics_page() -> str:
    """Return the page with every metric, and the MBeans of Kafka that it stands for."""
    rows = (
        [
            _code(row.name),
            row.kind,
            ", ".join(map(_code, row.labels)),
            row.help,
            _code(row.mbean) if row.mbean else "",
        ]
        for row in METRICS
    )
    return "\n".join(
        [
            "# Metrics\n",
            _NOTE,
            "What a broker shows at `/metrics`, see [monitoring](../operations/monitoring.md). The "
            "last column has the MBean of a Kafka broker (or consumer) with the same meaning; an "
            "attribute follows after a space. Where Kafka has a rate, take `rate()` of the counter "
            "here.\n",
            _table(("name", "type", "labels", "what it says", "Kafka's MBean"), rows),
        ]
    )


def pages() -> dict[str, str]:
    """File name to content."""
    return {
        "configs.md": configs_page(),
        "errors.md": errors_page(),
        "apis.md": apis_page(),
        "metrics.md": metrics_page(),
    }


def outdated() -> list[str]:
    """Return the pages that are out of date."""
    return [
        name
        for name, text in pages().items()
        if not (PAGES / name).is_file() or (PAGES / name).read_text(encoding="utf-8") != text
    ]


def _rights(access: Access) -> str:
    """Return the rights by resource; for an API that needs none, the reason."""
    rights = [*([access.whole] if access.whole else ()), *access.each]
    if not rights:
        return f"none: {access.open_because}"
    return ", ".join(
        f"{_word(operation)} {_word(resource)}" for operation, resource in _names(rights)
    )


def _names(rights: Iterable[Right]) -> list[tuple[str, str]]:
    found = {(one.operation.name, one.resource_type.name) for one in rights}
    return sorted(found, key=lambda names: names[::-1])


def _word(name: str) -> str:
    """Return a name as Kafka's documentation writes it: ClusterAction."""
    return "".join(part.capitalize() for part in name.split("_"))


def _row(row: Key) -> list[str]:
    bounds = row.bounds() or ("true, false" if row.type.name == "BOOLEAN" else "")
    return [_code(row.name), row.type.name.lower(), _default(row), bounds]


def _default(row: Key) -> str:
    if isinstance(row.default, int | float) and row.default in _LARGE:
        return _LARGE[row.default]
    text = row.text(row.default)
    return _code(text) if text else ("none" if text is None else "empty")


def _code(text: str) -> str:
    return f"`{text}`"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with --check only compare them."""
    stale = outdated()
    if "--check" in arguments:
        for name in stale:
            sys.stderr.write(
                f"docs/reference/{name} is out of date: run python -m tools.reference\n"
            )
        return 1 if stale else 0
    PAGES.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (PAGES / name).write_text(pages()[name], encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
