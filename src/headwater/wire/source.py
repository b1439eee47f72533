"""Python source under construction: indented lines, unique names, and the objects they refer to.

Decoder and encoder generate their functions with it. The code is meant to be fast; people see it
only in a debugger.
"""

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headwater.wire.fields import Field
from headwater.wire.schema import Struct


class FunctionSource:
    """One function being written for one version of one message."""

    def __init__(self, kind: type[Struct], version: int, verb: str, scope: dict[str, Any]) -> None:
        schema = kind.__schema__
        self.version = version
        self.flexible = schema.flexible.holds(version)
        self.title = f"{schema.name} v{version}"
        self.scope = scope
        self._file = f"<{verb} {self.title}>"
        self._lines: list[str] = []
        self._depth = 0
        self._made = 0

    def line(self, text: str) -> None:
        """Add one line at the current depth."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add `head`, and indent what is added inside."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, stem: str) -> str:
        """Return a variable name that nothing else uses."""
        self._made += 1
        return f"{stem}{self._made}"

    def refer(self, stem: str, value: object) -> str:
        """Return a name that refers to `value` in the function."""
        name = self.name(stem)
        self.scope[name] = value
        return name

    def layout(self, codes: str, method: str) -> str:
        """Return a name for a method of the struct with these codes."""
        stem = "_".join((method, *codes)).replace("?", "t")
        if stem not in self.scope:
            self.scope[stem] = getattr(struct.Struct(">" + codes), method)
        return stem

    def compact(self, field: Field) -> bool:
        """Return whether lengths of this field are varints."""
        return self.flexible and not field.never_compact

    def fields(self, kind: type[Struct]) -> tuple[list[Field], list[Field], list[Field]]:
        """Return the struct's fields in this version: plain, tagged (by tag), and absent."""
        plain, tagged, absent = [], [], []
        for field in kind.__schema__.fields:
            if not field.versions.holds(self.version):
                absent.append(field)
            elif field.tag is None:
                plain.append(field)
            else:
                tagged.append(field)
        return plain, sorted(tagged, key=lambda f: f.tag or 0), absent

    def default(self, field: Field) -> str:
        """Return an expression for the field's default."""
        if field.default is None or isinstance(field.default, bool | int | float | str | list):
            return repr(field.default)
        return self.refer("default", field.default)

    def function(self, name: str) -> Callable[..., Any]:
        """Compile the function; tracebacks can show its source."""
        text = "\n".join(self._lines) + "\n"
        linecache.cache[self._file] = (len(text), None, text.splitlines(True), self._file)
        exec(compile(text, self._file, "exec"), self.scope)
        made: Callable[..., Any] = self.scope[name]
        return made
