"""The ACLs in the store, version by version, what each allowed, and which of them a broker knows.

The rules are written down once more here, as plainly as possible, for topics only.
"""

import json
from bisect import bisect_right
from typing import NamedTuple

from headwater.controller.store.tree import Edit, Made, Removed, Wrote
from headwater.security.acl_index import AclIndex
from headwater.security.acls import AclFilter, AclResourceType
from simulator.loop import Scheduler

LITERAL, PREFIXED = "/kafka-acl/Topic/", "/kafka-acl-extended/prefixed/Topic/"
LAG_US = 2_000_000
"""How long a change takes at most to reach every broker of a cluster without troubles."""


class Entry(NamedTuple):
    """One ACL of a topic, as it is stored."""

    path: str
    principal: str
    host: str
    operation: str
    permission: str


class Question(NamedTuple):
    """Whether a user may do something with a topic."""

    user: str
    operation: str
    topic: str


_Version = frozenset[Entry]


class AclHistory:
    """All versions, and the oldest that each broker may still act by."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._versions: list[_Version] = [frozenset()]
        self._times_us = [0]
        self._known: dict[str, list[tuple[int, int]]] = {}
        """By broker: when it knew which version; both only grow."""
        self.calm_since_us: int | None = None
        """Since when every broker hears of changes in time."""

    @property
    def newest(self) -> int:
        """The number of the version in the store."""
        return len(self._versions) - 1

    def edited(self, edit: Edit) -> None:
        """Follow a change of the store."""
        if not isinstance(edit, Made | Wrote | Removed):
            return
        if not edit.path.startswith((LITERAL, PREFIXED)):
            return
        rest = frozenset(one for one in self._versions[-1] if one.path != edit.path)
        found = () if isinstance(edit, Removed) else _entries(edit.path, edit.data)
        self._versions.append(rest.union(found))
        self._times_us.append(self._scheduler.now_us)

    # -- what brokers know

    def answered(self, host: str, version: int) -> None:
        """A broker has answered an administrator: it acts by this version or a newer one."""
        known = self._known.setdefault(host, [])
        if not known or version > known[-1][1]:
            known.append((self._scheduler.now_us, version))

    def oldest(self, host: str, at_us: int | None = None) -> int:
        """Return the oldest version that a broker may have acted by at a time, by default now."""
        then_us = self._scheduler.now_us if at_us is None else at_us
        answered = self._known.get(host, ())
        oldest = max((version for known_us, version in answered if known_us <= then_us), default=0)
        calm_us, until_us = self.calm_since_us, then_us - LAG_US
        if calm_us is not None and until_us >= calm_us:
            oldest = max(oldest, bisect_right(self._times_us, until_us) - 1)
        return oldest

    # -- what was stored

    def first(self, since: int, entry: Entry, *, present: bool) -> int | None:
        """Return the first version from `since` on that has, or has not, an ACL."""
        for number in range(since, self.newest + 1):
            if (entry in self._versions[number]) is present:
                return number
        return None

    def has(self, entry: Entry) -> bool:
        """Whether an ACL is in the store now."""
        return entry in self._versions[-1]

    def differs(self, index: AclIndex) -> bool:
        """Whether the ACLs of a broker are not those in the store now."""
        found = {
            (row[0].name, row[1].principal, row[1].host)
            for row in index.select(AclFilter(AclResourceType.TOPIC))
            if row is not None
        }
        stored = {
            (one.path.rpartition("/")[2], one.principal, one.host) for one in self._versions[-1]
        }
        return found != stored

    def somebody(self, question: Question, since: int) -> bool:
        """Whether a version from `since` on allows it."""
        return any(_allows(one, question) for one in self._versions[since:])

    def everybody(self, question: Question, since: int) -> bool:
        """Whether all versions from `since` on allow it."""
        return all(_allows(one, question) for one in self._versions[since:])


def _entries(path: str, data: bytes) -> list[Entry]:
    rows = json.loads(data)["acls"] if data else []
    return [
        Entry(path, row["principal"], row["host"], row["operation"], row["permissionType"])
        for row in rows
    ]


def _allows(version: _Version, question: Question) -> bool:
    """Deny wins; without any ACL nothing is allowed. An ACL for one address is for nobody here."""
    user, operation, topic = question
    permissions = {
        entry.permission
        for entry in version
        if entry.principal == f"User:{user}"
        and entry.host == "*"
        and entry.operation in (operation, "All")
        and _covers(entry.path, topic)
    }
    return permissions == {"Allow"}


def _covers(path: str, topic: str) -> bool:
    if path.startswith(LITERAL):
        return path.removeprefix(LITERAL) in (topic, "*")
    return topic.startswith(path.removeprefix(PREFIXED))
