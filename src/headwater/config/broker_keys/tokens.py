"""Delegation tokens."""

from headwater.config.keys import LONG, PASSWORD, SettingsBase, key


def _problem_of_secret(text: str) -> str | None:
    return None if text else "it is empty: leave it out, or give a long random text"


class DelegationTokenKeys(SettingsBase):
    """Delegation tokens (KIP-48), which clients make, and with which others log in."""

    # fmt: off
    delegation_token_secret_key: str | None = key(
        "delegation.token.secret.key", PASSWORD, default=None, check=_problem_of_secret,
        doc="The secret that delegation tokens are made with, the same on all brokers of a cluster. "
            "Without it, there are no delegation tokens.",
    )
    delegation_token_max_lifetime_ms: int = key(
        "delegation.token.max.lifetime.ms", LONG, default=604_800_000, at_least=1,
        doc="How long a delegation token lasts at most, however often it is renewed.",
    )
    delegation_token_expiry_time_ms: int = key(
        "delegation.token.expiry.time.ms", LONG, default=86_400_000, at_least=1,
        doc="How long a delegation token lasts from its creation, and from each renewal.",
    )
    delegation_token_expiry_check_interval_ms: int = key(
        "delegation.token.expiry.check.interval.ms", LONG, default=3_600_000, at_least=1,
        doc="How often the controller removes delegation tokens that have expired. Nobody can log in "
            "with them before that either.",
    )
    # fmt: on
