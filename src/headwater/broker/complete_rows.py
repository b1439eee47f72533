"""Checks the table of served APIs when it is imported: a broker does not start with a gap in it.

An API without a row, or with a row that does not say which rights it needs, must not be served: nothing
else would ask for a right before its handler runs.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headwater.security.quotas import QuotaKind
from headwater.security.rights import CLUSTER_ACTION

if TYPE_CHECKING:
    from headwater.broker.apis import ServedApi


def by_key(rows: "Iterable[ServedApi]", apis: Mapping[int, Any]) -> "dict[int, ServedApi]":
    """Return the rows by API key; LookupError for an API of `apis` whose row lacks something."""
    found: dict[int, ServedApi] = {}
    for row in rows:
        if row.api.key in found:
            raise LookupError(f"{row.api.name} has two rows in broker/apis.py: keep one")
        found[row.api.key] = row
        for problem in _problems(row):
            raise LookupError(f"the row of {row.api.name} in broker/apis.py {problem}")
    for key, api in apis.items():
        if key not in found:
            raise LookupError(f"{api.name} has no row in broker/apis.py: add it with its rights")
    return found


def _problems(row: "ServedApi") -> Iterator[str]:
    access = row.access
    needs_right = bool(access.whole or access.each)
    if not needs_right and not access.open_because.strip():
        yield "lists no right: add it, or say in open_because why it needs none"
    if needs_right and access.open_because:
        yield "lists rights and says that it needs none: keep one"
    if (access.whole is None) != (access.of is None):
        yield "has a right to the whole request without its resource, or the reverse"
    if row.before_authentication and needs_right:
        yield "needs a right, which nobody has before authentication"
    if row.is_for_brokers and (access.whole, row.quota) != (CLUSTER_ACTION, QuotaKind.EXEMPT):
        yield "is for brokers alone: it needs ClusterAction and QuotaKind.EXEMPT"
