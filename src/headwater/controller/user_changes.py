"""Stores the SCRAM credentials of users."""

from collections.abc import Iterator

from headwater.controller.commands import AlterUsers, CredentialChange, UserOutcome
from headwater.controller.outstanding import Outstanding
from headwater.controller.stored_configs import StoredConfigs
from headwater.errors import E

USERS_PER_STEP = 10


class UserChanges:
    """Decides about changes of credentials; other configs of a user stay as they are."""

    def __init__(self, outstanding: Outstanding, configs: StoredConfigs) -> None:
        self._outstanding = outstanding
        self._configs = configs

    def alter(self, command: AlterUsers, token: int) -> Iterator[None]:
        outcomes = []
        for number, change in enumerate(command.changes, 1):
            outcomes.append(self._alter_one(change, token))
            if number % USERS_PER_STEP == 0:
                yield
        self._outstanding.decided(token, outcomes)

    def _alter_one(self, change: CredentialChange, token: int) -> UserOutcome:
        entity = ("users", change.user)
        present = self._configs.overrides(entity)
        if change.credential is not None:
            overrides = {**present, change.mechanism: change.credential}
        elif change.mechanism in present:
            overrides = {name: value for name, value in present.items() if name != change.mechanism}
        else:
            return UserOutcome(
                change.user,
                E.RESOURCE_NOT_FOUND,
                f"user {change.user!r} has no {change.mechanism} credential",
            )
        self._configs.store(entity, overrides, token)
        return UserOutcome(change.user)
