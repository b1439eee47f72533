"""Where a client connects, and how: what each client calls the settings for it."""

import ssl
from dataclasses import dataclass
from typing import Any

from benchmarks.security.login import PASSWORD, USER


@dataclass(frozen=True)
class Place:
    """A listener; with an authority it asks for TLS 1.3 and a login with PLAIN."""

    bootstrap: str
    authority: str = ""
    """The file with the certificate that signed the broker's."""

    def headwater(self) -> dict[str, Any]:
        """For our clients."""
        if not self.authority:
            return {"bootstrap_servers": self.bootstrap}
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": self.authority,
            "sasl_mechanism": "PLAIN",
            "sasl_username": USER,
            "sasl_password": PASSWORD,
        }

    def librdkafka(self) -> dict[str, Any]:
        """For confluent-kafka."""
        settings = {name.replace("_", "."): value for name, value in self.headwater().items()}
        if self.authority:
            settings["ssl.ca.location"] = settings.pop("ssl.cafile")
        return settings

    def kafka_python(self) -> dict[str, Any]:
        """For kafka-python."""
        settings = self.headwater()
        if self.authority:
            settings["sasl_plain_username"] = settings.pop("sasl_username")
            settings["sasl_plain_password"] = settings.pop("sasl_password")
        return settings

    def aiokafka(self) -> dict[str, Any]:
        """For aiokafka."""
        settings = self.kafka_python()
        if self.authority:
            authority = settings.pop("ssl_cafile")
            settings["ssl_context"] = ssl.create_default_context(cafile=authority)
        return settings
