"""The options of one of Kafka's scripts, and which of them a new line covers."""

from collections.abc import Sequence

_IMPLIED = (
    *("--create", "--alter", "--describe", "--execute", "--verbose", "--exclude-internal"),
    *("--new-consumer", "--offsets", "--deep-iteration", "--print-data-log", "--time", "--help"),
    *("--zookeeper", "--authorizer-properties", "--show-detailed-stats", "--enable-systest-events"),
)
"""Options that need no word in the new line."""


class ScriptOptions:
    """The options of a script with their values; remembers which ones the new line covers."""

    def __init__(self, words: Sequence[str]) -> None:
        self._values: dict[str, list[str]] = {}
        self._covered = set(_IMPLIED)
        option = ""
        for word in words:
            name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
            if word.startswith("--"):
                option = name
                self._values.setdefault(option, []).extend([value] if equals else [])
            else:
                self._values.setdefault(option, []).append(word)

    def rename(self, option: str, new: str) -> None:
        """Give the values of an option another name."""
        if option in self._values:
            self._values[new] = self._values.pop(option)

    def __contains__(self, option: str) -> bool:
        self._covered.add(option)
        return option in self._values

    def values(self, *options: str) -> list[str]:
        """Return the values of all these options."""
        self._covered.update(options)
        return [value for option in options for value in self._values.get(option, ())]

    def first(self, option: str, otherwise: str) -> str:
        """Return the first value of an option."""
        return next(iter(self.values(option)), otherwise)

    def each(self, option: str, ours: str) -> list[str]:
        """Return the values of an option, each behind our name of it."""
        return [word for value in self.values(option) for word in (ours, value)]

    def word(self, known: Sequence[str]) -> str:
        """Remove and return the first of the known words, wherever it was typed; empty without one."""
        for values in self._values.values():
            for value in values:
                if value in known:
                    values.remove(value)
                    return value
        return ""

    def flag(self, option: str) -> list[str]:
        """Return the option itself if it was given."""
        return [option] if option in self else []

    def properties(self, known: Sequence[str], *options: str) -> dict[str, str]:
        """Return the KEY=VALUE pairs of these options; an unknown key stays uncovered."""
        pairs = {}
        for text in self.values(*options):
            key, _, value = text.partition("=")
            pairs[key] = value
            if key not in known:
                self._values.setdefault(f"--property {text}", [])
        return pairs

    def starting(self, *prefixes: str) -> list[str]:
        """Return the options with one of these prefixes and their values."""
        found = [option for option in self._values if option.startswith(prefixes)]
        return [word for option in found for word in (option, *self.values(option))]

    def left_out(self) -> list[str]:
        """Return the options that the new line does not cover, as they were typed."""
        return [
            " ".join([option, *values])
            for option, values in self._values.items()
            if option and option not in self._covered
        ]
