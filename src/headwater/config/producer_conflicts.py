"""Which settings of a producer exclude each other. Pure."""

from collections.abc import Mapping

from headwater.config.keys import SettingsBase, Value


def values_of(settings: SettingsBase) -> dict[str, Value]:
    """The values of `settings` by their keys."""
    return {row.name: getattr(settings, row.attribute) for row in settings.KEYS.values()}


def idempotence_conflict(values: Mapping[str, Value]) -> str | None:
    """Return what idempotence needs and these values do not have."""
    if values["acks"] not in {"all", "-1"}:
        return f"acks=all, not {values['acks']}"
    if values["retries"] == 0:
        return "retries, not retries=0"
    if number(values["max.in.flight.requests.per.connection"]) > 5:
        return "max_in_flight_requests_per_connection of at most 5"
    return None


def transactional_id_problem(name: str) -> str | None:
    """Return what is wrong with a transactional id."""
    return None if name else "it is empty: give a name, or leave it out"


def number(value: Value) -> int:
    """Return a value that is a whole number."""
    if not isinstance(value, int):
        raise TypeError(f"not a whole number: {value!r}")
    return value
