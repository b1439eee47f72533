"""Words that `docs/style.md` bans, in code, comments, messages and pages."""

import re
from collections import Counter
from collections.abc import Iterable

BANNED: dict[str, str] = {
    r"anew": "again",
    r"told of": "reported, or received",
    r"stands(?! for\b)": "is, or appears",
    r"mend(?:s|ed|ing)?": "fix, or repair",
    r"whoever": "callers, or the code that",
    r"so many": "N, or as many",
    r"the one (?:that|which|who)": "the noun itself",
    r"(?<!there )is no (?!longer\b|more\b)\w+": "is not a, or has no",
    r"the words? that": "what it does",
    r"should stand": "expected ...",
    r"for ever": "forever",
    r"in silence": "silently",
    r"a hmac": "an HMAC",
    r"says nothing of": "says nothing about",
    r"\w*(?:behaviour|neighbour|honour|colour)\w*": "American spelling",
    r"\w*(?:recogni|seriali|initiali|optimi|synchroni|normali|summari|organi)s(?:e|ed|es|er|ing|ation)s?":
        "American spelling",
}  # fmt: skip
"""Patterns and what to write instead."""

_ANY = re.compile(r"\b(?:" + "|".join(BANNED) + r")\b", re.IGNORECASE)

ABOUT_WORDS = {
    "docs/style.md": "names the words",
    "tools/tidy_words.py": "names the words",
    "tests/unit/test_tidy.py": "tries the rule",
}
"""Files that must mention banned words, and why."""

BEING_REWORDED: dict[str, int] = {
    "tests/unit": 1,
}
"""How many banned words a folder may still have."""


def banned_words(path: str, text: str) -> Iterable[str]:
    """Return the banned words of a file, line by line."""
    if path in ABOUT_WORDS:
        return
    for number, line in enumerate(text.splitlines(), 1):
        for found in _ANY.finditer(line):
            yield f"line {number}: '{found[0]}'; write {_instead(found[0])} (docs/style.md)"


def _instead(word: str) -> str:
    return next(
        text for pattern, text in BANNED.items() if re.fullmatch(pattern, word, re.IGNORECASE)
    )


def folder_of(path: str) -> str:
    """Return the folder to which a file belongs."""
    parts = path.split("/")[:-1]
    return "/".join(parts[: 3 if parts[:1] == ["src"] else 2]) or path


def all_banned_words(files: Iterable[tuple[str, str]]) -> list[str]:
    """Return the banned words of all files, except those that a folder may still have."""
    found: list[tuple[str, str]] = []
    for path, text in files:
        found += [(folder_of(path), f"{path}: {one}") for one in banned_words(path, text)]
    counts = Counter(folder for folder, _ in found)
    return [text for folder, text in found if counts[folder] > BEING_REWORDED.get(folder, 0)]
