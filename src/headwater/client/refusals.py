"""Errors about missing rights, with the command that grants them."""

from headwater.client.errors import ClientError, failure
from headwater.config.client import ClientSettings
from headwater.config.client_sasl import SaslCredentials
from headwater.errors import E, error_of
from headwater.security.acls import AclOperation, AclResourceType
from headwater.security.principals import ANONYMOUS
from headwater.security.refusals import refusal_text

_RESOURCES = {
    E.TOPIC_AUTHORIZATION_FAILED: AclResourceType.TOPIC,
    E.GROUP_AUTHORIZATION_FAILED: AclResourceType.GROUP,
    E.CLUSTER_AUTHORIZATION_FAILED: AclResourceType.CLUSTER,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AclResourceType.TRANSACTIONAL_ID,
}
_NEEDS = {"producer": AclOperation.WRITE, "consumer": AclOperation.READ}


def refused(
    settings: ClientSettings, code: int, name: str, about: str | None = None
) -> ClientError:
    """Return the error for a code about `name`: a topic, a group or a transactional id.

    A missing right is the right that the role of the client needs. Any other error is about `about`.
    """
    problem = error_of(code)
    kind = _RESOURCES.get(problem)
    if kind is None:
        return failure(code, f"{about or name}: {problem.text}")
    operation = _NEEDS.get(settings.ROLE, AclOperation.DESCRIBE)
    if kind is AclResourceType.GROUP and operation is AclOperation.WRITE:
        operation = AclOperation.READ
    return failure(code, refusal_text(user_of(settings), operation, kind, name, problem))


def told(
    settings: ClientSettings,
    code: int,
    operation: AclOperation,
    name: str = "",
    message: str | None = None,
) -> str:
    """Return the broker's `message`, or the text for its code; a missing right is `operation`.

    `name` is that of the topic or group; the cluster needs none.
    """
    problem = error_of(code)
    kind = _RESOURCES.get(problem)
    if kind is None:
        return message or problem.text
    return refusal_text(user_of(settings), operation, kind, name, problem)


def user_of(settings: ClientSettings) -> str | None:
    """Return the name under which brokers know this client; None if only they know it."""
    if isinstance(settings.login, SaslCredentials):
        return None if settings.login.by_token else settings.login.user  # a token has an owner
    if settings.login is not None:
        return None
    return ANONYMOUS.name if settings.security_protocol == "PLAINTEXT" else None
