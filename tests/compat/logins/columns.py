"""The columns of the table: the clients that log in."""

from contextlib import ExitStack

from tests.compat.clients import franz
from tests.compat.logins.programs import KcatSession, LoginProgram
from tests.compat.logins.python_clients import AiokafkaSession, ConfluentSession, KafkaPythonSession
from tests.compat.logins.secured_broker import SCRAM_USERS
from tests.compat.logins.session import LoginClient
from tests.compat.tool_server import program_command

KCAT_SCRAM = "kcat of Debian (librdkafka 2.0) repeats its nonce in the last message of SCRAM; Kafka refuses that too"


def _java(version: str) -> LoginProgram:
    """One set of classes for both: what is compiled with the older clients runs with the newer."""
    jars = "kafka-clients-"
    return LoginProgram(
        f"Java {version}",
        lambda: program_command("Logins", jars + version, compile_with=jars + "3.9.2"),
    )


class LoginClients:
    """The clients by name; their programs start when first asked for."""

    def __init__(self) -> None:
        self._programs = {
            "franz-go": LoginProgram("franz-go", lambda: [str(franz.build()), "logins"]),
            "kafka-go": LoginProgram("kafka-go", lambda: [str(franz.build()), "kafka-go-logins"]),
            "Java 4.3": _java("4.3.1"),
            "Java 3.9": _java("3.9.2"),
        }
        columns = [
            LoginClient("confluent-kafka", ConfluentSession),
            LoginClient("kafka-python", KafkaPythonSession),
            LoginClient("aiokafka", AiokafkaSession),
            LoginClient("kcat", KcatSession, lacks=tuple(SCRAM_USERS), why=KCAT_SCRAM),
            *(
                LoginClient(name, program.open, idempotent=name != "kafka-go")
                for name, program in self._programs.items()
            ),
        ]
        self.by_name = {client.name: client for client in columns}

    def close(self) -> None:
        with ExitStack() as ending:
            for program in self._programs.values():
                ending.callback(program.close)
