"""A running hash of all events: two runs of one seed must end with the same digest."""

from hashlib import blake2b


class Trace:
    """Everything that the environment of a simulated broker could observe, in order."""

    def __init__(self, *, keep: bool = False) -> None:
        self._hash = blake2b(digest_size=16)
        self.lines: list[str] | None = [] if keep else None
        """The readable form, to find where two runs diverge."""

    def note(self, text: str, data: bytes = b"") -> None:
        """Add one event, with the bytes it carried."""
        self._hash.update(text.encode() + data if data else text.encode())
        if self.lines is not None:
            self.lines.append(f"{text} +{len(data)}" if data else text)

    @property
    def digest(self) -> str:
        """The hash of all events so far."""
        return self._hash.hexdigest()
