"""Whether each record that was sent is where it belongs, and nowhere twice."""

from pathlib import Path
from typing import NamedTuple

import pandas as pd
from deltalake import DeltaTable
from examples.behavior.events import Truth
from examples.behavior.produce import DEAD, PURCHASES

from headwater import Admin, Consumer


class Check(NamedTuple):
    """What was found beside what was sent."""

    what: str
    found: int
    sent: int

    @property
    def holds(self) -> bool:
        """Whether they agree."""
        return self.found == self.sent


def check_all(tables: Path, bootstrap: str, truth: Truth) -> list[Check]:
    """Compare tables and topics with what the generator counted."""
    silver = DeltaTable(tables / "silver").to_pandas(columns=["event_id", "behavior", "price"])
    bought = silver[silver["behavior"] == "buy"]
    return [
        Check("records in bronze", row_count(tables / "bronze"), truth.arrivals),
        Check("distinct events in silver", silver["event_id"].nunique(), truth.good.total()),
        Check("rows in silver", len(silver), truth.good.total()),
        Check("rows in quarantine", row_count(tables / "quarantine"), truth.dead),
        Check("records in the dead letter topic", record_count(bootstrap, DEAD), truth.dead),
        Check(
            "records in the purchases topic",
            record_count(bootstrap, PURCHASES),
            truth.good["buy"],
        ),
        Check("revenue in cents", round(bought["price"].sum() * 100), truth.cents),
        Check("lag", _lag(bootstrap), 0),
    ]


def reasons(tables: Path) -> pd.DataFrame:
    """Refused events by the expectation that they do not meet; one may miss several."""
    quarantine = DeltaTable(tables / "quarantine").to_pandas(columns=["_reasons"])
    counts = quarantine["_reasons"].explode().value_counts()
    return counts.rename_axis("reason").reset_index(name="events")


def row_count(table: Path) -> int:
    """Rows of a table."""
    return int(DeltaTable(table).to_pyarrow_dataset().count_rows())


def record_count(bootstrap: str, topic: str) -> int:
    """Committed records of a topic; markers of transactions have offsets too."""
    with Consumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(topic, number) for number in consumer.partitions_for(topic)])
        return sum(1 for _ in consumer.read_to_end())


def _lag(bootstrap: str) -> int:
    """What the pipeline's groups have not read, as every group tool computes it."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        committed = {
            partition: offset.offset
            for group in admin.list_groups()
            if group.group_id.startswith("behavior.")
            for partition, offset in admin.group_offsets(group.group_id).items()
        }
        ends = admin.end_offsets(list(committed))
    return sum(ends[partition] - offset for partition, offset in committed.items())
