"""Authentication of clients with tokens of an identity provider (OAUTHBEARER)."""

from headwater.config.keys import BOOLEAN, CLASS, INT, LIST, LONG, STRING, SettingsBase, key
from headwater.config.urls import url_problem

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_VALIDATORS = tuple(
    f"{_PACKAGE}{name}OAuthBearerValidatorCallbackHandler" for name in ("", "secured.")
)


class OAuthBearerKeys(SettingsBase):
    """OAUTHBEARER of listeners. Every key may differ by listener."""

    # fmt: off
    sasl_oauthbearer_jwks_endpoint_url: str | None = key(
        "sasl.oauthbearer.jwks.endpoint.url", STRING, default=None, check=url_problem,
        per_listener=True,
        doc="Where the keys of the identity provider are (JWKS): an https: URL, an http: URL in a "
            "network you trust, or file:///PATH.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = key(
        "sasl.oauthbearer.expected.audience", LIST, default=(), per_listener=True,
        doc="The audiences (aud) of which a token must have one. Required.",
        differs="Kafka before 4.4 accepts tokens for anybody if it is not set.",
    )
    sasl_oauthbearer_expected_issuer: str | None = key(
        "sasl.oauthbearer.expected.issuer", STRING, default=None, per_listener=True,
        doc="The issuer (iss) that a token must have. Required.",
        differs="Kafka before 4.4 accepts tokens of anybody with the key if it is not set.",
    )
    sasl_oauthbearer_allow_unverified_audience: bool = key(
        "sasl.oauthbearer.allow.unverified.audience", BOOLEAN, default=False, per_listener=True,
        doc="Start without an expected audience or issuer, and accept tokens that the provider made "
            "for other services.",
    )
    sasl_oauthbearer_scope_claim_name: str = key(
        "sasl.oauthbearer.scope.claim.name", STRING, default="scope", per_listener=True,
        doc="The claim with the scopes of a token, which must be text or a list of texts.",
    )
    sasl_oauthbearer_sub_claim_name: str = key(
        "sasl.oauthbearer.sub.claim.name", STRING, default="sub", per_listener=True,
        doc="The claim that is the name of the user.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = key(
        "sasl.oauthbearer.clock.skew.seconds", INT, default=30, at_least=0, at_most=3600,
        per_listener=True,
        doc="By how much the clocks of provider and broker may differ.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = key(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, default=3_600_000, at_least=1000,
        at_most=86_400_000, per_listener=True,
        doc="How often the keys are fetched. An unknown key has them fetched at once, but not "
            "more often than every 10 s.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, default=100, at_least=10,
        per_listener=True,
        doc="The pause before failed fetches are repeated; it doubles with each failure. Keys that "
            "were fetched before stay in use.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, default=10_000, at_least=10,
        per_listener=True,
        doc="The longest pause before a failed fetch is repeated.",
    )
    sasl_server_callback_handler_class: str | None = key(
        "sasl.server.callback.handler.class", CLASS, default=None, one_of=_VALIDATORS,
        per_listener=True,
        doc="The class of Java that checks tokens.",
        idle="tokens are always checked as this class does",
    )
    # fmt: on
