"""TLS of a broker's listeners."""

from headwater.config.keys import BOOLEAN, STRING, Mode, key
from headwater.config.mapping_rules import rules_problem
from headwater.config.tls import TlsKeys


class BrokerTlsKeys(TlsKeys):
    """What listeners ask of clients."""

    # fmt: off
    ssl_client_auth: str = key(
        "ssl.client.auth", STRING, default="none", one_of=("none", "requested", "required"),
        per_listener=True,
        doc="Whether clients of a TLS listener show a certificate, which makes them a user: not "
            "asked, asked, or refused without one.",
    )
    ssl_principal_mapping_rules: str = key(
        "ssl.principal.mapping.rules", STRING, default="DEFAULT", check=rules_problem,
        per_listener=True,
        doc="How the subject of a client's certificate becomes the name of a user: rules "
            "RULE:pattern/replacement/[L|U] separated by commas, of which the first match counts, "
            "or DEFAULT for the whole subject. A client that no rule matches is refused.",
    )
    ssl_allow_dn_changes: bool = key(
        "ssl.allow.dn.changes", BOOLEAN, default=False, mode=Mode.PER_BROKER, per_listener=True,
        doc="Accept a new certificate with another subject while the broker runs.",
    )
    ssl_allow_san_changes: bool = key(
        "ssl.allow.san.changes", BOOLEAN, default=False, mode=Mode.PER_BROKER, per_listener=True,
        doc="Accept a new certificate without all names of the old one while the broker runs.",
    )
    # fmt: on
