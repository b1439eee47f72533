"""The users of a secured cluster, their passwords, and the settings of brokers and clients."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from headwater.config.broker_keys.authorization import STANDARD_AUTHORIZER
from headwater.security.scram_credentials import SCRAM_SHA_256, ScramMechanism
from simulator.randomness import Stream

PROTOCOL = "SASL_PLAINTEXT"
SECRET = b"s3cret-"
"""What every password begins with: it must be in no log line, no answer and no node of the store."""
ADMIN, APP, STRANGER, BROKER = "admin", "app", "stranger", "broker"
"""The administrator is a super user; the application has rights on all topics but no others."""
OF = {"alice": "of-alice", "bob": "of-bob"}
"""The topic of each tenant."""
SESSIONS_MS = (2500, 4000, 30_000)
ITERATIONS = 4096

# Every simulated process derives the same keys from the same few passwords, which takes milliseconds.
ScramMechanism.salted_password = lru_cache(maxsize=256)(  # type: ignore[method-assign]
    ScramMechanism.salted_password
)


def user_of(host: str) -> str:
    """Return the user of a client's host."""
    kind, _, rest = host.partition(" ")
    if kind == "tenant":
        return rest.partition(" ")[0]
    if kind.startswith(BROKER):
        return BROKER
    return {"warden": ADMIN, "stranger": STRANGER}.get(kind, APP)


@dataclass
class Password:
    """The password of a tenant, and those that it replaced."""

    user: str
    text: str = ""
    """What was set last, maybe without an answer."""
    replaced: list[tuple[int, str]] = field(default_factory=list)
    """When its replacement was acknowledged, and a password that nothing can bring back."""
    _number: int = 0
    _certain: list[str] = field(default_factory=list)

    def next(self) -> str:
        """Return another password, which its user takes from now on."""
        self._number += 1
        self.text = f"{SECRET.decode()}{self.user}-{self._number}"
        return self.text

    def acknowledged(self, text: str, now_us: int) -> None:
        """A password was set: those that were acknowledged before are replaced."""
        self.replaced += [(now_us, former) for former in self._certain]
        self._certain = [text]


class Users:
    """All users of a run."""

    def __init__(self, chance: Stream) -> None:
        self.session_ms = chance.choice(SESSIONS_MS)
        self.passwords = {user: Password(user) for user in OF}

    def broker_settings(self) -> dict[str, str]:
        """Settings of all brokers."""
        users = " ".join(f'user_{user}="{_fixed(user)}"' for user in (ADMIN, APP))
        return {
            "security.inter.broker.protocol": PROTOCOL,
            "sasl.enabled.mechanisms": f"PLAIN,{SCRAM_SHA_256.name}",
            "sasl.plain.without.tls": "true",
            f"listener.name.{PROTOCOL.lower()}.plain.sasl.jaas.config": (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
            ),
            "connections.max.reauth.ms": str(self.session_ms),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{ADMIN}",
        }

    def login(self, host: str) -> dict[str, Any]:
        """Return the settings of the client on a host."""
        user = user_of(host)
        tenant = self.passwords.get(user)
        return {
            "security_protocol": PROTOCOL,
            "sasl_mechanism": "PLAIN" if tenant is None else SCRAM_SHA_256.name,
            "sasl_username": user,
            "sasl_password": _fixed(user) if tenant is None else tenant.text,
        }


def _fixed(user: str) -> str:
    return f"{SECRET.decode()}{user}"
