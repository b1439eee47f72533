"""A running hash of all events: two runs of one seed must end with the same digest."""

from hashlib import blake2b

CHUNK = 512
"""How many events are hashed at a time: one by one they would cost more than much of the run."""


class Trace:
    """Everything that the environment of a simulated broker could observe, in order."""

    def __init__(self, *, keep: bool = False) -> None:
        self._hash = blake2b(digest_size=16)
        self._texts: list[str] = []
        self._data: list[bytes] = []
        self.lines: list[str] | None = [] if keep else None
        """The readable form, to find where two runs diverge."""

    def note(self, text: str, data: bytes = b"") -> None:
        """Add one event, with the bytes it carried."""
        texts = self._texts
        if data:
            self._data.append(data)
            text = f"{text} +{len(data)}"
        texts.append(text)
        if len(texts) == CHUNK:
            self._hash_chunk()

    def _hash_chunk(self) -> None:
        self._hash.update("\n".join((*self._texts, "")).encode())
        self._hash.update(b"".join(self._data))
        if self.lines is not None:
            self.lines += self._texts
        self._texts.clear()
        self._data.clear()

    @property
    def digest(self) -> str:
        """The hash of all events so far."""
        self._hash_chunk()
        return self._hash.hexdigest()
