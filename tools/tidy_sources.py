"""The files that `tools.tidy` reads, each read and parsed once."""

import ast
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "simulator", "tools", "tests", "benchmarks", "examples")
TEXTS = ("*.md", "*.pyx", "*.pxi", "*.pxd", "*.js", "*.sql", "*.yml", "*.sh", "*.toml", "Makefile")
_NOT_OURS = {".venv", ".cache", ".git", ".tools", "build", "dist", "LICENSE"}


class Source(NamedTuple):
    """A Python file."""

    path: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The package directly below headwater, `simulator`, or nothing."""
        parts = self.path.split("/")
        if parts[0] == "simulator":
            return parts[0]
        return parts[2] if parts[:2] == ["src", "headwater"] and len(parts) > 2 else ""

    @property
    def ships(self) -> bool:
        """Whether users get it."""
        return self.path.startswith("src/")


def sources(root: Path = ROOT) -> Iterator[Source]:
    """Every Python file of the project."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            yield Source(str(path.relative_to(root)), text, ast.parse(text))


def texts(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Every other file that people read, with its text."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _NOT_OURS)
        for name in sorted(names):
            if any(fnmatch(name, pattern) for pattern in TEXTS):
                path = Path(folder, name)
                yield str(path.relative_to(root)), path.read_text(encoding="utf-8")
