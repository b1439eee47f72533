"""Regular expressions of clients, matched in time that grows with the expression times the text.

The broker runs what clients send on its only thread, and Python's expressions can take years for forty
letters. These are matched as automata, a few states at a time. The syntax is RE2's, as in Kafka, without
named classes and without flags other than (?i) at the beginning.
"""

from collections.abc import Callable, Generator
from typing import NamedTuple, NoReturn, TypeAlias

MAX_REPEAT = 1000
MAX_STATES = 5_000
MAX_DEPTH = 100
"""The most groups inside each other."""
MAX_KEPT = 100_000
"""The most states in the steps of an automaton that are kept, so as not to compute them again."""
STATES_AT_A_TIME = 2_000
"""How many states are visited before the others get a turn: about a millisecond."""

_Test: TypeAlias = Callable[[str], bool]
_CLASSES: dict[str, _Test] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c == "_" or (c.isascii() and c.isalnum()),
    "s": lambda c: c in " \t\n\r\f",
}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class PatternError(ValueError):
    """The expression cannot be compiled."""


class _State(NamedTuple):
    """A state that reads a letter if it has a test; otherwise it goes on without reading."""

    test: _Test | None
    next: list[int]
    anchor: str = ""


class _Part(NamedTuple):
    """A part of an automaton: its first state, and the empty state at its end."""

    first: int
    last: int


class IdPattern:
    """A compiled expression."""

    def __init__(self, text: str) -> None:
        compiler = _Compiler(text)
        part = compiler.alternatives()
        if not compiler.at_end:
            compiler.fail("unexpected )")
        self._states = compiler.states
        self._last = part.last
        self._begin = self._closure({part.first}, at_begin=True, at_end=False)
        self._begin_and_end = self._closure({part.first}, at_begin=True, at_end=True)
        self._steps: dict[tuple[frozenset[int], str, bool], frozenset[int]] = {}
        self._kept = 0

    def match_in_turns(self, text: str) -> Generator[None, None, bool]:
        """Return whether the whole text matches; yield now and then, so that others get a turn."""
        if not text:
            return self._last in self._begin_and_end
        current, visited = self._begin, 0
        for place, letter in enumerate(text, 1):
            visited += 1 + len(current)
            if visited > STATES_AT_A_TIME:
                visited = 0
                yield
            current = self._step(current, letter, at_end=place == len(text))
            if not current:
                return False
        return self._last in current

    def _step(self, current: frozenset[int], letter: str, *, at_end: bool) -> frozenset[int]:
        key = current, letter, at_end
        found = self._steps.get(key)
        if found is None:
            reached: set[int] = set()
            for number in current:
                state = self._states[number]
                if state.test is not None and state.test(letter):
                    reached.update(state.next)
            found = self._closure(reached, at_begin=False, at_end=at_end)
            self._kept += len(current) + len(found)
            if self._kept <= MAX_KEPT:
                self._steps[key] = found
        return found

    def _closure(self, reached: set[int], *, at_begin: bool, at_end: bool) -> frozenset[int]:
        """Return the states that are reached without reading."""
        waiting, found = list(reached), set(reached)
        while waiting:
            state = self._states[waiting.pop()]
            passes = state.test is None and (
                not state.anchor or (at_begin if state.anchor == "^" else at_end)
            )
            for number in state.next if passes else ():
                if number not in found:
                    found.add(number)
                    waiting.append(number)
        return frozenset(found)


class _Compiler:
    """Reads an expression from left to right, and makes the states of its automaton."""

    def __init__(self, text: str) -> None:
        self.states: list[_State] = []
        self._text = text
        self._place = 0
        self._depth = 0
        self._ignores_case = self._read_if("(?i)")

    @property
    def at_end(self) -> bool:
        return self._place == len(self._text)

    def fail(self, why: str) -> NoReturn:
        raise PatternError(f"{self._text!r}, position {self._place}: {why}")

    # -- reading

    def _peek(self) -> str:
        return "" if self.at_end else self._text[self._place]

    def _read(self) -> str:
        letter = self._peek()
        if not letter:
            self.fail("the expression ends too early")
        self._place += 1
        return letter

    def _read_if(self, text: str) -> bool:
        found = self._text.startswith(text, self._place)
        if found:
            self._place += len(text)
        return found

    # -- states

    def _new(self, test: _Test | None = None, anchor: str = "") -> int:
        if len(self.states) == MAX_STATES:
            self.fail("the expression is too large")
        self.states.append(_State(test, [], anchor))
        return len(self.states) - 1

    def _link(self, number: int, *following: int) -> None:
        self.states[number].next.extend(following)

    def _single(self, test: _Test | None, anchor: str = "") -> _Part:
        first, last = self._new(test, anchor), self._new()
        self._link(first, last)
        return _Part(first, last)

    # -- grammar

    def alternatives(self) -> _Part:
        """Read alternatives, up to a closing parenthesis or the end."""
        parts = [self._sequence()]
        while self._read_if("|"):
            parts.append(self._sequence())
        first, last = self._new(), self._new()
        for part in parts:
            self._link(first, part.first)
            self._link(part.last, last)
        return _Part(first, last)

    def _sequence(self) -> _Part:
        first = last = self._new()
        while not self.at_end and self._peek() not in "|)":
            part = self._repeated()
            self._link(last, part.first)
            last = part.last
        return _Part(first, last)

    def _repeated(self) -> _Part:
        begin = self._place
        part = self._atom()
        limits = self._limits()
        if limits is None:
            return part
        end = self._place
        self._read_if("?")  # a lazy repeat matches the same texts
        if self._limits() is not None:
            self.fail("a repeat of a repeat")
        least, most = limits
        first = last = self._new()
        for count in range(least if most is None else most):
            part = self._again(begin)
            self._link(last, part.first)
            if count >= least:
                self._link(last, part.last)
            last = part.last
        if most is None:
            part = self._again(begin)
            loop = self._new()
            self._link(last, loop)
            self._link(loop, part.first)
            self._link(part.last, loop)
            last = loop
        self._place = end
        self._read_if("?")
        return _Part(first, last)

    def _again(self, begin: int) -> _Part:
        """Compile one more copy of the atom that begins there."""
        self._place = begin
        return self._atom()

    def _limits(self) -> tuple[int, int | None] | None:
        letter = self._peek()
        if letter in _REPEATS:
            self._place += 1
            return _REPEATS[letter]
        if letter != "{":
            return None
        closing = self._text.find("}", self._place)
        low, comma, high = self._text[self._place + 1 : max(closing, 0)].partition(",")
        if closing < 0 or not low.isdecimal() or not (high.isdecimal() or not high):
            return None  # a plain brace
        least = int(low)
        most = least if not comma else int(high) if high else None
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            self.fail("a repeat out of bounds")
        self._place = closing + 1
        return least, most

    def _atom(self) -> _Part:
        letter = self._read()
        if letter == "(":
            return self._group()
        if letter == "[":
            return self._single(self._set())
        if letter == ".":
            return self._single(lambda c: c != "\n")
        if letter in "^$":
            return self._single(None, letter)
        if letter == "\\":
            return self._escaped()
        if letter in _REPEATS:
            self.fail("nothing to repeat")
        return self._single(self._in_any_case(_equals(letter)))

    def _in_any_case(self, test: _Test) -> _Test:
        return (lambda c: test(c.lower()) or test(c.upper())) if self._ignores_case else test

    def _group(self) -> _Part:
        if self._read_if("?P<") or self._read_if("?<"):
            while self._read() != ">":
                pass
        elif self._read_if("?") and not self._read_if(":"):
            self.fail("this kind of group is not supported")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail("too many groups inside each other")
        part = self.alternatives()
        if not self._read_if(")"):
            self.fail("missing )")
        self._depth -= 1
        return part

    def _escaped(self) -> _Part:
        letter = self._read()
        if letter == "A":
            return self._single(None, "^")
        if letter == "z":
            return self._single(None, "$")
        return self._single(self._escape(letter))

    def _escape(self, letter: str) -> _Test:
        known = _CLASSES.get(letter.lower())
        if known is not None:
            return known if letter.islower() else _not(known)
        if letter in _ESCAPES:
            return _equals(_ESCAPES[letter])
        if letter.isalnum():
            self.fail(f"the escape \\{letter} is not supported")
        return _equals(letter)

    def _set(self) -> _Test:
        negated = self._read_if("^")
        tests: list[_Test] = []
        while not tests or self._peek() != "]":
            tests.append(self._range())
        self._read()

        def holds(c: str) -> bool:
            return any(test(c) for test in tests)

        either = self._in_any_case(holds)
        return _not(either) if negated else either

    def _range(self) -> _Test:
        low = self._read()
        if low == "[" and self._peek() == ":":
            self.fail("named classes are not supported")
        if low == "\\":
            low = self._read()
            if low.isalnum():
                return self._escape(low)
        if self._peek() != "-" or self._text[self._place + 1 : self._place + 2] in ("]", ""):
            return _equals(low)
        self._read()
        high = self._read()
        if high == "\\":
            high = self._read()
        if high < low:
            self.fail("a range from a later to an earlier letter")
        return lambda c: low <= c <= high


def _equals(letter: str) -> _Test:
    return lambda c: c == letter


def _not(test: _Test) -> _Test:
    return lambda c: not test(c)
