"""The results of one action on several items: what was done, and one error for what was refused."""

from collections.abc import Awaitable, Callable

import click

from headwater.cli.output import show_json
from headwater.client.admin.calls import prefixed
from headwater.errors import E, KafkaError


class ItemResults:
    """Runs an action on items of one kind; an error of one item does not stop the others."""

    def __init__(self, kind: str, done: str, accepted: E = E.NONE) -> None:
        self._kind = kind
        self._done = done
        self._accepted = accepted
        self._rows: list[dict[str, object]] = []
        self._refused: list[KafkaError] = []

    async def attempt(
        self,
        name: str,
        work: Awaitable[None],
        hint: Callable[[KafkaError], str] = lambda refused: "",
    ) -> None:
        """Await `work` on the item `name`; keep an error for the end."""
        try:
            await work
        except KafkaError as refused:
            if refused.code is not self._accepted:
                code = f" ({refused.code.name})"
                code = "" if code in refused.message else code
                text = f"{prefixed(name, refused.message)}{code}{hint(refused)}"
                self._refused.append(KafkaError(refused.code, text))
                return
            self._rows.append({self._kind: name, self._done: False})
        else:
            self._rows.append({self._kind: name, self._done: True})

    def show(self, as_json: bool) -> None:
        """Print the results, then raise the errors."""
        if as_json and self._rows:
            show_json(self._rows)
        for row in self._rows if not as_json else ():
            click.echo(f"{row[self._kind]}: {self._done if row[self._done] else 'nothing to do'}")
        if self._refused:
            said = "; ".join(problem.message for problem in self._refused)
            raise KafkaError(self._refused[0].code, said)
