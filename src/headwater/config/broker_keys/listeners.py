"""The addresses of a broker."""

from headwater.config.addresses import metrics_problem
from headwater.config.keys import LIST, STRING, SettingsBase, key


class ListenerKeys(SettingsBase):
    """Where the broker listens, and which listener has which purpose."""

    # fmt: off
    listeners: tuple[str, ...] = key(
        "listeners", LIST, default=("PLAINTEXT://127.0.0.1:9092",),
        doc="Where to listen: NAME://HOST:PORT, separated by commas. An empty host means every "
            "network of the machine, port 0 a free port.",
        differs="Kafka listens on every network; a broker without authentication should be asked "
                "to do that.",
    )
    advertised_listeners: tuple[str, ...] = key(
        "advertised.listeners", LIST, default=None,
        doc="The addresses that clients connect to, if they differ from listeners (containers, "
            "NAT).",
    )
    listener_security_protocol_map: str = key(
        "listener.security.protocol.map", STRING,
        default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="The security protocol of each listener name, as NAME:PROTOCOL pairs.",
    )
    inter_broker_listener_name: str | None = key(
        "inter.broker.listener.name", STRING, default=None,
        doc="The listener for traffic between brokers. Default: the listener named like "
            "security.inter.broker.protocol.",
    )
    control_plane_listener_name: str | None = key(
        "control.plane.listener.name", STRING, default=None,
        doc="A listener for requests of the controller alone, so that neither clients nor "
            "replication can delay them. Default: the inter-broker listener.",
    )
    security_inter_broker_protocol: str = key(
        "security.inter.broker.protocol", STRING, default="PLAINTEXT",
        one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="The protocol between brokers if inter.broker.listener.name is not set.",
    )
    metrics_listener: str = key(
        "metrics.listener", STRING, default="127.0.0.1:9404", check=metrics_problem,
        doc="Where /metrics, /healthz and /readyz are served over HTTP: HOST:PORT; port 0 takes a "
            "free one, and so does the default if it is taken. Empty: nowhere.",
        differs="Kafka has JMX instead.",
    )
    # fmt: on
