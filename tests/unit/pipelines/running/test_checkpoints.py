"""Places and notes of flows."""

import pytest

from headwater.pipelines.running.checkpoints import Checkpoints


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints.of(tmp_path)


def test_a_checkpoint_has_its_place_by_name(checkpoints, tmp_path):
    assert checkpoints.location("silver") == tmp_path / "_checkpoints" / "silver"
    assert not checkpoints.started("silver")


def test_notes_outlive_the_object_and_are_replaced_whole(checkpoints, tmp_path):
    assert checkpoints.read_note("silver") is None
    checkpoints.write_note("silver", {"schema": "a INT", "more": 1})
    checkpoints.write_note("silver", {"schema": "a BIGINT"})
    assert Checkpoints.of(tmp_path).read_note("silver") == {"schema": "a BIGINT"}
    assert Checkpoints.of(tmp_path).all_notes() == {"silver": {"schema": "a BIGINT"}}


def test_names_with_dots_keep_notes_of_their_own(checkpoints):
    checkpoints.write_note("ingest.a.x", {"n": 1})
    checkpoints.write_note("ingest.a.y", {"n": 2})
    assert checkpoints.all_notes() == {"ingest.a.x": {"n": 1}, "ingest.a.y": {"n": 2}}


def test_a_flow_that_begins_anew_leaves_the_others_and_its_facts(checkpoints):
    for name in ("bronze", "silver"):
        checkpoints.location(name).mkdir(parents=True)
        (checkpoints.location(name) / "metadata").write_text("{}")
        checkpoints.write_note(name, {})
    checkpoints.drop_checkpoint("silver")
    assert checkpoints.started("bronze")
    assert not checkpoints.started("silver")
    assert checkpoints.all_notes() == {"bronze": {}, "silver": {}}
