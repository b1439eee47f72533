"""How clients authenticate: Kafka's keys, and those of librdkafka for user and password."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headwater.config.client_oauth import (
    OAUTHBEARER,
    ClientOAuthKeys,
    OAuthCredentials,
    TokenProvider,
    oauth_credentials,
)
from headwater.config.keys import PASSWORD, STRING, ConfigError, Key, Value, key

if TYPE_CHECKING:
    from headwater.config.jaas import JaasEntry

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
_SECTION = "KafkaClient"
_PASSWORD_KEYS = ("sasl.username", "sasl.password")


class ClientSaslKeys(ClientOAuthKeys):
    """The login of a client."""

    # fmt: off
    sasl_mechanism: str | None = key(
        "sasl.mechanism", STRING, default=None, one_of=MECHANISMS,
        doc="How the client proves who it is, where security.protocol begins with SASL.",
        differs="Kafka's default is GSSAPI, which is not supported.",
    )
    sasl_username: str | None = key(
        "sasl.username", STRING, default=None, doc="The user.",
        differs="A key of librdkafka; Kafka has it in sasl.jaas.config, which is read too.",
    )
    sasl_password: str | None = key(
        "sasl.password", PASSWORD, default=None, doc="The password of the user.",
        differs="A key of librdkafka; Kafka has it in sasl.jaas.config, which is read too.",
    )
    sasl_jaas_config: str | None = key(
        "sasl.jaas.config", PASSWORD, default=None,
        doc="User and password as Kafka writes them: org.apache.kafka.common.security.scram."
            "ScramLoginModule required username=\"USER\" password=\"PASSWORD\"; With "
            "tokenauth=\"true\" before the semicolon, they are the id and the HMAC of a delegation token.",
    )
    java_security_auth_login_config: str | None = key(
        "java.security.auth.login.config", STRING, default=None,
        doc="A JAAS file with a section KafkaClient, where no other key names the user.",
        differs="For Kafka, it is a system property of Java.",
    )
    # fmt: on


class SaslCredentials(NamedTuple):
    """Who a client is."""

    mechanism: str
    user: str
    password: str
    by_token: bool = False
    """Whether the user is the id of a delegation token, and the password its HMAC."""

    def __repr__(self) -> str:
        return f"SaslCredentials({self.mechanism}, {self.user!r})"


Credentials: TypeAlias = SaslCredentials | OAuthCredentials


def sasl_credentials(
    values: Mapping[str, Value], provider: tuple[str, TokenProvider] | None = None
) -> Credentials | None:
    """Return the login among the values of a client; ConfigError for one that cannot work."""
    protocol = str(values["security.protocol"])
    if not protocol.startswith("SASL_"):
        _refuse_without_sasl(values, protocol, provider)
        return None
    mechanism = values["sasl.mechanism"]
    if mechanism is None and provider is not None:
        mechanism = OAUTHBEARER
    entries = _entries(values)
    if entries is not None and _set(values, [ClientSaslKeys.KEYS[name] for name in _PASSWORD_KEYS]):
        raise ConfigError(
            "sasl.username and sasl.password are set beside a JAAS configuration: keep one of both"
        )
    entry = None if entries is None else _entry_for(entries, mechanism)
    if mechanism is None and entry is not None and len(entry.mechanisms) == 1:
        mechanism = entry.mechanisms[0]
    if mechanism is None:
        raise ConfigError(
            f"security.protocol={protocol} needs a mechanism: set sasl.mechanism to one of "
            f"{', '.join(MECHANISMS)}"
        )
    _refuse_other_logins(values, mechanism, provider)
    if mechanism == OAUTHBEARER:
        return oauth_credentials(values, entry, provider)
    return _password(values, str(mechanism), entry)


def _password(
    values: Mapping[str, Value], mechanism: str, entry: "JaasEntry | None"
) -> SaslCredentials:
    user, password = values["sasl.username"], values["sasl.password"]
    if entry is not None:
        user, password = entry.options.get("username"), entry.options.get("password")
    if not user or not password:
        raise ConfigError(
            f"security.protocol={values['security.protocol']} needs a user and a password: set "
            "sasl.username and sasl.password, or sasl.jaas.config"
        )
    by_token = entry is not None and entry.options.get("tokenauth", "").lower() == "true"
    if by_token and not mechanism.startswith("SCRAM-"):
        raise ConfigError(
            f'tokenauth="true" is for SCRAM, and sasl.mechanism={mechanism}: use SCRAM-SHA-512'
        )
    return SaslCredentials(mechanism, str(user), str(password), by_token)


def _refuse_other_logins(
    values: Mapping[str, Value], mechanism: Value, provider: tuple[str, TokenProvider] | None
) -> None:
    """Raise ConfigError for a login of another mechanism, which would not be used."""
    if mechanism == OAUTHBEARER:
        others = _set(values, [ClientSaslKeys.KEYS[name] for name in _PASSWORD_KEYS])
    elif provider is not None:
        others = [provider[0]]
    else:
        rows = ClientOAuthKeys.KEYS.items()
        others = _set(values, [row for name, row in rows if "oauthbearer" in name])
    for name in others:
        raise ConfigError(f"{name} is set, but sasl.mechanism={mechanism} does not use it")


def _refuse_without_sasl(
    values: Mapping[str, Value], protocol: str, provider: tuple[str, TokenProvider] | None
) -> None:
    given = [provider[0]] if provider else _set(values, ClientSaslKeys.KEYS.values())
    for name in given:
        raise ConfigError(
            f"{name} is set, but security.protocol={protocol} does not authenticate: set "
            "security.protocol=SASL_SSL"
        )


def _set(values: Mapping[str, Value], rows: Iterable[Key]) -> list[str]:
    return [row.name for row in rows if values[row.name] != row.default]


def _entries(values: Mapping[str, Value]) -> "list[JaasEntry] | None":
    from headwater.config.jaas import parse_jaas, read_jaas_file  # most clients need it never

    text, file = values["sasl.jaas.config"], values["java.security.auth.login.config"]
    if text is not None:
        try:
            return parse_jaas(str(text))
        except ConfigError as problem:
            raise ConfigError(f"sasl.jaas.config: {problem.message}") from None
    if file is None or values["sasl.username"] is not None:
        return None
    sections = read_jaas_file(str(file))
    if _SECTION not in sections:
        raise ConfigError(f"{file} has no section {_SECTION}")
    return sections[_SECTION]


def _entry_for(entries: "list[JaasEntry]", mechanism: Value) -> "JaasEntry":
    for entry in entries:
        if mechanism is None or mechanism in entry.mechanisms:
            return entry
    raise ConfigError(f"the JAAS configuration has no login module for sasl.mechanism={mechanism}")
