"""Who may do what."""

from headwater.config.keys import BOOLEAN, STRING, SettingsBase, key

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZERS = (
    STANDARD_AUTHORIZER,
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)


def _problem_of_principals(text: str) -> str | None:
    for who in parse_principals(text):
        kind, colon, name = who.partition(":")
        if not (kind and colon and name):
            return f"{who!r} is not like User:alice; separate several with ;"
    return None


def parse_principals(text: str) -> tuple[str, ...]:
    """The principals of a list with semicolons."""
    return tuple(who.strip() for who in text.split(";") if who.strip())


class AuthorizationKeys(SettingsBase):
    """The authorizer and those whom it does not bind."""

    # fmt: off
    security_profile: str = key(
        "security.profile", STRING, default="none", one_of=("none", "hardened"),
        doc="hardened: only encrypted listeners where clients log in, nothing without an ACL, and "
            "tight limits for strangers. The start logs what it sets, and refuses settings that "
            "contradict it; docs/security.md has the list.",
        differs="Kafka has no such key.",
    )
    authorizer_class_name: str = key(
        "authorizer.class.name", STRING, default="", one_of=("", *AUTHORIZERS),
        doc="The authorizer, under any of Kafka's names: ACLs then decide about every request. Empty: "
            "every client may do everything, except to act as a broker.",
    )
    super_users: str = key(
        "super.users", STRING, default="", check=_problem_of_principals,
        doc="Principals that may do everything, separated by semicolons: User:admin;User:ops.",
    )
    allow_everyone_if_no_acl_found: bool = key(
        "allow.everyone.if.no.acl.found", BOOLEAN, default=False,
        doc="Whether a resource that no ACL covers is open to everyone.",
    )
