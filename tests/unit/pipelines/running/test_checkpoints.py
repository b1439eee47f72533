"""Places and notes of flows."""

import pytest

from headwater.pipelines.running.checkpoints import Checkpoints


@pytest.fixture
def places(tmp_path):
    return Checkpoints.of(tmp_path)


def test_a_checkpoint_has_its_place_by_name(places, tmp_path):
    assert places.place("silver") == tmp_path / "_checkpoints" / "silver"
    assert not places.started("silver")


def test_notes_outlive_the_object_and_are_replaced_whole(places, tmp_path):
    assert places.noted("silver") is None
    places.note("silver", {"schema": "a INT", "more": 1})
    places.note("silver", {"schema": "a BIGINT"})
    assert Checkpoints.of(tmp_path).noted("silver") == {"schema": "a BIGINT"}
    assert Checkpoints.of(tmp_path).all_noted() == {"silver": {"schema": "a BIGINT"}}


def test_names_with_dots_keep_notes_of_their_own(places):
    places.note("ingest.a.x", {"n": 1})
    places.note("ingest.a.y", {"n": 2})
    assert places.all_noted() == {"ingest.a.x": {"n": 1}, "ingest.a.y": {"n": 2}}


def test_a_flow_that_begins_anew_leaves_the_others_and_its_facts(places):
    for name in ("bronze", "silver"):
        places.place(name).mkdir(parents=True)
        (places.place(name) / "metadata").write_text("{}")
        places.note(name, {})
    places.drop_checkpoint("silver")
    assert places.started("bronze")
    assert not places.started("silver")
    assert places.all_noted() == {"bronze": {}, "silver": {}}
