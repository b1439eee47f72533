"""DescribeUserScramCredentials, AlterUserScramCredentials."""

from collections import Counter
from functools import partial

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.broker.turns import Steps, drained, each
from headwater.controller.commands import AlterUsers, CredentialChange, UserOutcome
from headwater.errors import E, KafkaError
from headwater.security.principals import ANONYMOUS
from headwater.security.scram_credentials import (
    MAX_SALT_BYTES,
    SCRAM,
    SCRAM_BY_NUMBER,
    ScramCredential,
    ScramMechanism,
    iterations_problem,
    user_name_problem,
)
from headwater.wire.messages.users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

_Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Credential = DescribeUserScramCredentialsResponse.CredentialInfo
_Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


# -- DescribeUserScramCredentials


def handle_describe_users(
    context: Context, request: Request, body: DescribeUserScramCredentialsRequest
) -> None:
    """Return the mechanisms and iterations of users; without names, of all users that have any."""
    request.reply_in_turns(_describe(context, body))


def _describe(
    context: Context, body: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    counts: dict[str, int] = {}
    for one in drained(body.users or []):
        counts[one.name] = counts.get(one.name, 0) + 1
        yield
    wanted = counts or dict.fromkeys(context.users.names(), 1)
    results = each(wanted.items(), partial(_described, context))
    return DescribeUserScramCredentialsResponse(results=results)


def _described(context: Context, wanted: tuple[str, int]) -> _Described:
    user, count = wanted
    result = _Described(user=user)
    credentials = context.users.of(user)
    if count > 1:
        result.error_code = E.DUPLICATE_RESOURCE
        result.error_message = f"user {user!r} appears twice in the request"
    elif not credentials:
        result.error_code = E.RESOURCE_NOT_FOUND
        result.error_message = f"user {user!r} has no SCRAM credential"
    else:
        result.credential_infos = [
            _Credential(mechanism=SCRAM[name].number, iterations=credential.iterations)
            for name, credential in sorted(credentials.items())
        ]
    return result


# -- AlterUserScramCredentials


def handle_alter_users(
    context: Context, request: Request, body: AlterUserScramCredentialsRequest
) -> Steps[None]:
    """Store and delete credentials; the answer has one result for each user."""
    wanted = _wanted(body)
    counts = Counter(one.name for one in wanted)
    changes: list[CredentialChange] = []
    refused: dict[str, UserOutcome] = {}
    for one in wanted:
        yield
        try:
            changes.append(_change(one, counts))
        except KafkaError as refusal:
            refused[one.name] = UserOutcome(one.name, refusal.code, refusal.message)

    def reply(outcomes: list[UserOutcome]) -> None:
        for change, outcome in zip(changes, outcomes, strict=True):
            if outcome.error is E.NONE:
                context.note_change(request, "users changed", change.user, [_said(change)])
        response = AlterUserScramCredentialsResponse()
        response.results = each([*outcomes, *refused.values()], _altered)
        request.reply_in_turns(response)

    context.controller.submit(AlterUsers(changes), reply)


def refuse_alter(
    request: Request, body: AlterUserScramCredentialsRequest, error: E
) -> AlterUserScramCredentialsResponse:
    """The answer that refuses the whole request."""
    users = dict.fromkeys(one.name for one in _wanted(body))
    return AlterUserScramCredentialsResponse(
        results=[_altered(UserOutcome(user, error, error.text)) for user in users]
    )


def _altered(outcome: UserOutcome) -> _Altered:
    return _Altered(user=outcome.user, error_code=outcome.error, error_message=outcome.message)


def _wanted(body: AlterUserScramCredentialsRequest) -> list[_Deletion | _Upsertion]:
    return [*body.deletions, *body.upsertions]


def _change(one: _Deletion | _Upsertion, counts: Counter[str]) -> CredentialChange:
    problem = user_name_problem(one.name)
    if problem is not None:
        raise KafkaError(E.UNACCEPTABLE_CREDENTIAL, problem)
    if one.name == ANONYMOUS.name and isinstance(one, _Upsertion):
        raise KafkaError(
            E.UNACCEPTABLE_CREDENTIAL,
            f"{one.name} stands for all clients that do not log in: no user may have this name",
        )
    mechanism = SCRAM_BY_NUMBER.get(one.mechanism)
    if mechanism is None:
        raise KafkaError(
            E.UNSUPPORTED_SASL_MECHANISM,
            f"{one.mechanism} is not a SCRAM mechanism; use 1 (SHA-256) or 2 (SHA-512)",
        )
    if counts[one.name] > 1:
        raise KafkaError(
            E.DUPLICATE_RESOURCE,
            "a user credential cannot be altered twice in the same request; send one mechanism "
            "after the other",
        )
    if isinstance(one, _Deletion):
        return CredentialChange(one.name, mechanism.name, None)
    return CredentialChange(one.name, mechanism.name, _credential(mechanism, one).encode())


def _said(change: CredentialChange) -> str:
    return f"{change.mechanism} {'removed' if change.credential is None else 'set'}"


def _credential(mechanism: ScramMechanism, one: _Upsertion) -> ScramCredential:
    salt, salted = bytes(one.salt), bytes(one.salted_password)
    problem = iterations_problem(one.iterations)
    if problem is None and not 0 < len(salt) <= MAX_SALT_BYTES:
        problem = f"the salt must have 1 to {MAX_SALT_BYTES} bytes"
    if problem is None and not salted:
        problem = "the salted password is empty"
    if problem is not None:
        raise KafkaError(E.UNACCEPTABLE_CREDENTIAL, problem)
    return ScramCredential.of_salted_password(mechanism, salt, salted, one.iterations)
