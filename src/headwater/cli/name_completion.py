"""Completes topic and group names of the command's cluster in a shell."""

import asyncio
import os
from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

_WAIT_S = 1.0

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _from_cluster(path: str) -> Complete:
    """Return a completion over a list of names; empty if no broker responds."""

    def complete(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
        from headwater.cli.client_config import default_bootstrap
        from headwater.cli.reach_broker import admin_for

        async def ask() -> list[str]:
            named = ctx.params.get("bootstrap") or os.environ.get("HEADWATER_BOOTSTRAP")
            async with admin_for(named or default_bootstrap(ctx), _WAIT_S) as admin:
                if path == "topics":
                    return await admin.list_topics()
                return sorted(group.group_id for group in await admin.list_groups())

        try:
            names = asyncio.run(ask())
        except Exception:  # noqa: BLE001 - a shell that completes must not show an error
            return []
        return [CompletionItem(name) for name in names if name.startswith(begun)]

    return complete


TOPIC = _from_cluster("topics")
GROUP = _from_cluster("groups")
