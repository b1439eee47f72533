"""SCRAM users: describe their credentials, set and delete them."""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from headwater.client.admin.arguments import as_list
from headwater.client.admin.calls import AdminCalls
from headwater.client.refusals import told
from headwater.config.keys import ConfigError
from headwater.security.acls import AclOperation
from headwater.security.scram_credentials import (
    DEFAULT_ITERATIONS,
    SALT_BYTES,
    SCRAM,
    SCRAM_BY_NUMBER,
    SCRAM_SHA_512,
    ScramMechanism,
    iterations_problem,
)
from headwater.wire.messages.users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


class UserScramCredentialUpsertion(NamedTuple):
    """A password to set for a user. It is never sent: brokers get only what verifies it."""

    user: str
    password: str
    mechanism: str = SCRAM_SHA_512.name
    iterations: int = DEFAULT_ITERATIONS

    def __repr__(self) -> str:
        return f"UserScramCredentialUpsertion({self.user!r}, {self.mechanism})"


class UserScramCredentialDeletion(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: str = SCRAM_SHA_512.name


UserScramCredentialAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion


class UserAdmin:
    """Describes and changes the SCRAM credentials of users."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, dict[str, int]]:
        wanted = None
        if users is not None:
            names = as_list("describe_user_scram_credentials", users)
            if not names:
                return {}
            wanted = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]

        async def attempt() -> dict[str, dict[str, int]]:
            answer = await self._calls.ask_controller(
                DescribeUserScramCredentialsRequest(users=wanted),
                DescribeUserScramCredentialsResponse,
            )
            whole = ("the description of users", answer.error_code, answer.error_message)
            each = ((one.user, one.error_code, one.error_message) for one in answer.results)
            await self._calls.raise_refusals([whole, *each])
            return {
                one.user: {
                    SCRAM_BY_NUMBER[info.mechanism].name: info.iterations
                    for info in one.credential_infos
                    if info.mechanism in SCRAM_BY_NUMBER
                }
                for one in answer.results
            }

        return await self._calls.retry("the description of users", attempt)

    async def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialAlteration]
    ) -> None:
        request = AlterUserScramCredentialsRequest()
        for one in as_list("alter_user_scram_credentials", alterations):
            if isinstance(one, UserScramCredentialUpsertion):
                request.upsertions.append(await self._upsertion(one))
            else:
                number = _mechanism(one.mechanism).number
                request.deletions.append(_Deletion(name=one.user, mechanism=number))

        async def attempt() -> None:
            answer = await self._calls.ask_controller(request, AlterUserScramCredentialsResponse)
            await self._calls.raise_refusals(
                (one.user, one.error_code, self._told(one)) for one in answer.results
            )

        await self._calls.retry("the change of users", attempt)

    def _told(self, one: AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult) -> str:
        settings, code = self._calls.settings, one.error_code
        return told(settings, code, AclOperation.ALTER, message=one.error_message)

    async def _upsertion(self, one: UserScramCredentialUpsertion) -> _Upsertion:
        mechanism = _mechanism(one.mechanism)
        problem = iterations_problem(one.iterations) or _password_problem(one.password)
        if problem is not None:
            raise ConfigError(f"the password of {one.user} cannot be set: {problem}")
        salt = self._calls.random_bytes(SALT_BYTES)
        salted = await asyncio.to_thread(
            mechanism.salted_password, one.password, salt, one.iterations
        )
        return _Upsertion(
            name=one.user,
            mechanism=mechanism.number,
            iterations=one.iterations,
            salt=salt,
            salted_password=salted,
        )


def _mechanism(name: str) -> ScramMechanism:
    found = SCRAM.get(name)
    if found is None:
        raise ConfigError(f"{name!r} is not a SCRAM mechanism: use {' or '.join(SCRAM)}")
    return found


def _password_problem(password: object) -> str | None:
    """Return why this is not a password, or None; the text is in no message."""
    if not isinstance(password, str) or not password:
        return "give it as text that is not empty"
    try:
        password.encode()
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    return None
