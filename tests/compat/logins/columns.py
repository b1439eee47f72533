"""The columns of the table: the clients that log in."""

from contextlib import ExitStack

from tools.java import KAFKA

from tests.compat.clients import franz
from tests.compat.logins.java_properties import java_properties
from tests.compat.logins.programs import KcatSession, LoginProgram
from tests.compat.logins.python_clients import AiokafkaSession, ConfluentSession, KafkaPythonSession
from tests.compat.logins.session import DELEGATION_TOKEN, SHORT_SESSIONS, LoginClient
from tests.compat.tool_server import program_command

_NO_TOKENS = {
    DELEGATION_TOKEN: "confluent-kafka, kafka-python, aiokafka, kcat and kafka-go cannot say that a SCRAM login is by "
    "delegation token"
}
_SCRAM = "kcat of Debian (librdkafka 2.0) repeats its nonce in the last message of SCRAM; Kafka refuses that too"
_KCAT_LACKS = {
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
    SHORT_SESSIONS: "kcat of Debian cannot authenticate again; Kafka ends its connections, and it never gets to read",
    "OAUTHBEARER": "kcat of Debian is built without what gets tokens from an identity provider",
    **_NO_TOKENS,
}
_KAFKA_GO_LACKS = {"OAUTHBEARER": "kafka-go has no OAUTHBEARER", **_NO_TOKENS}


def _java(version: str, jars: str) -> LoginProgram:
    """One set of classes for both: what is compiled with the older clients runs with the newer."""
    return LoginProgram(
        f"Java {version}",
        lambda: program_command("Logins", jars, compile_with="kafka-clients-3.9.2"),
        request=lambda credentials: {"settings": java_properties(credentials)},
    )


class LoginClients:
    """The clients by name; their programs start when first asked for."""

    def __init__(self) -> None:
        self._programs = {
            "franz-go": LoginProgram("franz-go", lambda: [str(franz.build()), "logins"]),
            "kafka-go": LoginProgram("kafka-go", lambda: [str(franz.build()), "kafka-go-logins"]),
            "Java 4.3": _java(
                "4.3.1", KAFKA
            ),  # its clients need more than their own jars for OAUTHBEARER
            "Java 3.9": _java("3.9.2", "kafka-clients-3.9.2"),
        }
        columns = [
            LoginClient("confluent-kafka", ConfluentSession, lacks=_NO_TOKENS),
            LoginClient("kafka-python", KafkaPythonSession, lacks=_NO_TOKENS),
            LoginClient("aiokafka", AiokafkaSession, lacks=_NO_TOKENS),
            LoginClient("kcat", KcatSession, lacks=_KCAT_LACKS),
            *(self._column(name) for name in self._programs),
        ]
        self.by_name = {client.name: client for client in columns}

    def _column(self, name: str) -> LoginClient:
        program = self._programs[name]
        if name == "kafka-go":
            return LoginClient(name, program.open, idempotent=False, lacks=_KAFKA_GO_LACKS)
        return LoginClient(name, program.open)

    def close(self) -> None:
        with ExitStack() as ending:
            for program in self._programs.values():
                ending.callback(program.close)
