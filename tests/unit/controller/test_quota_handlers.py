"""Quotas of users, client ids and addresses: what is accepted, how it is stored, what a filter shows."""

import json

import pytest

from headwater.errors import E
from headwater.security.acls import AclOperation, AclResourceType
from headwater.security.quotas import DEFAULT, QuotaEntity
from headwater.wire.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from headwater.wire.messages.users import AlterUserScramCredentialsRequest
from tests.unit.controller.fake_loop import OneBroker
from tests.unit.controller.test_admin_handlers import Desk
from tests.unit.controller.test_user_handlers import upsertion

Entry = AlterClientQuotasRequest.EntryData
Part = AlterClientQuotasRequest.EntityData
Op = AlterClientQuotasRequest.OpData
Component = DescribeClientQuotasRequest.ComponentData
EXACT, DEFAULTS, ANY = 0, 1, 2


@pytest.fixture
def desk():
    return Desk()


def entry(quotas, **parts):
    return Entry(
        entity=[
            Part(entity_type=kind.replace("_", "-"), entity_name=name)
            for kind, name in parts.items()
        ],
        ops=[
            Op(key=key, remove=True) if value is None else Op(key=key, value=value)
            for key, value in quotas.items()
        ],
    )


def alter(desk, *entries, validate_only=False, version=None):
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answer = desk.ask(request, version)
    assert [
        [(part.entity_type, part.entity_name) for part in one.entity] for one in answer.entries
    ] == [[(part.entity_type, part.entity_name) for part in one.entity] for one in entries]
    return [(one.error_code, one.error_message) for one in answer.entries]


def describe(desk, *components, strict=False, version=None):
    wanted = [
        Component(entity_type=kind, match_type=how, match=name) for kind, how, name in components
    ]
    answer = desk.ask(DescribeClientQuotasRequest(components=wanted, strict=strict), version)
    if answer.error_code:
        assert answer.entries is None
        return answer.error_code
    return {
        tuple((part.entity_type, part.entity_name) for part in one.entity): {
            value.key: value.value for value in one.values
        }
        for one in answer.entries
    }


ALL = {
    (("user", "a/b"),): {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
    (("user", None),): {"consumer_byte_rate": 5.0},
    (("client-id", "c~"),): {"controller_mutation_rate": 2.5},
    (("client-id", None),): {"consumer_byte_rate": 6.0},
    (("user", "a/b"), ("client-id", "c")): {"producer_byte_rate": 7.0},
    (("user", None), ("client-id", None)): {"producer_byte_rate": 8.0},
    (("ip", "10.0.0.1"),): {"connection_creation_rate": 9.0},
    (("ip", None),): {"connection_creation_rate": 10.0},
}


@pytest.fixture
def full(desk):
    entries = [
        entry(quotas, **{kind.replace("-", "_"): name for kind, name in parts})
        for parts, quotas in ALL.items()
    ]
    assert alter(desk, *entries) == [(0, None)] * len(ALL)
    return desk


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_stored_as_kafka_stores_them_and_survive_a_restart(full, version):
    assert describe(full, version=version) == ALL
    stored = {
        "/config/users/a%2Fb": {"producer_byte_rate": "1024", "request_percentage": "12.5"},
        "/config/users/<default>": {"consumer_byte_rate": "5"},
        "/config/clients/c%7E": {"controller_mutation_rate": "2.5"},
        "/config/clients/<default>": {"consumer_byte_rate": "6"},
        "/config/users/a%2Fb/clients/c": {"producer_byte_rate": "7"},
        "/config/users/<default>/clients/<default>": {"producer_byte_rate": "8"},
        "/config/ips/10.0.0.1": {"connection_creation_rate": "9"},
        "/config/ips/<default>": {"connection_creation_rate": "10"},
    }
    for path, config in stored.items():
        assert json.loads(full.broker.data(path)) == {"version": 1, "config": config}
    next_life = Desk()
    next_life.broker = OneBroker(full.broker.files)
    assert describe(next_life) == ALL
    # The next controller knows which nodes there are.
    changed = entry({"producer_byte_rate": None}, user="a/b", client_id="c")
    new = entry({"producer_byte_rate": 1.0}, user="a/b", client_id="d")
    assert alter(next_life, changed, new) == [(0, None), (0, None)]
    found = describe(next_life, ("user", EXACT, "a/b"), ("client-id", ANY, None))
    assert found == {(("user", "a/b"), ("client-id", "d")): {"producer_byte_rate": 1.0}}


def test_a_change_leaves_other_quotas_and_the_credentials_of_the_user(desk):
    desk.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion("u")]))
    alter(desk, entry({"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}, user="u"))
    alter(desk, entry({"producer_byte_rate": None, "request_percentage": 3.0}, user="u"))
    desk.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion("u", mechanism=1)]))
    expected = {"consumer_byte_rate": 2.0, "request_percentage": 3.0}
    assert describe(desk) == {(("user", "u"),): expected}
    assert desk.broker.user_configs["u"].keys() == {*expected, "SCRAM-SHA-256"}
    alter(desk, entry(dict.fromkeys(expected), user="u"))
    assert describe(desk) == {}
    assert desk.broker.user_configs["u"].keys() == {"SCRAM-SHA-256"}


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, list(ALL)),
        (
            [("user", EXACT, "a/b")],
            False,
            [(("user", "a/b"),), (("user", "a/b"), ("client-id", "c"))],
        ),
        ([("user", EXACT, "a/b")], True, [(("user", "a/b"),)]),
        ([("user", DEFAULTS, None)], True, [(("user", None),)]),
        ([("client-id", ANY, None)], True, [(("client-id", "c~"),), (("client-id", None),)]),
        (
            [("user", ANY, None), ("client-id", ANY, None)],
            True,
            [(("user", "a/b"), ("client-id", "c")), (("user", None), ("client-id", None))],
        ),
        ([("ip", ANY, None)], True, [(("ip", "10.0.0.1"),), (("ip", None),)]),
        ([("user", EXACT, "nobody")], False, []),
        ([("user", EXACT, "")], False, []),
    ],
)
def test_a_filter_shows_what_matches(full, components, strict, expected):
    assert describe(full, *components, strict=strict) == {one: ALL[one] for one in expected}


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("user", ANY, None), ("user", ANY, None)], E.INVALID_REQUEST),
        ([("", ANY, None)], E.INVALID_REQUEST),
        ([("group", ANY, None)], E.UNSUPPORTED_VERSION),
        ([("ip", ANY, None), ("user", ANY, None)], E.INVALID_REQUEST),
        ([("user", EXACT, None)], E.INVALID_REQUEST),
        ([("user", DEFAULTS, "u")], E.INVALID_REQUEST),
        ([("user", 3, None)], E.INVALID_REQUEST),
    ],
)
def test_a_filter_that_means_nothing_is_refused(desk, components, error):
    assert describe(desk, *components) == error


@pytest.mark.parametrize(
    "wrong",
    [
        entry({"producer_byte_rate": 1.0}),
        entry({"producer_byte_rate": 1.0}, user=""),
        entry({"producer_byte_rate": 1.0}, group="g"),
        entry({"producer_byte_rate": 1.0}, ip="10.0.0.1", user="u"),
        entry({"producer_byte_rate": float("nan")}, user="u"),
        entry({"producer_byte_rate": 0.0}, user="u"),
        entry({"connection_creation_rate": 1.0}, user="u"),
        entry({"producer_rate": None}, user="u"),
        Entry(entity=[Part(entity_type="user", entity_name="u")] * 2, ops=[]),
        Entry(
            entity=[Part(entity_type="user", entity_name="u")],
            ops=[Op(key="producer_byte_rate", value=1.0)] * 2,
        ),
    ],
)
def test_one_wrong_entry_does_not_stop_the_others(desk, wrong):
    good = entry({"producer_byte_rate": 1.0}, user="good")
    (code, message), fine = alter(desk, wrong, good)
    assert (code, fine) == (E.INVALID_REQUEST, (0, None))
    assert message
    assert list(describe(desk)) == [(("user", "good"),)]


def test_an_entity_that_appears_twice_is_refused_both_times(desk):
    one = entry({"producer_byte_rate": 1.0}, user="u", client_id="c")
    other = entry({"consumer_byte_rate": 1.0}, client_id="c", user="u")
    assert [code for code, _ in alter(desk, one, other)] == [E.INVALID_REQUEST] * 2
    assert describe(desk) == {}


def test_a_dry_run_checks_and_changes_nothing(desk):
    entries = entry({"producer_byte_rate": 1.0}, user="u"), entry({"x": 1.0}, user="v")
    assert [code for code, _ in alter(desk, *entries, validate_only=True)] == [0, E.INVALID_REQUEST]
    assert describe(desk) == {}


def test_only_those_with_the_right_see_and_change_quotas(full):
    full.forbidden = {
        (AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER),
        (AclOperation.ALTER_CONFIGS, AclResourceType.CLUSTER),
    }
    refused = E.CLUSTER_AUTHORIZATION_FAILED
    wanted = DescribeClientQuotasRequest(components=[], strict=False)
    assert full.ask(wanted).error_code == refused
    assert [code for code, _ in alter(full, entry({}, user="u"), entry({}, user="v"))] == [
        refused
    ] * 2


def test_a_change_by_another_broker_arrives(desk):
    """The notification names the entity as Kafka does."""
    alter(desk, entry({"producer_byte_rate": 1.0}, user="a/b", client_id=None))
    names = desk.broker.call(lambda reply: desk.broker.store.children("/config/changes", reply))
    notice = json.loads(desk.broker.data(f"/config/changes/{names[-1]}"))
    assert notice == {"version": 2, "entity_path": "users/a%2Fb/clients/<default>"}
    path = "/config/users/a%2Fb/clients/<default>"
    config = json.dumps({"version": 1, "config": {"producer_byte_rate": "5"}}).encode()
    desk.broker.call(lambda reply: desk.broker.store.set(path, config, -1, reply))
    desk.broker.call(
        lambda reply: desk.broker.store.create(
            "/config/changes/config_change_", json.dumps(notice).encode(), reply, sequential=True
        )
    )
    table = desk.broker.quotas.table
    assert table.entities == {QuotaEntity("a/b", DEFAULT): {"producer_byte_rate": 5.0}}


def test_of_many_notifications_the_newest_stay(desk):
    entries = [entry({"producer_byte_rate": 1.0}, user=f"u{number}") for number in range(300)]
    assert alter(desk, *entries) == [(0, None)] * 300
    names = desk.broker.call(lambda reply: desk.broker.store.children("/config/changes", reply))
    assert [int(name[-10:]) for name in names] == list(range(200, 300))
    alter(desk, entries[0])
    names = desk.broker.call(lambda reply: desk.broker.store.children("/config/changes", reply))
    assert [int(name[-10:]) for name in names] == list(range(201, 301))


def test_each_change_is_audited_and_a_dry_run_is_not(desk):
    lines = []
    context = desk.context

    def audited():
        made = context()
        made.note_change = lambda request, *line, **right: lines.append(line)
        return made

    desk.context = audited
    good = entry({"producer_byte_rate": 1.0, "consumer_byte_rate": None}, user="u", client_id=None)
    alter(desk, good, validate_only=True)
    alter(desk, good, entry({"x": 1.0}, user="u"))
    said = ["producer_byte_rate=1", "consumer_byte_rate removed"]
    assert lines == [("quotas changed", "user 'u', the default client-id", said)]
