"""ApiVersions: the APIs and versions that this broker serves."""

import re

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.errors import E
from headwater.model import TRANSACTION_VERSION
from headwater.security.principals import BROKER
from headwater.wire.apis import API, API_VERSIONS
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.versions import Versions

FIRST_WITH_SOFTWARE = 3
FIRST_WITH_OPTIONAL_FEATURES = 4
"""Older clients refuse a feature that may be off, so it is left out of what is supported."""
FEATURES_EPOCH = 0
"""Features change with the version of the broker alone."""
MOST_LETTERS = 64
"""Of a client's name or version, which the metrics repeat."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9.-]*+(?<![.-])\Z")
"""Matches without backtracking, however long the text is."""


def _version(key: int, versions: Versions) -> ApiVersionsResponse.ApiVersion:
    return ApiVersionsResponse.ApiVersion(
        api_key=key, min_version=versions.lowest, max_version=versions.highest
    )


_KEYS = [_version(api.key, api.advertised) for api in API.values() if api.advertised is not None]
_KEYS_FOR_BROKERS = _KEYS + [
    _version(api.key, api.served) for api in API.values() if api.advertised is None
]

_SUPPORTED = [
    ApiVersionsResponse.SupportedFeatureKey(
        name="transaction.version", min_version=0, max_version=TRANSACTION_VERSION
    )
]
_FINALIZED = [
    ApiVersionsResponse.FinalizedFeatureKey(
        name="transaction.version",
        max_version_level=TRANSACTION_VERSION,
        min_version_level=TRANSACTION_VERSION,
    )
]


def handle_api_versions(
    context: Context, request: Request, body: ApiVersionsRequest | None
) -> ApiVersionsResponse:
    """Return the versions; `body` is None for an unknown version of this API.

    That response has version 0 and lists the supported versions, so that the client can retry.
    """
    if body is None:
        mine = [row for row in _KEYS if row.api_key == API_VERSIONS]
        return ApiVersionsResponse(error_code=E.UNSUPPORTED_VERSION, api_keys=mine)
    if request.version >= FIRST_WITH_SOFTWARE:
        software = (body.client_software_name, body.client_software_version)
        if not all(map(_SOFTWARE.match, software)):
            return ApiVersionsResponse(error_code=E.INVALID_REQUEST)
        name, version = (part[:MOST_LETTERS] for part in software)
        request.connection.client_software = name, version
    is_broker = request.connection.principal.kind == BROKER
    return ApiVersionsResponse(
        api_keys=_KEYS_FOR_BROKERS if is_broker else _KEYS,
        supported_features=(_SUPPORTED if request.version >= FIRST_WITH_OPTIONAL_FEATURES else []),
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=_FINALIZED,
    )
