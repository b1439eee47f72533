"""Delegation tokens: create, renew, end and describe them."""

from base64 import b64encode
from collections.abc import Iterable
from typing import NamedTuple

from headwater.client.admin.arguments import as_list, checked_text
from headwater.client.admin.calls import AdminCalls
from headwater.config.keys import ConfigError
from headwater.security.principals import USER
from headwater.wire.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_Renewer = CreateDelegationTokenRequest.CreatableRenewers
_Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
_BROKERS_DEFAULT = -1
_AT_ONCE = -1


class DelegationToken(NamedTuple):
    """A delegation token. Anyone who has its HMAC can log in as its owner.

    Principals are like `User:alice`, times are milliseconds since 1970.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: bytes

    @property
    def password(self) -> str:
        """Return the password to log in with, as the user `token_id` with SCRAM and tokenauth."""
        return b64encode(self.hmac).decode()

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id!r}, owner={self.owner!r})"


class TokenAdmin:
    """Creates, renews, ends and describes delegation tokens."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int | None = None,
    ) -> DelegationToken:
        allowed = as_list("create_delegation_token", renewers)
        request = CreateDelegationTokenRequest(
            renewers=[
                _Renewer(principal_type=kind, principal_name=name)
                for kind, name in map(_principal, allowed)
            ],
            max_lifetime_ms=_BROKERS_DEFAULT if max_lifetime_ms is None else max_lifetime_ms,
        )
        if owner is not None:
            request.owner_principal_type, request.owner_principal_name = _principal(owner)

        async def attempt() -> DelegationToken:
            answer = await self._calls.ask_controller(request, CreateDelegationTokenResponse)
            await self._calls.raise_refusals([("the delegation token", answer.error_code, None)])
            made_for = f"{answer.principal_type}:{answer.principal_name}"
            requester = (
                f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}"
            )
            return DelegationToken(
                answer.token_id,
                made_for,
                requester if answer.token_requester_principal_name else made_for,
                tuple(":".join(_principal(one)) for one in allowed),
                answer.issue_timestamp_ms,
                answer.expiry_timestamp_ms,
                answer.max_timestamp_ms,
                bytes(answer.hmac),
            )

        return await self._calls.retry("a delegation token", attempt)

    async def renew_delegation_token(self, hmac: bytes, period_ms: int | None = None) -> int:
        period = _BROKERS_DEFAULT if period_ms is None else period_ms
        request = RenewDelegationTokenRequest(hmac=_hmac(hmac), renew_period_ms=period)

        async def attempt() -> int:
            answer = await self._calls.ask_controller(request, RenewDelegationTokenResponse)
            await self._calls.raise_refusals([("the delegation token", answer.error_code, None)])
            return answer.expiry_timestamp_ms

        return await self._calls.retry("the renewal of a delegation token", attempt)

    async def expire_delegation_token(self, hmac: bytes, period_ms: int | None = None) -> int:
        period = _AT_ONCE if period_ms is None else period_ms
        request = ExpireDelegationTokenRequest(hmac=_hmac(hmac), expiry_time_period_ms=period)

        async def attempt() -> int:
            answer = await self._calls.ask_controller(request, ExpireDelegationTokenResponse)
            await self._calls.raise_refusals([("the delegation token", answer.error_code, None)])
            return answer.expiry_timestamp_ms

        return await self._calls.retry("the end of a delegation token", attempt)

    async def describe_delegation_token(
        self, owners: Iterable[str] | None = None
    ) -> list[DelegationToken]:
        wanted = None
        if owners is not None:
            wanted = [
                _Owner(principal_type=kind, principal_name=name)
                for kind, name in map(_principal, as_list("describe_delegation_token", owners))
            ]
        request = DescribeDelegationTokenRequest(owners=wanted)

        async def attempt() -> list[DelegationToken]:
            answer = await self._calls.ask_controller(request, DescribeDelegationTokenResponse)
            whole = ("the description of delegation tokens", answer.error_code, None)
            await self._calls.raise_refusals([whole])
            return [_described(one) for one in answer.tokens]

        return await self._calls.retry("the description of delegation tokens", attempt)


def _described(one: DescribeDelegationTokenResponse.DescribedDelegationToken) -> DelegationToken:
    owner = f"{one.principal_type}:{one.principal_name}"
    requester = f"{one.token_requester_principal_type}:{one.token_requester_principal_name}"
    return DelegationToken(
        one.token_id,
        owner,
        requester if one.token_requester_principal_name else owner,
        tuple(f"{who.principal_type}:{who.principal_name}" for who in one.renewers),
        one.issue_timestamp,
        one.expiry_timestamp,
        one.max_timestamp,
        bytes(one.hmac),
    )


def _principal(text: str) -> tuple[str, str]:
    """Return kind and name; a name without a kind is a user."""
    kind, colon, name = checked_text("the principal", text).partition(":")
    return (kind, name) if colon else (USER, text)


def _hmac(given: object) -> bytes:
    """Return the bytes of an HMAC; messages never contain the value."""
    if not isinstance(given, bytes) or not given:
        raise ConfigError("give the HMAC of the delegation token as bytes: DelegationToken.hmac")
    return given
