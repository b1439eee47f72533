"""SaslHandshake (17) and SaslAuthenticate (36): what comes in the wrong order, and what is refused."""

from contextlib import ExitStack
from typing import Any

from headwater.security.scram import ScramClient
from headwater.security.scram_credentials import SCRAM_SHA_256
from headwater.wire.messages.cluster import ApiVersionsRequest
from headwater.wire.messages.metadata import MetadataRequest
from headwater.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from headwater.wire.messages.users import AlterUserScramCredentialsRequest
from headwater.wire.schema import Struct
from tests.compat.broker_under_test import eventually
from tests.compat.differential.peer import Line
from tests.compat.differential.scene import Scene, scene, versions

PLAIN, SCRAM = "PLAIN", SCRAM_SHA_256.name
SALT = b"salt of the user"
_NONCE = b"n" * 24


def _token(user: str, password: str = "", authzid: str = "") -> bytes:
    return f"{authzid}\0{user}\0{password or user}".encode()


def _hear(s: Scene, label: str, line: Line) -> Any:
    """Write down the next answer with the text of its error, which clients show."""
    answer = s.hear(label, line)
    if not isinstance(answer, str) and answer.__schema__.name == "SaslAuthenticateResponse":
        s.note(f"{label}: text", answer.error_message or "none")
    return answer


def _ask(s: Scene, label: str, line: Line, message: Struct, version: int) -> Any:
    line.send(message, version)
    return _hear(s, f"{label} (v{version})", line)


def _handshake(s: Scene, line: Line, mechanism: str = PLAIN, label: str = "handshake") -> Any:
    return _ask(s, label, line, SaslHandshakeRequest(mechanism=mechanism), 1)


def _authenticate(s: Scene, line: Line, token: bytes, label: str = "token") -> Any:
    return _ask(s, label, line, SaslAuthenticateRequest(auth_bytes=token), 2)


def _log_in(s: Scene, line: Line, user: str = "reader") -> None:
    _handshake(s, line)
    _authenticate(s, line, _token(user))


def _note_outcome(s: Scene, label: str, answer: Any) -> None:
    """Write down an answer whose token is of this broker alone."""
    s.note(label, (answer.error_code, bool(answer.auth_bytes)))
    s.note(f"{label}: text", answer.error_message or "none")


def _goes_on(s: Scene, label: str, line: Line) -> None:
    """Whether the connection is open, and its requests are served."""
    line.send(MetadataRequest(topics=[]), 12)
    answer = line.receive()
    s.note(f"{label}: then", answer if isinstance(answer, str) else "it is served")


def _prove(password: str) -> ScramClient:
    def derive(salt: bytes, iterations: int) -> bytes:
        return SCRAM_SHA_256.salted_password(password, salt, iterations)

    return ScramClient(SCRAM_SHA_256, "scrammer", derive, _NONCE)


def _upsert(name: str, salted: bytes) -> AlterUserScramCredentialsRequest:
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name,
        mechanism=SCRAM_SHA_256.number,
        iterations=4096,
        salt=SALT,
        salted_password=salted,
    )
    return AlterUserScramCredentialsRequest(upsertions=[upsertion])


def _add_scrammer(s: Scene) -> None:
    salted = SCRAM_SHA_256.salted_password("pencil", SALT, 4096)
    answer = s.peer.call(_upsert("scrammer", salted), 0)
    assert answer.results[0].error_code == 0, answer


@scene
def passwords_salted_to_any_length(s: Scene) -> None:
    for length in (1, 18, 31, 32, 33, 64, 100):
        s.ask(f"{length} bytes", _upsert("salted", bytes(length)))
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(
        name="salted", mechanism=SCRAM_SHA_256.number
    )
    s.ask("deleted", AlterUserScramCredentialsRequest(deletions=[deletion]))


@scene
def logins_in_the_wrong_order(s: Scene) -> None:
    for version in versions(SaslHandshakeRequest):
        for mechanism in ("GSSAPI", ""):
            with s.peer.stranger() as line:
                request = SaslHandshakeRequest(mechanism=mechanism)
                _ask(s, f"mechanism {mechanism!r}", line, request, version)
                _goes_on(s, f"mechanism {mechanism!r}", line)
    for version in versions(SaslAuthenticateRequest):
        with s.peer.stranger() as line:
            request = SaslAuthenticateRequest(auth_bytes=_token("reader"))
            _ask(s, "token first", line, request, version)
            _goes_on(s, "token first", line)
    with s.peer.stranger() as line:
        _goes_on(s, "no login", line)
    with s.peer.stranger() as line:
        for number in range(2):
            line.send(ApiVersionsRequest(), 3)
            s.note(f"versions {number}", type(line.receive()).__name__)
        _log_in(s, line)
        _goes_on(s, "versions twice", line)
    for label, between in {
        "versions": ApiVersionsRequest(),
        "metadata": MetadataRequest(topics=[]),
        "handshake": SaslHandshakeRequest(mechanism=PLAIN),
        "other handshake": SaslHandshakeRequest(mechanism=SCRAM),
    }.items():
        with s.peer.stranger() as line:
            _handshake(s, line)
            _ask(s, f"{label} before the token", line, between, 1)
            _goes_on(s, f"{label} before the token", line)
    with s.peer.stranger() as line:
        _log_in(s, line)
        _authenticate(s, line, _token("reader"), "another token")
        _goes_on(s, "another token", line)


@scene
def logins_that_are_refused(s: Scene) -> None:
    for label, token in {
        "wrong password": _token("reader", "guess"),
        "unknown user": _token("stranger"),
        "another user": _token("reader", authzid="writer"),
        "same user": _token("reader", authzid="reader"),
        "empty": b"",
        "two parts": b"\0reader",
        "no user": b"\0\0reader",
        "not UTF-8": b"\0reader\0\xff",
        "as large as may be": bytes(500_000),
        "too large": bytes(600_000),
    }.items():
        with s.peer.stranger() as line:
            _handshake(s, line)
            _authenticate(s, line, token, label)
            _goes_on(s, label, line)


@scene
def logins_with_bare_tokens(s: Scene) -> None:
    for label, token in {
        "right": _token("reader"),
        "wrong password": _token("reader", "guess"),
        "empty": b"",
        "too large": bytes(600_000),
    }.items():
        with s.peer.stranger() as line:
            _ask(s, label, line, SaslHandshakeRequest(mechanism=PLAIN), 0)
            line.send_bytes(len(token).to_bytes(4) + token)
            s.note(label, line.receive_bytes())
            _goes_on(s, label, line)
    with s.peer.stranger() as line:
        _ask(s, "wrapped", line, SaslHandshakeRequest(mechanism=PLAIN), 0)
        _authenticate(s, line, _token("reader"), "wrapped")
        _goes_on(s, "wrapped", line)


@scene
def logins_with_scram(s: Scene) -> None:
    _add_scrammer(s)
    for label, password in {"right": "pencil", "wrong password": "guess"}.items():
        with s.peer.stranger() as line:
            client = _prove(password)
            _handshake(s, line, SCRAM)
            line.send(SaslAuthenticateRequest(auth_bytes=client.first()), 2)
            last = client.next(bytes(line.receive().auth_bytes))  # type: ignore[union-attr]
            line.send(SaslAuthenticateRequest(auth_bytes=last), 2)
            _note_outcome(s, label, line.receive())
            _goes_on(s, label, line)
    with s.peer.stranger() as line:
        _handshake(s, line, SCRAM)
        line.send(SaslAuthenticateRequest(auth_bytes=_prove("pencil").first()), 2)
        line.receive()
        _ask(s, "between tokens", line, MetadataRequest(topics=[]), 12)
        _goes_on(s, "between tokens", line)
    for label, token in {
        "empty": b"",
        "not SCRAM": b"hello",
        "with channel binding": b"p=tls-unique,,n=scrammer,r=nnnnnnnnnnnn",
        "another user": b"n,a=reader,n=scrammer,r=nnnnnnnnnnnn",
        "unknown user": b"n,,n=stranger,r=nnnnnnnnnnnn",
    }.items():
        with s.peer.stranger() as line:
            _handshake(s, line, SCRAM)
            line.send(SaslAuthenticateRequest(auth_bytes=token), 2)
            _note_outcome(s, label, line.receive())
            _goes_on(s, label, line)


def _wait_until_old_enough(s: Scene, user: str = "reader") -> None:
    """Wait until logins that were made before this call may be repeated: after a second."""
    with s.peer.line_of(user) as line:

        def is_taken() -> bool:
            line.send(SaslHandshakeRequest(mechanism=PLAIN), 1)
            answer: Any = line.receive()
            return answer.error_code == 0

        eventually(is_taken)


@scene
def logins_too_soon(s: Scene) -> None:
    with s.peer.line_of("reader") as line:
        _handshake(s, line, label="right after a login")
    with s.peer.line_of("reader") as line:
        _authenticate(s, line, _token("reader"), "token after a login")
        _goes_on(s, "token after a login", line)
    with s.peer.line() as line:
        _handshake(s, line, label="without a login")
        _goes_on(s, "without a login", line)
        _authenticate(s, line, _token("reader"), "token without a login")
        _goes_on(s, "token without a login", line)


@scene
def logins_again(s: Scene) -> None:
    _add_scrammer(s)
    with ExitStack() as open_lines:

        def logged_in() -> Line:
            return open_lines.enter_context(s.peer.line_of("reader"))

        names = ("same user", "another user", "wrong password")
        mechanisms = ("another mechanism", "unknown mechanism")
        lines = {name: logged_in() for name in (*names, *mechanisms, "request", "bare", "huge")}
        _wait_until_old_enough(s)
        for label, token in zip(
            names, (_token("reader"), _token("writer"), _token("reader", "guess")), strict=True
        ):
            _handshake(s, lines[label], label=label)
            _authenticate(s, lines[label], token, label)
            _goes_on(s, label, lines[label])
        _handshake(s, lines["same user"], label="once more")
        for label, mechanism in zip(mechanisms, (SCRAM, "GSSAPI"), strict=True):
            _handshake(s, lines[label], mechanism, label)
            _goes_on(s, label, lines[label])
        line = lines["request"]
        _handshake(s, line, label="request meanwhile")
        _ask(s, "request meanwhile", line, MetadataRequest(topics=[]), 12)
        _goes_on(s, "request meanwhile", line)
        line, token = lines["bare"], _token("reader")
        _ask(s, "bare tokens", line, SaslHandshakeRequest(mechanism=PLAIN), 0)
        line.send_bytes(len(token).to_bytes(4) + token)
        s.note("bare tokens", line.receive_bytes())
        _goes_on(s, "bare tokens", line)
        line = lines["huge"]
        _handshake(s, line, label="huge token")
        line.send(SaslAuthenticateRequest(auth_bytes=bytes(600_000)), 2)
        s.note("huge token", getattr(line.receive(), "error_code", "no answer"))
        _goes_on(s, "huge token", line)
