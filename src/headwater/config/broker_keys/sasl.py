"""Authentication of clients with SASL."""

from headwater.config.keys import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    PASSWORD,
    STRING,
    Mode,
    SettingsBase,
    key,
)

SASL_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")


class SaslKeys(SettingsBase):
    """SASL listeners. Most keys may differ by listener and mechanism."""

    # fmt: off
    sasl_enabled_mechanisms: tuple[str, ...] = key(
        "sasl.enabled.mechanisms", LIST, default=("SCRAM-SHA-256", "SCRAM-SHA-512"),
        one_of=SASL_MECHANISMS, per_listener=True,
        doc="The mechanisms that a SASL listener offers. Users of SCRAM are in the metadata store "
            "(headwater users add); PLAIN has those of sasl.jaas.config, and is offered without TLS "
            "only with sasl.plain.without.tls; OAUTHBEARER takes tokens of an identity provider "
            "(sasl.oauthbearer.jwks.endpoint.url).",
        differs="Kafka's default is GSSAPI, which is not supported.",
    )
    sasl_scram_users_file: str | None = key(
        "sasl.scram.users.file", STRING, default=None,
        doc="A file with credentials of SCRAM users, as `headwater security init` makes it. A "
            "controller that is elected adds those users to the cluster that no controller added "
            "before; headwater users changes and removes them.",
        differs="Kafka has no such key: there, kafka-storage format --add-scram adds first users.",
    )
    sasl_jaas_config: str | None = key(
        "sasl.jaas.config", PASSWORD, default=None, per_listener=True,
        doc="The users of PLAIN as Kafka writes them: org.apache.kafka.common.security.plain."
            "PlainLoginModule required user_NAME=\"PASSWORD\" ...; Set it for one listener: "
            "listener.name.NAME.plain.sasl.jaas.config.",
    )
    java_security_auth_login_config: str | None = key(
        "java.security.auth.login.config", STRING, default=None,
        doc="A JAAS file, where sasl.jaas.config is not set: its section NAME.KafkaServer, with the "
            "name of the listener in lower case, or KafkaServer.",
        differs="For Kafka, it is a system property of Java.",
    )
    sasl_plain_without_tls: bool = key(
        "sasl.plain.without.tls", BOOLEAN, default=False, per_listener=True,
        doc="Offer PLAIN on SASL_PLAINTEXT listeners, where passwords cross the network unencrypted.",
        differs="Kafka has no such key: there, PLAIN is always offered.",
    )
    sasl_mechanism_inter_broker_protocol: str = key(
        "sasl.mechanism.inter.broker.protocol", STRING, default="GSSAPI", mode=Mode.PER_BROKER,
        doc="The mechanism between brokers.",
        idle="brokers prove to each other that they know the secret of the cluster, on every listener",
    )
    sasl_server_max_receive_size: int = key(
        "sasl.server.max.receive.size", INT, default=524_288, at_least=1,
        doc="The largest request of a client that has not authenticated.",
    )
    connections_max_reauth_ms: int = key(
        "connections.max.reauth.ms", LONG, default=0, at_least=0, per_listener=True,
        doc="How long a client is served before it has to authenticate again on the same connection; "
            "0 for as long as the connection. A connection that does not do so is closed.",
    )
    connection_failed_authentication_delay_ms: int = key(
        "connection.failed.authentication.delay.ms", INT, default=100, at_least=0, at_most=10_000,
        doc="How long the answer to a failed authentication is delayed, which slows down guessing.",
    )
    # fmt: on
