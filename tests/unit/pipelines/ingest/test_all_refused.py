"""A run that refuses everything says so."""

from types import SimpleNamespace

import pytest

from headwater.pipelines.ingest.ingest import warn_if_all_refused
from headwater.pipelines.ingest.json_rows import REFUSED
from headwater.pipelines.running.reports import FlowReport

INGEST = SimpleNamespace(name="ingest.a", target="delta:lake/a", dead_letters="a.dead")


@pytest.mark.parametrize(("rows", "refused", "warns"), [(3, 3, True), (3, 2, False), (0, 0, False)])
def test_a_warning_names_the_dead_letters_where_no_record_fit(caplog, rows, refused, warns):
    warn_if_all_refused(INGEST, FlowReport("ingest.a", "stream", 1, rows, {REFUSED: refused}))
    assert ("all 3 records were refused" in caplog.text) is warns
    assert ("'a.dead'" in caplog.text) is warns
