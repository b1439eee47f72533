"""Every API asks before it acts: with an authorizer that says no, nothing is shown or done."""

from types import SimpleNamespace

import pytest

from headwater.broker.apis import SERVED, Listeners, served_on
from headwater.broker.context import Context
from headwater.broker.handlers.configs import ConfigResourceKind
from headwater.errors import E
from headwater.security.principals import Principal
from headwater.security.rights import READ_TOPIC
from headwater.wire.fields import STRING, Array, Fixed, Nested
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.fetch import FetchResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.schema import Struct
from tests.unit.broker.live import batch, fetch_request

NO = E.TOPIC_AUTHORIZATION_FAILED


class Nobody:
    """Says no, and notes what was asked."""

    def __init__(self):
        self.asked = []

    def authorize(self, principal, host, operation, resource_type, name):
        self.asked.append((str(principal), operation.name, resource_type.name, name))
        return False

    def authorize_any(self, principal, host, operation, resource_type):
        return self.authorize(principal, host, operation, resource_type, "")

    def reason(self, *question):
        return "nobody may"


@pytest.fixture
def nobody(live, topic):
    """The topic is there, a way to it is known, and from now on nobody may do anything."""
    authorizer, before = Nobody(), live.context.authorizer

    def use(which):
        live.context.authorizer = which
        live.context.changed()

    live.on_loop(lambda: use(authorizer))
    yield authorizer
    live.on_loop(lambda: use(before))


def test_produce_by_either_way(live, topic, client, nobody):
    for _ in range(3):
        assert client.produce(topic, batch()).error_code == NO
    assert live.replica(topic).log.log_end_offset == 0
    assert nobody.asked[0] == ("User:ANONYMOUS", "WRITE", "TOPIC", topic)


def test_a_way_learnt_before_the_rules_changed_is_not_followed(live, topic):
    with live.client() as client:
        for _ in range(2):
            assert client.produce(topic, batch()).error_code == 0
        authorizer, before = Nobody(), live.context.authorizer

        def use(which):
            live.context.authorizer = which
            live.context.changed()

        live.on_loop(lambda: use(authorizer))
        assert client.produce(topic, batch()).error_code == NO
        live.on_loop(lambda: use(before))


NAMED_BY_NAME = {0: 12, 1: 12, 8: 9, 9: 9, 20: 5, 24: 3}
"""The newest versions in which topics have names instead of ids, and clients may send them."""
OF_WHAT_THERE_IS = {41, 66}
"""Ask of each token and each transactional id that there is: see test_acl_matrix."""
ASKED = {
    key: row
    for key, row in served_on(Listeners.CLIENT).items()
    if (row.access.each or row.access.whole) and key not in OF_WHAT_THERE_IS
}
CREATE_TOKEN = 38
HIDING = {16, 60}
"""APIs that leave out what a client may not see."""


def sample(kind, version, topic):
    """A request that names the topic, or a group, wherever it can name something."""
    body = kind()
    for field in kind.__schema__.fields:
        if not field.versions.holds(version):
            continue
        if field.name == "acks":
            body.acks = 1
        elif field.name == "transactional_id" and field.nullable.holds(version):
            body.transactional_id = None
        elif isinstance(field.type, Array) and isinstance(field.type.of, Nested):
            setattr(body, field.name, [sample(field.type.of.struct, version, topic)])
        elif field.type is STRING:
            setattr(body, field.name, topic)
        elif isinstance(field.type, Array) and field.type.of is STRING:
            setattr(body, field.name, [topic])
        elif isinstance(field.type, Array) and field.type.of == Fixed("i", 4):
            setattr(body, field.name, [0])
    return body


def codes_in(answer):
    found = set()
    for field in type(answer).__schema__.fields:
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        for one in value if isinstance(value, list) else ():
            found |= codes_in(one) if isinstance(one, Struct) else set()
    return found


@pytest.mark.parametrize("key", ASKED, ids=lambda key: ASKED[key].api.name)
def test_every_api_asks_for_a_right_of_its_row_and_refuses_without_it(
    live, topic, client, nobody, key
):
    row = ASKED[key]
    version = NAMED_BY_NAME.get(key, row.api.served.highest)
    body = sample(row.api.request, version, topic)
    if key in (32, 33, 44):
        body.resources[0].resource_type = ConfigResourceKind.TOPIC
    if key == 60:
        body.endpoint_type, body.include_cluster_authorized_operations = 1, True
    if key == CREATE_TOKEN:
        live.log_in(client, Principal("User", "eve"))
    answer = client.ask(body, row.api.response, version)
    rights = {right for right in (row.access.whole, *row.access.each) if right is not None}
    listed = {(right.operation.name, right.resource_type.name) for right in rights}
    assert {asked[1:3] for asked in nobody.asked} <= listed
    assert nobody.asked
    if key not in HIDING:
        assert codes_in(answer) & {right.refusal for right in rights}


def test_metadata_hides_topics(live, topic, client, nobody):
    assert client.ask(MetadataRequest(topics=None), MetadataResponse, 12).topics == []


def test_a_client_may_not_read_like_a_follower(live, topic, client):
    """Without access rules, too: CVE-2018-1288."""
    request = fetch_request({(topic, 0): 0}, max_wait_ms=30_000)
    request.replica_id = 2
    answer = client.ask(request, FetchResponse, 12)
    assert answer.responses[0].partitions[0].error_code == NO


def test_a_handler_cannot_ask_for_a_right_that_its_row_does_not_list():
    request = SimpleNamespace(row=SERVED[12])
    with pytest.raises(LookupError, match="Heartbeat does not list"):
        Context.permits(SimpleNamespace(), request, READ_TOPIC, "t")


# -- authentication


def test_before_authentication_only_versions_are_told(live, topic):
    with live.client() as client:
        client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        (connection,) = [
            one
            for one in live.context.connection_quotas.open
            if one.client_software[0] == "unknown"
        ]
        connection.authenticated = False
        assert client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
        client.send(MetadataRequest(topics=None), 12)
        assert client.is_closed()
