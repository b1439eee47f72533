"""Secrets, line breaks and control characters in every field that a client controls.

No secret reaches a log line, an error, the metrics, the answer to a description or a file that others
may read; no control character reaches a log line or the audit log.
"""

import base64
import json
import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.broker.apis import Listeners, served_on
from headwater.broker.handlers.configs import ConfigResourceKind
from headwater.observe.logs import JsonFormatter, PlainFormatter
from headwater.security.oauthbearer import OAuthBearerClient
from headwater.security.plain import PlainClient
from headwater.security.principals import Principal
from headwater.security.scram import ScramClient
from headwater.security.scram_credentials import SCRAM_SHA_512
from headwater.wire.fields import BYTES, STRING, Array, Nested
from headwater.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.wire.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from headwater.wire.messages.users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from headwater.wire.schema import Struct
from tests.integration.certificates import Authority
from tests.unit.broker.live import Client, Closed, Live
from tests.unit.broker.test_sasl import authenticate, handshake
from tests.unit.security.identity_provider import AUDIENCE, ISSUER, claims, jwk, jwks, token

EVIL = (
    'x\n2026-01-31 12:00:00,123 ERROR server: forged\r\x1b[31m\x1b]0;t\x07\x85\x9b\u2028\u202e"}\n'
)
CANARY = "canary4711"
OF_STORE, OF_USER, OF_TOKENS, GUESSED, SALTED, KEPT = (
    f"{CANARY}-of-{name}" for name in ("store", "user", "tokens", "guess", "salt", "new-store")
)
ADMIN, EVE = Principal("User", "admin"), Principal("User", EVIL)
LOGIN = "org.apache.kafka.common.security"
SECOND_KEY = "listener.name.ssl.ssl.key.password"


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    folder = tmp_path_factory.mktemp("canaries")
    keys = folder / "jwks.json"
    keys.write_bytes(jwks(jwk("one")))
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.plain.without.tls": "true",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{LOGIN}.plain.PlainLoginModule required user_bob="{OF_USER}";'
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "ssl.keystore.location": str(Authority(folder).signed("broker")),
        "ssl.key.password": OF_STORE,
        "delegation.token.secret.key": OF_TOKENS,
        "connection.failed.authentication.delay.ms": "0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with Live(folder / "data", settings) as running:
        yield running


class Watched(Client):
    """Keeps the answers."""

    def __init__(self, port: int, answers: list[bytes]) -> None:
        super().__init__(port)
        self._answers = answers

    def receive(self) -> bytes:
        self._answers.append(super().receive())
        return self._answers[-1]


class Sweep:
    """What a broker said while clients sent secrets and control characters."""

    def __init__(self, live: Live, caplog: pytest.LogCaptureFixture) -> None:
        self.live = live
        self.answers: list[bytes] = []
        self.secrets = [CANARY]
        self._caplog = caplog

    def client(self, who: Principal | None = None, listener: int = 0) -> Watched:
        client = Watched(self.live.broker.listeners[listener].port, self.answers)
        if who is not None:
            self.live.log_in(client, who)
        return client

    def hide(self, secret: bytes) -> None:
        """Look for a secret in each form in which it may be written."""
        forms = (secret.hex(), base64.b64encode(secret).decode(), repr(secret)[2:-1])
        self.secrets += forms

    def told(self) -> dict[str, str]:
        """All that others than the owners of the secrets can read, by where."""
        plain = [PlainFormatter().format(one) for one in self._caplog.records]
        as_json = [JsonFormatter().format(one) for one in self._caplog.records]
        return {
            "log": "\n".join(plain),
            "log as JSON": "\n".join(as_json),
            "answers": b"".join(self.answers).decode("latin-1"),
            "metrics": self.live.metrics_text("t"),
        }

    def leaks(self) -> list[tuple[str, str]]:
        told = self.told()
        return [(where, one) for where, text in told.items() for one in self.secrets if one in text]

    def check_lines(self) -> None:
        """Every record is one line without control characters, whatever is in it."""
        assert self._caplog.records
        for record in self._caplog.records:
            assert record.exc_info is None, record.getMessage()
            for formatter in (PlainFormatter(), JsonFormatter()):
                assert formatter.format(record).isprintable()
            if record.name == "headwater.audit":
                assert record.getMessage().isprintable()
                assert isinstance(json.loads(record.getMessage()), dict)


@pytest.fixture
def sweep(live, caplog):
    live.broker.context.audit._lines.clear()
    caplog.set_level(logging.DEBUG)
    return Sweep(live, caplog)


def filled(kind, version: int, text: str):
    """A request with the text wherever one can be."""
    body = kind()
    for field in kind.__schema__.fields:
        if not field.versions.holds(version):
            continue
        if field.type is STRING:
            setattr(body, field.name, text)
        elif field.type is BYTES:
            setattr(body, field.name, text.encode())
        elif isinstance(field.type, Nested):
            setattr(body, field.name, filled(field.type.struct, version, text))
        elif isinstance(field.type, Array) and isinstance(field.type.of, Nested):
            setattr(body, field.name, [filled(field.type.of.struct, version, text)])
        elif isinstance(field.type, Array) and field.type.of is STRING:
            setattr(body, field.name, [text])
    return body


APIS = [row for key, row in served_on(Listeners.CLIENT).items() if not row.before_authentication]
CREATE_TOPICS, JOIN_GROUP, INIT_PRODUCER_ID = 19, 11, 22
CONFIGS = (32, 33, 44)
NUMBERS = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "timeout_ms": 1000,
           "transaction_timeout_ms": 10_000, "producer_id": -1, "producer_epoch": -1}  # fmt: skip
"""What requests need to get as far as their texts."""


def versions_of(row) -> set[int]:
    """The newest version, and one in which topics have names and clients are served."""
    newest = row.api.served.highest
    return {newest} if row.api.key == JOIN_GROUP else {row.api.served.lowest, newest}


def request_of(row, version: int):
    body = filled(row.api.request, version, EVIL)
    for name, value in NUMBERS.items():
        if hasattr(body, name):
            setattr(body, name, value)
    if row.api.key == JOIN_GROUP:
        body.member_id = ""
    if row.api.key in CONFIGS:
        body.resources[0].resource_type = ConfigResourceKind.BROKER
        body.resources[0].resource_name = "1"
    return body


def errors_in(answer: Struct) -> Iterator[str]:
    for field in type(answer).__schema__.fields:
        value = getattr(answer, field.name)
        if field.name == "error_message" and value:
            yield value
        for one in value if isinstance(value, list) else ():
            if isinstance(one, Struct):
                yield from errors_in(one)


@pytest.mark.parametrize("who", [None, EVE, ADMIN], ids=["nobody", "eve", "admin"])
def test_text_of_clients_never_forges_a_line_or_moves_a_cursor(sweep, who):
    errors: list[str] = []
    for row in APIS:
        for version in versions_of(row):
            with sweep.client(who) as client:
                number = client.send(request_of(row, version), version, client_id=EVIL)
                try:
                    answer = client.answer(row.api.response, version, number)
                except Closed:
                    continue
                errors += errors_in(answer)
    assert len(errors) > 10
    assert [text for text in errors if not text.isprintable()] == []
    sweep.check_lines()
    assert not sweep.leaks()


def logins() -> list[tuple[str, object]]:
    """Logins that fail, each with a secret."""

    def derive(salt: bytes, iterations: int) -> bytes:
        return SCRAM_SHA_512.salted_password(GUESSED, salt, iterations)

    bearer = [
        token(claims(), which=1),  # signed with another key
        token(claims(sub=EVIL), kid=EVIL),
        token(algorithm="ES256", signature=GUESSED.encode()),
    ]
    return [
        ("PLAIN", PlainClient("bob", GUESSED)),
        ("PLAIN", PlainClient(EVIL.replace("\0", ""), GUESSED)),
        ("PLAIN", Once(f"{EVIL}\0bob\0{OF_USER}".encode())),
        ("PLAIN", Once(GUESSED.encode())),
        ("SCRAM-SHA-512", ScramClient(SCRAM_SHA_512, "bob", derive, b"n" * 24)),
        ("SCRAM-SHA-512", ScramClient(SCRAM_SHA_512, EVIL, derive, b"n" * 24)),
        ("SCRAM-SHA-512", Once(f"n,a={EVIL},n=bob,r={GUESSED}".encode())),
        ("OAUTHBEARER", Once(f"n,,\1auth=Bearer {GUESSED}\1\1".encode())),
        *(("OAUTHBEARER", OAuthBearerClient(one)) for one in bearer),
    ]


class Once:
    """One message of a login."""

    def __init__(self, message: bytes) -> None:
        self._message = message

    def first(self) -> bytes:
        return self._message

    def next(self, answer: bytes) -> bytes:
        return b"\1"


def fail_to_log_in(sweep: Sweep) -> None:
    for mechanism, exchange in logins():
        with sweep.client(listener=1) as client:
            assert authenticate(client, exchange, mechanism).error_code, mechanism
            assert client.is_closed()
    for listener in (0, 1):
        with sweep.client(listener=listener) as client:
            assert handshake(client, EVIL).error_code
    with sweep.client(listener=1) as client:
        assert not authenticate(client, PlainClient("bob", OF_USER), "PLAIN").error_code
        client.ask(DescribeUserScramCredentialsRequest(), DescribeUserScramCredentialsResponse, 0)


def store_secrets(sweep: Sweep, admin: Client) -> None:
    """The administrator stores what only the broker may know, and asks for all of it."""
    salted = SCRAM_SHA_512.salted_password(SALTED, b"salt" * 4, 4096)
    sweep.hide(salted)
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=EVIL, mechanism=2, iterations=4096, salt=b"salt" * 4, salted_password=salted
    )
    altered = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    answer = admin.ask(altered, AlterUserScramCredentialsResponse, 0)
    assert answer.results[0].error_code == 0
    for name in (SECOND_KEY, "sasl.nonsense.password", SECOND_KEY + EVIL, EVIL):
        one = IncrementalAlterConfigsRequest.AlterableConfig(name=name, value=KEPT + EVIL)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=ConfigResourceKind.BROKER, resource_name="1", configs=[one]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = admin.ask(request, IncrementalAlterConfigsResponse, 1)
        assert (answer.responses[0].error_code == 0) is (EVIL not in name)
    everything = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ConfigResourceKind.BROKER, resource_name="1", configuration_keys=None
    )
    wanted = DescribeConfigsRequest(
        resources=[everything], include_synonyms=True, include_documentation=True
    )
    shown = admin.ask(wanted, DescribeConfigsResponse, 4).results[0].configs
    assert {"delegation.token.secret.key", SECOND_KEY} <= {one.name for one in shown}
    users = DescribeUserScramCredentialsRequest()
    assert admin.ask(users, DescribeUserScramCredentialsResponse, 0).results[0].user == EVIL


def use_a_token(sweep: Sweep) -> None:
    """Only its owner sees the HMAC of a token."""
    renewer = CreateDelegationTokenRequest.CreatableRenewers(
        principal_type="User", principal_name=EVIL
    )
    with sweep.live.client() as owner:
        sweep.live.log_in(owner, Principal("User", "alice"))
        request = CreateDelegationTokenRequest(renewers=[renewer])
        made = owner.ask(request, CreateDelegationTokenResponse, 3)
    assert made.error_code == 0
    hmac = bytes(made.hmac)
    sweep.hide(hmac)
    for who, tried in [(Principal("User", "carol"), hmac), (EVE, hmac), (EVE, GUESSED.encode())]:
        with sweep.client(who) as client:
            renewal = RenewDelegationTokenRequest(hmac=tried, renew_period_ms=60_000)
            answer = client.ask(renewal, RenewDelegationTokenResponse, 2)
            assert (answer.error_code == 0) is (who is EVE and tried == hmac)
    with sweep.client(Principal("User", "carol")) as stranger:
        answer = stranger.ask(
            DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse, 3
        )
        assert answer.tokens == []


def test_secrets_reach_neither_logs_nor_answers_nor_metrics_nor_open_files(sweep):
    fail_to_log_in(sweep)
    with sweep.client(ADMIN) as admin:
        store_secrets(sweep, admin)
    use_a_token(sweep)
    sweep.check_lines()
    assert not sweep.leaks()
    kept = {OF_USER, OF_STORE, OF_TOKENS, GUESSED, SALTED} | set(sweep.secrets) - {CANARY}
    files = [one for one in Path(sweep.live.settings["log.dirs"]).rglob("*") if one.is_file()]
    assert files
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, f"others may read {file}"
        content = file.read_bytes().decode("latin-1")
        assert not [secret for secret in kept if secret in content], f"{file} holds a secret"
    assert any(KEPT.encode() in one.read_bytes() for one in files), "the file to protect"
