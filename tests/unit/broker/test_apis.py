"""The table of served APIs is complete, and says of each API what dispatch needs."""

import pytest

from headwater.broker.apis import BEFORE_AUTHENTICATION, SERVED, Listeners, served_on
from headwater.security.quotas import QuotaKind
from headwater.security.rights import CLUSTER_ACTION
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
