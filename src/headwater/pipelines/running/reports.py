"""What a run and each of its flows did."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class FlowReport:
    """What one flow did in a run."""

    flow: str
    kind: str
    """stream, view or once"""
    batches: int = 0
    rows: int = 0
    """Rows read by a stream; rows kept by a view."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """Rows that did not meet an expectation, by its name."""
    lag: int | None = None
    """Records of topics not read yet; None if the flow reads no topic."""
    late: int = 0
    """Rows that a watermark dropped."""
    versions_behind: int | None = None
    """Versions of streamed tables not read yet; None if the flow streams no table."""


@dataclass(frozen=True)
class RunReport:
    """What a run did, and whether it was asked to stop."""

    pipeline: str
    flows: tuple[FlowReport, ...]
    stopped: bool

    def flow(self, name: str) -> FlowReport:
        """Return the report of one flow."""
        return next(each for each in self.flows if each.flow == name)
