"""Writes src/headwater/config/client_options.py: the settings of clients as typed keywords.

python -m tools.client_options            writes the module
python -m tools.client_options --check    exits with status 1 if it is out of date
"""

import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from headwater.config.client import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from headwater.config.client_oauth import PROVIDERS
from headwater.config.client_tls import ALIASES
from headwater.config.keys import BOOLEAN, DOUBLE, INT, LIST, LONG, PASSWORD, SHORT, STRING, Key
from headwater.config.profiles import PROFILES

MODULE = Path(__file__).parent.parent / "src" / "headwater" / "config" / "client_options.py"

_HEAD = '''"""The settings of clients as keyword arguments, for editors and type checkers.

Written from the tables in `config/client.py` by `python -m tools.client_options`; do not edit.
"""

from collections.abc import Sequence
from typing import Literal, Required, TypedDict

from headwater.config.client_oauth import TokenProvider
'''

_REQUIRED = "bootstrap.servers"
_TYPES = {
    INT: "int",
    LONG: "int",
    SHORT: "int",
    DOUBLE: "float",
    BOOLEAN: "bool",
    STRING: "str",
    LIST: "str | Sequence[str]",
    PASSWORD: "str",
}
_WIDTH = 96
_INDENT = "    "


def module() -> str:
    """Return the text of the module."""
    common = ClientSettings.KEYS
    named = {**common} | {alias: common[name].called(alias) for alias, name in ALIASES.items()}
    profile = _row(
        "profile",
        _literal(tuple(PROFILES)),
        "A set of values that suits one purpose; settings given beside it win.",
    )
    profile += "\n" + "\n".join(_row(name, "TokenProvider", PROVIDERS[name]) for name in PROVIDERS)
    parts = [
        _HEAD,
        _class("ClientOptions", "TypedDict", "Settings of every client.", named, profile),
    ]
    for name, settings in (
        ("AdminOptions", AdminSettings),
        ("ProducerOptions", ProducerSettings),
        ("ConsumerOptions", ConsumerSettings),
    ):
        own = {key: row for key, row in settings.KEYS.items() if key not in common}
        role = name.removesuffix("Options").lower()
        article = "an" if role[0] == "a" else "a"
        parts.append(_class(name, "ClientOptions", f"Settings of {article} {role}.", own))
    return "\n\n".join(parts)


def _class(name: str, base: str, doc: str, keys: Mapping[str, Key], first: str = "") -> str:
    lines = [f"class {name}({base}, total=False):", f'{_INDENT}"""{doc}"""', ""]
    lines += [first] if first else []
    for row in keys.values():
        lines.append(f"{_INDENT}{row.attribute}: {_type(row)}")
        lines.append(_doc(row.explanation))
    return "\n".join(lines) + "\n"


def _row(name: str, type_name: str, doc: str) -> str:
    return f"{_INDENT}{name}: {type_name}\n{_doc(doc)}"


def _type(row: Key) -> str:
    found = _literal(row.one_of) if row.one_of and row.type is not LIST else _TYPES[row.type]
    return f"Required[{found}]" if row.name == _REQUIRED else found


def _literal(names: tuple[str, ...]) -> str:
    """Return the allowed names as a type; numeric names may be numbers too."""
    numbers = [name for name in names if name.lstrip("-").isdigit()]
    return f"Literal[{', '.join([*(f'{chr(34)}{name}{chr(34)}' for name in names), *numbers])}]"


def _doc(text: str) -> str:
    quoted = f'"""{text}"""'
    return textwrap.fill(
        quoted, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
    )


def outdated() -> bool:
    """Return whether the module is out of date."""
    return not MODULE.exists() or MODULE.read_text() != module()


def main() -> None:
    """Write the module, or compare it."""
    if "--check" not in sys.argv[1:]:
        MODULE.write_text(module())
    elif outdated():
        sys.exit(f"{MODULE.name} is out of date: run python -m tools.client_options")


if __name__ == "__main__":
    main()
