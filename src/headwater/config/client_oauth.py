"""How clients get the tokens that they log in with (OAUTHBEARER)."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from headwater.config.keys import (
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    ConfigError,
    SettingsBase,
    Value,
    key,
)
from headwater.config.urls import url_problem

if TYPE_CHECKING:
    from headwater.config.jaas import JaasEntry
    from headwater.config.tls import TlsSettings

OAUTHBEARER = "OAUTHBEARER"
PROVIDERS: Final = {
    "sasl_oauth_token_provider": "A callable that returns a token for sasl_mechanism=OAUTHBEARER, or "
    "a tuple of the token and the time when it expires, in seconds since 1970; or an object with "
    "token() and extensions(), as for kafka-python. It may be async, and may block.",
    "oauth_cb": "The same, as for confluent-kafka: it is called with sasl_oauthbearer_config.",
}
"""Keywords for a program's own source of tokens, with what they do."""
TokenProvider: TypeAlias = Callable[..., Any] | Any
"""A callable, or an object with `token()` and maybe `extensions()`, as kafka-python has them."""

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_HANDLERS = tuple(f"{_PACKAGE}{name}OAuthBearerLoginCallbackHandler" for name in ("", "secured."))
_URL = "sasl.oauthbearer.token.endpoint.url"
_ID = "sasl.oauthbearer.client.credentials.client.id"
_SECRET = "sasl.oauthbearer.client.credentials.client.secret"


def _handler_problem(name: str) -> str | None:
    return None if name in _HANDLERS else f"it takes {_HANDLERS[0]}"


class ClientOAuthKeys(SettingsBase):
    """The tokens of a client."""

    # fmt: off
    sasl_oauthbearer_token_endpoint_url: str | None = key(
        _URL, STRING, default=None, check=url_problem,
        doc="Where the client gets a token for its id and secret: an https: URL. Or file:///PATH of "
            "a file with a token, which something else renews.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = key(
        _ID, STRING, default=None, doc="The id of the client at the identity provider.",
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = key(
        _SECRET, PASSWORD, default=None, doc="The secret of the client at the identity provider.",
    )
    sasl_oauthbearer_scope: str | None = key(
        "sasl.oauthbearer.scope", STRING, default=None,
        doc="The scope that the client asks for; scopes are separated by spaces.",
    )
    sasl_oauthbearer_header_urlencode: bool = key(
        "sasl.oauthbearer.header.urlencode", BOOLEAN, default=False,
        doc="Encode id and secret as in URLs before they are sent, as RFC 6749 says.",
    )
    sasl_oauthbearer_config: str = key(
        "sasl.oauthbearer.config", STRING, default="", doc="What oauth_cb is called with.",
        differs="A key of librdkafka.",
    )
    https_ca_location: str | None = key(
        "https.ca.location", STRING, default=None,
        doc="A PEM file with the authorities that the token endpoint's certificate may be signed "
            "by. Default: those that the system trusts.",
        differs="A key of librdkafka; Kafka has ssl.truststore.location in sasl.jaas.config, which "
            "is read too.",
    )
    sasl_login_connect_timeout_ms: int = key(
        "sasl.login.connect.timeout.ms", INT, default=5000, at_least=1,
        doc="How long to wait for the next part of the token endpoint's answer.",
        differs="Kafka waits without limit.",
    )
    sasl_login_read_timeout_ms: int = key(
        "sasl.login.read.timeout.ms", INT, default=10_000, at_least=1,
        doc="The time limit for the complete answer of the token endpoint.",
        differs="Kafka waits without limit.",
    )
    sasl_login_retry_backoff_ms: int = key(
        "sasl.login.retry.backoff.ms", LONG, default=100, at_least=0,
        doc="The pause after a failed attempt to get a token; it doubles with each failure.",
    )
    sasl_login_retry_backoff_max_ms: int = key(
        "sasl.login.retry.backoff.max.ms", LONG, default=10_000, at_least=0,
        doc="The longest pause after a failed attempt to get a token.",
    )
    sasl_login_refresh_window_factor: float = key(
        "sasl.login.refresh.window.factor", DOUBLE, default=0.8, at_least=0.5, at_most=1.0,
        doc="The part of a token's lifetime after which it is replaced.",
    )
    sasl_login_refresh_window_jitter: float = key(
        "sasl.login.refresh.window.jitter", DOUBLE, default=0.05, at_least=0.0, at_most=0.25,
        doc="The random part of that moment, as a share of the lifetime.",
    )
    sasl_login_refresh_min_period_seconds: int = key(
        "sasl.login.refresh.min.period.seconds", SHORT, default=60, at_least=0, at_most=900,
        doc="The minimum time between two tokens, if the lifetime allows it.",
    )
    sasl_login_refresh_buffer_seconds: int = key(
        "sasl.login.refresh.buffer.seconds", SHORT, default=300, at_least=0, at_most=3600,
        doc="How long before its expiry a token is replaced, if the lifetime allows it.",
    )
    sasl_login_callback_handler_class: str | None = key(
        "sasl.login.callback.handler.class", STRING, default=None, check=_handler_problem,
        doc="The class of Java that gets tokens.",
        idle="tokens are always taken as this class does",
    )
    # fmt: on


class RefreshWindow(NamedTuple):
    """When a token is replaced."""

    factor: float
    jitter: float
    min_period_ms: int
    buffer_ms: int


class OAuthCredentials(NamedTuple):
    """Where the tokens of a client come from."""

    url: str | None
    client_id: str
    client_secret: str
    scope: str | None
    urlencode: bool
    extensions: tuple[tuple[str, str], ...]
    trust: "TlsSettings"
    connect_timeout_ms: int
    read_timeout_ms: int
    retry_ms: int
    retry_max_ms: int
    window: RefreshWindow
    provider: TokenProvider | None = None
    provider_config: str | None = None
    """What the provider is called with; None for a call without arguments."""

    @property
    def mechanism(self) -> str:
        return OAUTHBEARER

    def __repr__(self) -> str:
        return f"OAuthCredentials({self.source})"

    @property
    def source(self) -> str:
        """Return where tokens come from, for messages."""
        if self.provider is not None:
            return "the token provider"
        return str(self.url)


def take_provider(keywords: dict[str, Any]) -> tuple[str, TokenProvider] | None:
    """Take the program's own source of tokens out of a client's keywords."""
    given = [name for name in PROVIDERS if keywords.get(name) is not None]
    found = [(name, keywords[name]) for name in given]
    for name in PROVIDERS:
        keywords.pop(name, None)
    if not found:
        return None
    if len(found) > 1:
        raise ConfigError(f"{' and '.join(given)} are both set: keep one")
    name, provider = found[0]
    if not callable(provider) and not callable(getattr(provider, "token", None)):
        raise ConfigError(
            f"{name} takes a callable that returns a token, or an object with a method token(); "
            f"where only text can be set, use {_URL}"
        )
    return found[0]


def oauth_credentials(
    values: Mapping[str, Value],
    entry: "JaasEntry | None",
    provider: tuple[str, TokenProvider] | None,
) -> OAuthCredentials:
    """Return where a client's tokens come from; ConfigError if that cannot work."""
    from headwater.config.oauth_module import EXTENSION, refuse_unknown_options, trust_of

    options: Mapping[str, str] = {}
    if entry is not None:
        refuse_unknown_options(entry)
        options = entry.options
    url = values[_URL]
    client_id = _one_of(values, _ID, options, "clientId")
    secret = _one_of(values, _SECRET, options, "clientSecret")
    _refuse_incomplete(url, client_id, secret, provider)
    trusted = {name: text for name, text in options.items() if name.startswith("ssl.")}
    if values["https.ca.location"] is not None:
        trusted["ssl.truststore.location"] = str(values["https.ca.location"])
    name, call = provider or ("", None)
    return OAuthCredentials(
        None if url is None else str(url),
        client_id or "",
        secret or "",
        _one_of(values, "sasl.oauthbearer.scope", options, "scope"),
        bool(values["sasl.oauthbearer.header.urlencode"]),
        tuple(
            (option.removeprefix(EXTENSION), text)
            for option, text in options.items()
            if option.startswith(EXTENSION)
        ),
        trust_of(trusted),
        _number(values, "sasl.login.connect.timeout.ms"),
        _number(values, "sasl.login.read.timeout.ms"),
        _number(values, "sasl.login.retry.backoff.ms"),
        _number(values, "sasl.login.retry.backoff.max.ms"),
        RefreshWindow(
            float(str(values["sasl.login.refresh.window.factor"])),
            float(str(values["sasl.login.refresh.window.jitter"])),
            1000 * _number(values, "sasl.login.refresh.min.period.seconds"),
            1000 * _number(values, "sasl.login.refresh.buffer.seconds"),
        ),
        call,
        str(values["sasl.oauthbearer.config"]) if name == "oauth_cb" else None,
    )


def _refuse_incomplete(
    url: Value,
    client_id: str | None,
    secret: str | None,
    provider: tuple[str, TokenProvider] | None,
) -> None:
    if provider is not None:
        if url is not None:
            raise ConfigError(f"{provider[0]} and {_URL} are both set: keep one")
        return
    if url is None:
        raise ConfigError(
            f"sasl.mechanism={OAUTHBEARER} needs a source of tokens: set {_URL}, or pass "
            f"sasl_oauth_token_provider to the client"
        )
    is_file = str(url).startswith("file:")
    if is_file and (client_id or secret):
        raise ConfigError(f"{_URL}={url} is a file with a token: remove the client id and secret")
    if not is_file and not (client_id and secret):
        raise ConfigError(f"{_URL} needs {_ID} and {_SECRET}, or clientId and clientSecret in JAAS")


def _one_of(
    values: Mapping[str, Value], name: str, options: Mapping[str, str], option: str
) -> str | None:
    value = values[name]
    if value is not None and option in options:
        raise ConfigError(f"{name} is set, and {option} in sasl.jaas.config: keep one of both")
    return options.get(option) if value is None else str(value)


def _number(values: Mapping[str, Value], name: str) -> int:
    return int(str(values[name]))
