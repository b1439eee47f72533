"""What a refused client is told: what it may not do, and the command that grants it."""

import shlex

from headwater.errors import E
from headwater.security.acls import AclOperation, AclResourceType
from headwater.security.principals import Principal

_PREPOSITION = {AclOperation.WRITE: "write to", AclOperation.CLUSTER_ACTION: "act as a broker in"}
USER = "USER"
"""Stands for a user whose name is not known."""


def spoken(word: AclOperation | AclResourceType) -> str:
    """Return a word as people type it: `transactional-id`."""
    return word.name.lower().replace("_", "-")


def refusal_text(
    user: str | None, operation: AclOperation, resource_type: AclResourceType, name: str, code: E
) -> str:
    """Return one line about a missing right; without a user, it is about this client."""
    verb = _PREPOSITION.get(operation, spoken(operation).replace("-", " "))
    kind = spoken(resource_type)
    whole = resource_type is AclResourceType.CLUSTER
    what = "the cluster" if whole else f"{kind.replace('-', ' ')} {name!r}"
    who = f"user {user!r}" if user else "this client"
    command = ["headwater", "acls", "allow", user or USER, spoken(operation), kind]
    grant = shlex.join(command if whole else [*command, name])
    return f"{who} may not {verb} {what} ({code.name}); grant it with: {grant}"


def name_for_command(principal: Principal) -> str:
    """Return a principal as `headwater acls` takes it: users without their kind."""
    return principal.name if principal.kind == "User" else str(principal)
