"""What a refused client is told: what it may not do, and the command that grants it."""

from functools import cache
from shlex import quote

from headwater.errors import E
from headwater.security.acls import AclOperation, AclResourceType
from headwater.security.principals import Principal

_PREPOSITION = {
    AclOperation.WRITE: "write to",
    AclOperation.CLUSTER_ACTION: "act as a broker in",
    AclOperation.DESCRIBE_CONFIGS: "describe the configs of",
    AclOperation.ALTER_CONFIGS: "change the configs of",
}
USER = "USER"
"""Stands for a user whose name is not known."""


def spoken(word: AclOperation | AclResourceType) -> str:
    """Return a word as people type it: `transactional-id`."""
    return word.name.lower().replace("_", "-")


def refusal_text(
    user: str | None, operation: AclOperation, resource_type: AclResourceType, name: str, code: E
) -> str:
    """Return one line about a missing right; without a user, it is about this client.

    Names with control characters have no command: nobody must paste those into a terminal.
    """
    verb, kind, grant = _words(operation, resource_type)
    who = f"user {user!r}" if user else "this client"
    what, target = f"{kind} {name!r}", f" {quote(name)}"
    if resource_type is AclResourceType.CLUSTER:
        what, target = "the cluster", ""
    refused = f"{who} may not {verb} {what} ({code.name})"
    command = f"headwater acls allow {quote(user or USER)} {grant}{target}"
    return f"{refused}; grant it with: {command}" if command.isprintable() else refused


@cache
def _words(operation: AclOperation, resource_type: AclResourceType) -> tuple[str, str, str]:
    """Return the verb, the kind of resource, and both as the command takes them."""
    kind = spoken(resource_type)
    verb = _PREPOSITION.get(operation, spoken(operation).replace("-", " "))
    return verb, kind.replace("-", " "), f"{spoken(operation)} {kind}"


def name_for_command(principal: Principal) -> str:
    """Return a principal as `headwater acls` takes it: users without their kind."""
    return principal.name if principal.kind == "User" else str(principal)
