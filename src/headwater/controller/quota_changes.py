"""Stores the quotas of users, client ids and addresses."""

from collections.abc import Iterator

from headwater.controller.commands import AlterQuotas, QuotaChange, QuotaOutcome
from headwater.controller.outstanding import Outstanding
from headwater.controller.stored_configs import StoredConfigs

ENTITIES_PER_STEP = 10


class QuotaChanges:
    """Carries out changes of quotas; the credentials of a user stay as they are."""

    def __init__(self, outstanding: Outstanding, configs: StoredConfigs) -> None:
        self._outstanding = outstanding
        self._configs = configs

    def alter(self, command: AlterQuotas, token: int) -> Iterator[None]:
        for number, change in enumerate(command.changes, 1):
            self._alter_one(change, token)
            if number % ENTITIES_PER_STEP == 0:
                yield
        self._outstanding.decided(token, [QuotaOutcome() for _ in command.changes])

    def _alter_one(self, change: QuotaChange, token: int) -> None:
        overrides = dict(self._configs.overrides(change.entity))
        said = []
        for key, value in change.quotas.items():
            if value is not None:
                overrides[key] = value
                said.append(f"{key}={value}")
            elif overrides.pop(key, None) is not None:
                said.append(f"{key} removed")
        if said:
            event = f"quotas of {change.shown} changed: {', '.join(said)}"
            self._configs.store(change.entity, overrides, token, event)
