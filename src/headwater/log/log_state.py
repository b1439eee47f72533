"""The state of a log that is not in its parts, as a load finds it."""

from dataclasses import dataclass


@dataclass(slots=True)
class LogState:
    """The state of a loaded log besides its parts; the defaults are those of a new log."""

    log_start_offset: int = 0
    log_end_offset: int = 0
    recovery_point: int = 0
    snapshot_offset: int = 0
    """The offset of the newest intact producer snapshot."""
    truncation_limit: int | None = None
    """The limit in the note of a truncation, if one is in force."""
    note_number: int = 0
    """The number of the last such note."""
    cleaned_end: int = 0
    stored_start: int = 0
    noted_start: int = 0
    failure: str | None = None
    """Why the log refuses appends."""
