"""The table of served APIs is complete, and says of each API what dispatch needs."""

from importlib.util import module_from_spec, spec_from_file_location

import pytest

from headwater.broker import apis
from headwater.broker.apis import BEFORE_AUTHENTICATION, SERVED, Access, Listeners, served_on
from headwater.broker.complete_rows import by_key
from headwater.security.quotas import QuotaKind
from headwater.security.rights import CLUSTER_ACTION, READ_GROUP
from headwater.wire.apis import API


def test_every_api_of_the_wire_table_is_served():
    assert SERVED.keys() == API.keys()


def test_clients_are_told_of_exactly_what_their_listeners_serve():
    advertised = {key for key, api in API.items() if api.advertised is not None}
    assert advertised == served_on(Listeners.CLIENT).keys()


def test_requests_of_a_controller_are_not_served_to_clients():
    control = served_on(Listeners.CONTROL)
    assert control.keys() == {4, 5, 6, 7, 56, 58}
    assert {17, 18, 36} == BEFORE_AUTHENTICATION
    assert not control.keys() & served_on(Listeners.CLIENT).keys()


@pytest.mark.parametrize("row", SERVED.values(), ids=lambda row: row.api.name)
def test_every_row_says_who_may_send_it(row):
    access = row.access
    assert bool(access.whole or access.each) != bool(access.open_because)
    assert (access.whole is None) == (access.of is None)
    if row.listeners is Listeners.CONTROL:
        assert (access.whole, row.quota) == (CLUSTER_ACTION, QuotaKind.EXEMPT)


METADATA, VERSIONS, UPDATE_METADATA, HEARTBEAT = SERVED[3], SERVED[18], SERVED[6], SERVED[12]
INCOMPLETE = {
    "twice": (METADATA, "Metadata has two rows"),
    "no right": (HEARTBEAT._replace(access=Access()), "Heartbeat .* lists no right"),
    "no reason": (VERSIONS._replace(access=Access(open_because=" ")), "lists no right"),
    "both": (
        HEARTBEAT._replace(access=HEARTBEAT.access._replace(open_because="of old")),
        "lists rights and says that it needs none",
    ),
    "no resource": (HEARTBEAT._replace(access=Access(READ_GROUP)), "without its resource"),
    "strangers": (HEARTBEAT._replace(before_authentication=True), "before authentication"),
    "metered broker": (UPDATE_METADATA._replace(quota=QuotaKind.REQUEST), "for brokers alone"),
    "clients like brokers": (
        HEARTBEAT._replace(listeners=Listeners.CONTROL, quota=QuotaKind.EXEMPT),
        "it needs ClusterAction",
    ),
}


@pytest.mark.parametrize("name", INCOMPLETE)
def test_a_row_that_lacks_something_is_refused(name):
    row, reason = INCOMPLETE[name]
    others = [one for one in SERVED.values() if name == "twice" or one.api != row.api]
    with pytest.raises(LookupError, match=reason):
        by_key([*others, row], API)


def test_a_broker_does_not_start_with_an_api_that_has_no_row(monkeypatch):
    monkeypatch.setitem(API, 999, HEARTBEAT.api._replace(key=999, name="NewRequest"))
    found = spec_from_file_location("table_of_a_broker_that_starts", apis.__file__)
    with pytest.raises(LookupError, match="NewRequest has no row"):
        found.loader.exec_module(module_from_spec(found))
