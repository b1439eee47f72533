"""Regular expressions whose matching time grows linearly with the text.

A client chooses the text, so a pattern must not be able to hold the event loop: Python's `re` tries
alternatives one after another, which can take forever. This one follows all of them at once
(Thompson's method), in the order of preference that `re` has, so groups get the same values. It takes
what names need: characters, classes, `.`, groups, `|`, `* + ? {m,n}` (also lazy), `^` and `$`.
"""

import re
from typing import Any, NamedTuple

from headwater.config.keys import ConfigError

MAX_STEPS = 2000
"""The most steps of a pattern, with its counted repeats written out."""

_parser: Any = re._parser  # type: ignore[attr-defined]
_constants: Any = re._constants  # type: ignore[attr-defined]
_FOREVER = _constants.MAXREPEAT

CHAR, SPLIT, JUMP, SAVE, AT_START, AT_END, MATCH = range(7)


class _Step(NamedTuple):
    kind: int
    pattern: re.Pattern[str] | None = None
    """For CHAR: matches the character."""
    first: int = 0
    """Where to go on, or the slot of SAVE."""
    second: int = 0


class LinearRegex:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        try:
            tree = _parser.parse(pattern)
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as problem:
            raise ConfigError(f"the pattern {pattern!r} cannot be read: {problem}") from None
        self._steps: list[_Step] = []
        self._pattern = pattern
        if tree.state.flags & ~re.UNICODE:
            raise self._flags()
        self.groups = tree.state.groups
        """The number of groups, the whole match included."""
        self._compile(tree)
        self._add(MATCH)

    def match_whole(self, text: str) -> list[str] | None:
        """Return the groups of a match of all of `text`, empty where one took no part; None if none."""
        threads = self._reach([], set(), 0, (-1,) * (2 * self.groups), 0, text)
        for place, character in enumerate(text):
            following: list[tuple[int, tuple[int, ...]]] = []
            seen: set[int] = set()
            for at, slots in threads:
                step = self._steps[at]
                if step.pattern is not None and step.pattern.match(character):
                    self._reach(following, seen, at + 1, slots, place + 1, text)
            threads = following
            if not threads:
                return None
        for at, slots in threads:
            if self._steps[at].kind == MATCH:
                inner = (
                    text[slots[2 * group] : slots[2 * group + 1]]
                    if slots[2 * group + 1] >= 0
                    else ""
                    for group in range(1, self.groups)
                )
                return [text, *inner]
        return None

    def _reach(
        self,
        threads: list[tuple[int, tuple[int, ...]]],
        seen: set[int],
        start: int,
        slots: tuple[int, ...],
        place: int,
        text: str,
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Add the steps that read a character or end, as far as they are reached from `start`."""
        todo = [(start, slots)]
        while todo:
            at, slots = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            step = self._steps[at]
            if step.kind in (CHAR, MATCH):
                threads.append((at, slots))
            elif step.kind == JUMP:
                todo.append((step.first, slots))
            elif step.kind == SPLIT:
                todo += [(step.second, slots), (step.first, slots)]
            elif step.kind == SAVE:
                todo.append((at + 1, (*slots[: step.first], place, *slots[step.first + 1 :])))
            elif place == (0 if step.kind == AT_START else len(text)):
                todo.append((at + 1, slots))
        return threads

    # -- compiling

    def _add(self, kind: int, **parts: Any) -> int:
        if len(self._steps) >= MAX_STEPS:
            raise ConfigError(f"the pattern {self._pattern!r} is too long: simplify it")
        self._steps.append(_Step(kind, **parts))
        return len(self._steps) - 1

    def _patch(self, at: int, first: int, second: int = 0) -> None:
        self._steps[at] = self._steps[at]._replace(first=first, second=second)

    def _compile(self, tree: Any) -> None:
        for operator, argument in tree:
            compiler = _COMPILERS.get(str(operator))
            if compiler is None:
                raise ConfigError(
                    f"the pattern {self._pattern!r} has {str(operator).lower()}, which is not "
                    "supported: use characters, classes, groups, alternatives and repeats"
                )
            compiler(self, operator, argument)

    def _character(self, operator: Any, argument: Any) -> None:
        self._add(CHAR, pattern=_one_character(operator, argument))

    def _group(self, operator: Any, argument: Any) -> None:
        number, add_flags, del_flags, inner = argument
        if add_flags or del_flags:
            raise self._flags()
        if number is not None:
            self._add(SAVE, first=2 * number)
        self._compile(inner)
        if number is not None:
            self._add(SAVE, first=2 * number + 1)

    def _flags(self) -> ConfigError:
        return ConfigError(f"the pattern {self._pattern!r} has flags, which are not supported")

    def _branch(self, operator: Any, argument: Any) -> None:
        ends = []
        for rank, inner in enumerate(argument[1]):
            last = rank == len(argument[1]) - 1
            fork = None if last else self._add(SPLIT)
            self._compile(inner)
            if fork is not None:
                ends.append(self._add(JUMP))
                self._patch(fork, first=fork + 1, second=len(self._steps))
        for end in ends:
            self._patch(end, first=len(self._steps))

    def _repeat(self, operator: Any, argument: Any) -> None:
        least, most, inner = argument
        lazy = operator is _constants.MIN_REPEAT
        for _ in range(least):
            self._compile(inner)
        if most is _FOREVER:
            fork = self._add(SPLIT)
            self._compile(inner)
            self._add(JUMP, first=fork)
            self._fork(fork, lazy)
            return
        forks = []
        for _ in range(most - least):
            forks.append(self._add(SPLIT))
            self._compile(inner)
        for fork in forks:
            self._fork(fork, lazy)

    def _fork(self, fork: int, lazy: bool) -> None:
        inside, after = fork + 1, len(self._steps)
        self._patch(fork, first=after if lazy else inside, second=inside if lazy else after)

    def _place(self, operator: Any, argument: Any) -> None:
        start = argument in (_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING)
        if not start and argument not in (_constants.AT_END, _constants.AT_END_STRING):
            raise ConfigError(f"the pattern {self._pattern!r} has a word boundary: leave it out")
        self._add(AT_START if start else AT_END)


_COMPILERS = {
    "LITERAL": LinearRegex._character,
    "NOT_LITERAL": LinearRegex._character,
    "ANY": LinearRegex._character,
    "IN": LinearRegex._character,
    "SUBPATTERN": LinearRegex._group,
    "BRANCH": LinearRegex._branch,
    "MAX_REPEAT": LinearRegex._repeat,
    "MIN_REPEAT": LinearRegex._repeat,
    "AT": LinearRegex._place,
}


def _one_character(operator: Any, argument: Any) -> re.Pattern[str]:
    """Return a pattern for exactly this element, so that `re` decides what a class contains."""
    name = str(operator)
    if name == "ANY":
        return re.compile(".")
    if name in ("LITERAL", "NOT_LITERAL"):
        escaped = re.escape(chr(argument))
        return re.compile(f"[^{escaped}]" if name == "NOT_LITERAL" else escaped)
    return re.compile(_class_text(argument), re.DOTALL)


def _class_text(items: Any) -> str:
    parts = []
    for operator, argument in items:
        name = str(operator)
        if name == "NEGATE":
            parts.append("^")
        elif name == "LITERAL":
            parts.append(re.escape(chr(argument)))
        elif name == "RANGE":
            parts.append(f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}")
        else:
            parts.append(_CATEGORIES[str(argument)])
    return f"[{''.join(parts)}]"


_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S", "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip
