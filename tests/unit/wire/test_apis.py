import pytest

from headwater.wire.apis import API, advertised, request_header_version, response_header_version
from headwater.wire.codec import WireError

KAFKA_4_3 = {
    0: (3, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    17: (0, 1),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    24: (0, 5),
    25: (0, 4),
    26: (0, 5),
    27: (1, 2),
    28: (0, 5),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    33: (0, 2),
    34: (1, 2),
    35: (1, 5),
    36: (0, 2),
    37: (0, 3),
    38: (1, 3),
    39: (1, 2),
    40: (1, 2),
    41: (1, 3),
    42: (0, 2),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    47: (0, 0),
    48: (0, 1),
    49: (0, 1),
    50: (0, 0),
    51: (0, 0),
    60: (0, 2),
    61: (0, 0),
    65: (0, 0),
    66: (0, 2),
    74: (0, 1),
    75: (0, 0),
}


def test_what_is_served_is_what_kafka_4_3_serves():
    assert {key: tuple(api.served) for key, api in API.items() if api.advertised} == KAFKA_4_3


def test_produce_alone_is_advertised_from_below_what_is_served():
    told = {api.key: (first, last) for api, first, last in advertised()}
    assert told == KAFKA_4_3 | {0: (0, 13)}


def test_what_only_brokers_send_is_known_but_not_advertised():
    told = {key for key, api in API.items() if api.advertised is None}
    assert told == {
        4,
        5,
        6,
        7,
        56,
        58,
    }


def test_every_served_version_is_declared():
    for api in API.values():
        for kind in (api.request, api.response):
            assert kind.__schema__.api_key == api.key
            assert all(kind.__schema__.versions.holds(version) for version in api.served.all())
            assert kind.__schema__.flexible == api.request.__schema__.flexible


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (0, 8, 1, 0),
        (0, 9, 2, 1),
        (18, 2, 1, 0),
        (18, 3, 2, 0),
        (7, 0, 0, 0),
        (7, 1, 1, 0),
        (47, 0, 1, 0),
    ],
)
def test_headers_follow_the_version(key, version, request_header, response_header):
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


def test_an_unknown_key_has_no_header():
    with pytest.raises(WireError, match="999"):
        request_header_version(999, 0)
    with pytest.raises(WireError, match="999"):
        response_header_version(999, 0)
