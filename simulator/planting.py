"""What a planted bug of a cluster is: the mistake, and the runs that look for it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

Planting: TypeAlias = Callable[[], AbstractContextManager[None]]


class ClusterBug(NamedTuple):
    """A mistake, and the troubles, victims and plans that bring it to light soonest."""

    plant: Planting
    kinds: tuple[str, ...]
    who: tuple[str, ...] = ("leader",)
    lasts_ms: tuple[int, ...] = ()
    plan: Mapping[str, Any] = MappingProxyType({})
    first: int = 0
    """The first seed that tests try: those before it do not find it."""
