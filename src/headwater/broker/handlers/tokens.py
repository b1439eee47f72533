"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken (KIP-48).

Any broker answers them. A client must have authenticated, and not with a delegation token: otherwise
a job that has a token could make others, and keep what they permit.
"""

from collections.abc import Collection
from typing import TypeAlias, TypeVar

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.broker.token_changes import Decide, TokenChanges
from headwater.broker.token_nodes import MAX_NODE_BYTES, encode_token
from headwater.broker.turns import Steps, drained, each
from headwater.errors import E, KafkaError
from headwater.model import uuid_text
from headwater.security.delegation_tokens import DelegationTokens, TokenInformation
from headwater.security.principals import ANONYMOUS, USER, Principal
from headwater.security.rights import (
    CREATE_TOKENS_FOR_USER,
    DESCRIBE_TOKEN,
    DESCRIBE_TOKENS_OF_USER,
)
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

MOST_TOKENS = 25_000
"""ZooKeeper lists the tokens in one answer, of at most 1 MiB."""
MOST_TOKENS_EACH = 1000
"""The limit per owner and per requester, so that one user cannot use up all tokens."""
MOST_RENEWERS = 50
NO_TIME = -1

_Described = DescribeDelegationTokenResponse.DescribedDelegationToken
_Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer
_Period: TypeAlias = RenewDelegationTokenResponse | ExpireDelegationTokenResponse
R = TypeVar("R", bound=_Period)


def _permit_request(request: Request) -> None:
    """Refuse a client that must not deal with tokens at all."""
    peer = request.connection
    by_token = peer.sasl is not None and peer.sasl.by_token
    if peer.principal == ANONYMOUS or peer.principal.kind != USER or by_token:
        raise KafkaError(E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _tokens(context: Context) -> TokenChanges:
    if context.tokens is None:
        raise KafkaError(E.DELEGATION_TOKEN_AUTH_DISABLED)
    return context.tokens


# -- CreateDelegationToken


def handle_create_token(
    context: Context, request: Request, body: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse | None:
    """Create a token for the client, or for another user for whom it may create tokens."""
    requester = request.connection.principal
    owner = requester
    if body.owner_principal_name:
        owner = Principal(body.owner_principal_type or "", body.owner_principal_name)

    def refusal(why: KafkaError) -> CreateDelegationTokenResponse:
        return CreateDelegationTokenResponse(
            error_code=why.code,
            principal_type=owner.kind,
            principal_name=owner.name,
            token_requester_principal_type=requester.kind,
            token_requester_principal_name=requester.name,
            issue_timestamp_ms=NO_TIME,
            expiry_timestamp_ms=NO_TIME,
            max_timestamp_ms=NO_TIME,
        )

    try:
        _permit_request(request)
        if owner != requester and not context.permits(request, CREATE_TOKENS_FOR_USER, str(owner)):
            raise KafkaError(CREATE_TOKENS_FOR_USER.refusal)
        changes = _tokens(context)
        token = _new_token(context, owner, requester, body)
        _refuse_too_many(context, request, changes.tokens, token)
    except KafkaError as refused:
        return refusal(refused)

    def created(result: TokenInformation | KafkaError | None) -> None:
        if not isinstance(result, TokenInformation):
            request.reply(refusal(result or KafkaError(E.UNKNOWN_SERVER_ERROR)))
            return
        _audit(context, request, "token created", result)
        response = refusal(KafkaError(E.NONE))
        response.issue_timestamp_ms = result.issued_ms
        response.expiry_timestamp_ms = result.expires_ms
        response.max_timestamp_ms = result.max_ms
        response.token_id = result.token_id
        response.hmac = changes.tokens.hmac_of(result.token_id)
        request.reply(response)

    changes.create(token, created)
    return None


def _new_token(
    context: Context, owner: Principal, requester: Principal, body: CreateDelegationTokenRequest
) -> TokenInformation:
    settings, now_ms = context.settings, context.clock.wall_ms()
    if len(body.renewers) > MOST_RENEWERS:
        raise KafkaError(E.INVALID_REQUEST, f"a token has at most {MOST_RENEWERS} renewers")
    renewers = tuple(Principal(one.principal_type, one.principal_name) for one in body.renewers)
    if any(who.kind != USER for who in (owner, *renewers)):
        raise KafkaError(E.INVALID_PRINCIPAL_TYPE)
    longest_ms = settings.delegation_token_max_lifetime_ms
    lifetime_ms = min(body.max_lifetime_ms, longest_ms) if body.max_lifetime_ms > 0 else longest_ms
    token = TokenInformation(
        uuid_text(context.randomness.uuid()),
        owner,
        requester,
        tuple(dict.fromkeys(renewers)),
        now_ms,
        now_ms + min(lifetime_ms, settings.delegation_token_expiry_time_ms),
        now_ms + lifetime_ms,
    )
    if len(encode_token(token)) > MAX_NODE_BYTES:
        raise KafkaError(E.INVALID_REQUEST, "the names of the owner and the renewers are too long")
    return token


def _refuse_too_many(
    context: Context, request: Request, tokens: DelegationTokens, made: TokenInformation
) -> None:
    if len(tokens) >= MOST_TOKENS:
        there_are = f"{MOST_TOKENS}"
    elif tokens.most_of(made.owner, made.requester) >= MOST_TOKENS_EACH:
        there_are = f"{MOST_TOKENS_EACH} of owner {made.owner}, or by requester {made.requester}"
    else:
        return
    context.peer_log.warning(
        "delegation tokens",
        request.connection.host,
        f"refused to make a delegation token: there are {there_are}",
    )
    raise KafkaError(E.POLICY_VIOLATION)


# -- RenewDelegationToken, ExpireDelegationToken


def handle_renew_token(
    context: Context, request: Request, body: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse | None:
    """Extend a token, at most to the end of its maximum lifetime."""
    now_ms = context.clock.wall_ms()
    usual_ms = context.settings.delegation_token_expiry_time_ms
    period_ms = min(body.renew_period_ms, usual_ms) if body.renew_period_ms > 0 else usual_ms

    def renewed(token: TokenInformation) -> TokenInformation:
        _refuse_expired(token, now_ms)
        return token._replace(expires_ms=min(token.max_ms, now_ms + period_ms))

    return _change(
        context, request, bytes(body.hmac), renewed, "token renewed", RenewDelegationTokenResponse
    )


def handle_expire_token(
    context: Context, request: Request, body: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse | None:
    """Let a token expire after a period, or remove it at once.

    Connections that logged in with it are served until their sessions end, as in Kafka.
    """
    now_ms, period_ms = context.clock.wall_ms(), body.expiry_time_period_ms

    def ended(token: TokenInformation) -> TokenInformation | None:
        if period_ms < 0:
            return None
        _refuse_expired(token, now_ms)
        return token._replace(expires_ms=min(token.max_ms, now_ms + period_ms))

    return _change(
        context,
        request,
        bytes(body.hmac),
        ended,
        "token expiry changed",
        ExpireDelegationTokenResponse,
    )


def _change(
    context: Context,
    request: Request,
    hmac: bytes,
    decide: Decide,
    event: str,
    response: type[R],
) -> R | None:
    """Change the token with this HMAC, if the client owns it or may renew it."""
    now_ms, who = context.clock.wall_ms(), request.connection.principal
    affected: list[TokenInformation] = []

    def permitted(token: TokenInformation) -> TokenInformation | None:
        if not token.may_renew(who):
            raise KafkaError(E.DELEGATION_TOKEN_OWNER_MISMATCH)
        affected[:] = [token]
        return decide(token)

    def changed(result: TokenInformation | KafkaError | None) -> None:
        if isinstance(result, KafkaError):
            request.reply(response(error_code=result.code, expiry_timestamp_ms=NO_TIME))
            return
        if result is None:
            _audit(context, request, "token removed", affected[0])
        else:
            _audit(context, request, event, result)
        request.reply(response(expiry_timestamp_ms=now_ms if result is None else result.expires_ms))

    try:
        _permit_request(request)
        _tokens(context).change(hmac, permitted, changed)
    except KafkaError as refused:
        return response(error_code=refused.code, expiry_timestamp_ms=NO_TIME)
    return None


def _audit(context: Context, request: Request, event: str, token: TokenInformation) -> None:
    details = [f"owner {token.owner}", f"expires {token.expires_ms}"]
    details += [f"renewer {one}" for one in token.renewers]
    context.audit.changed(request, event, token.token_id, _rule(request, token), details)


def _rule(request: Request, token: TokenInformation) -> str:
    """Return why the client may change the token."""
    if request.connection.principal == token.owner:
        return "own token"
    return "renewer" if token.may_renew(request.connection.principal) else "tokens of others"


def _refuse_expired(token: TokenInformation, now_ms: int) -> None:
    if token.has_expired(now_ms):
        raise KafkaError(E.DELEGATION_TOKEN_EXPIRED)


# -- DescribeDelegationToken


def handle_describe_tokens(
    context: Context, request: Request, body: DescribeDelegationTokenRequest
) -> Steps[DescribeDelegationTokenResponse]:
    """Return the tokens that the client may see: its own, and those it has a right to."""
    try:
        _permit_request(request)
        tokens = _tokens(context).tokens
    except KafkaError as refused:
        return DescribeDelegationTokenResponse(error_code=refused.code)
    owners: set[Principal] | None = None
    if body.owners is not None:
        owners = set()
        for one in drained(body.owners):
            owners.add(Principal(one.principal_type, one.principal_name))
            yield
    found = []
    for token in tokens:
        if _is_wanted(token, owners) and _may_see(context, request, token):
            found.append(token)
        yield

    def described(token: TokenInformation) -> _Described:
        return _describe(token, tokens.hmac_of(token.token_id))

    return DescribeDelegationTokenResponse(tokens=each(found, described))


def _is_wanted(token: TokenInformation, owners: Collection[Principal] | None) -> bool:
    if owners is None:
        return True
    return any(who in owners for who in (token.owner, token.requester, *token.renewers))


def _may_see(context: Context, request: Request, token: TokenInformation) -> bool:
    return (
        token.concerns(request.connection.principal)
        or context.sees(request, DESCRIBE_TOKEN, token.token_id)
        or context.sees(request, DESCRIBE_TOKENS_OF_USER, str(token.owner))
    )


def _describe(token: TokenInformation, hmac: bytes) -> _Described:
    return _Described(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=each(token.renewers, _renewer),
    )


def _renewer(who: Principal) -> _Renewer:
    return _Renewer(principal_type=who.kind, principal_name=who.name)
