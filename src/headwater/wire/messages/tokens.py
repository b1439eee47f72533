"""Delegation tokens (KIP-48): create (38), renew (39), expire (40), describe (41)."""

from headwater.wire.schema import Struct, i16, i32, i64, since


class CreateDelegationTokenRequest(Struct, api_key=38, versions="0-3", flexible="2+"):
    """A token to make; without an owner, it belongs to the client."""

    class CreatableRenewers(Struct):
        """A principal, besides the owner, that may renew and expire the token."""

        principal_type: str = ""
        principal_name: str = ""

    owner_principal_type: str | None = since("3+", default="")
    owner_principal_name: str | None = since("3+", default="")
    renewers: list[CreatableRenewers] = since(default=[])
    max_lifetime_ms: i64 = 0


class CreateDelegationTokenResponse(Struct, api_key=38, versions="0-3", flexible="2+"):
    """The token; its HMAC is the password to log in with."""

    error_code: i16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = since("3+", default="", ignorable=True)
    token_requester_principal_name: str = since("3+", default="", ignorable=True)
    issue_timestamp_ms: i64 = 0
    expiry_timestamp_ms: i64 = 0
    max_timestamp_ms: i64 = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: i32 = 0


class RenewDelegationTokenRequest(Struct, api_key=39, versions="0-2", flexible="2+"):
    """A token to keep for longer; a negative period is the broker's default."""

    hmac: bytes = b""
    renew_period_ms: i64 = 0


class RenewDelegationTokenResponse(Struct, api_key=39, versions="0-2", flexible="2+"):
    """When the token expires now."""

    error_code: i16 = 0
    expiry_timestamp_ms: i64 = 0
    throttle_time_ms: i32 = 0


class ExpireDelegationTokenRequest(Struct, api_key=40, versions="0-2", flexible="2+"):
    """A token to end after a period; a negative period ends it at once."""

    hmac: bytes = b""
    expiry_time_period_ms: i64 = 0


class ExpireDelegationTokenResponse(Struct, api_key=40, versions="0-2", flexible="2+"):
    """When the token expires now."""

    error_code: i16 = 0
    expiry_timestamp_ms: i64 = 0
    throttle_time_ms: i32 = 0


class DescribeDelegationTokenRequest(Struct, api_key=41, versions="0-3", flexible="2+"):
    """The tokens of these owners; null means all that the client may see."""

    class DescribeDelegationTokenOwner(Struct):
        """An owner, a requester or a renewer of tokens."""

        principal_type: str = ""
        principal_name: str = ""

    owners: list[DescribeDelegationTokenOwner] | None = since(default=[])


class DescribeDelegationTokenResponse(Struct, api_key=41, versions="0-3", flexible="2+"):
    """Tokens, with the HMACs to log in with."""

    class DescribedDelegationToken(Struct):
        """One token."""

        principal_type: str = ""
        principal_name: str = ""
        token_requester_principal_type: str = since("3+", default="", ignorable=True)
        token_requester_principal_name: str = since("3+", default="", ignorable=True)
        issue_timestamp: i64 = 0
        expiry_timestamp: i64 = 0
        max_timestamp: i64 = 0
        token_id: str = ""
        hmac: bytes = b""
        renewers: "list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer]" = since(
            default=[]
        )

    class DescribedDelegationTokenRenewer(Struct):
        """A principal that may renew the token."""

        principal_type: str = ""
        principal_name: str = ""

    error_code: i16 = 0
    tokens: list[DescribedDelegationToken] = since(default=[])
    throttle_time_ms: i32 = 0
