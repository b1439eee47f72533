"""OAUTHBEARER on a broker, over the wire: sessions as long as tokens, and keys that come and go."""

import sys
import threading
import time

import pytest

from headwater.config.keys import ConfigError
from headwater.errors import E
from headwater.security.oauthbearer import OAUTHBEARER, OAuthBearerClient
from headwater.wire.messages.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse
from tests.integration.certificates import Authority
from tests.unit.broker.live import Live, until
from tests.unit.broker.test_sasl import authenticate, handshake, is_served, principals, raw
from tests.unit.seams.document_server import documents, status
from tests.unit.security.identity_provider import AUDIENCE, ISSUER, claims, jwk, jwks, token

SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": OAUTHBEARER,
    "sasl.oauthbearer.expected.audience": AUDIENCE,
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "connection.failed.authentication.delay.ms": "20",
}


def settings(url, **changed):
    more = {name.replace("_", "."): value for name, value in changed.items()}
    return {**SETTINGS, "sasl.oauthbearer.jwks.endpoint.url": url, **more}


@pytest.fixture(scope="module")
def provider():
    with documents() as served:
        served.answers["/jwks"] = jwks(jwk("one"))
        yield served


@pytest.fixture(scope="module")
def live(tmp_path_factory, provider):
    with Live(tmp_path_factory.mktemp("oauth"), settings(f"{provider.url}/jwks")) as running:
        yield running


def fresh(**changed):
    lifetime_s = changed.pop("lifetime_s", 300)
    return token(claims(time.time_ns() // 1_000_000, lifetime_s, **changed))


def log_in(client, bearer=None):
    return authenticate(client, OAuthBearerClient(bearer or fresh()), OAUTHBEARER)


def test_a_user_is_served_as_long_as_the_token_is_valid(live):
    with live.client() as client:
        answer = log_in(client, fresh(sub="bob"))
        assert answer.error_code == 0
        assert 290_000 < answer.session_lifetime_ms <= 300_000
        assert is_served(client)
        assert "User:bob" in principals(live)


def test_an_old_client_sends_bare_tokens(live):
    with live.client() as client:
        handshake(client, OAUTHBEARER, version=0)
        assert raw(client, OAuthBearerClient(fresh()).first()) == b""
        assert is_served(client)


def test_a_refused_token_is_answered_acknowledged_and_ends_the_connection(live, caplog):
    # The log leaves out what it has just said of 127.0.0.1, for another test.
    with live.client(source="127.0.0.2") as client:
        assert handshake(client, OAUTHBEARER).error_code == 0
        forged = fresh(iss="https://evil.example")
        request = SaslAuthenticateRequest(auth_bytes=OAuthBearerClient(forged).first())
        answer = client.ask(request, SaslAuthenticateResponse, 2)
        assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
        request = SaslAuthenticateRequest(auth_bytes=b"\x01")
        answer = client.ask(request, SaslAuthenticateResponse, 2)
        assert answer.error_code == E.SASL_AUTHENTICATION_FAILED
        assert "issuer" not in answer.error_message
        assert client.is_closed()
    logged = [record.getMessage() for record in caplog.records]
    assert sum("another issuer (iss)" in line for line in logged) == 1
    assert not any(forged.split(".")[1] in line for line in logged)


def test_a_session_is_renewed_by_a_new_token_of_the_same_user_only(live):
    with live.client() as client:
        first = log_in(client, fresh(lifetime_s=1))
        assert first.session_lifetime_ms <= 1000
        time.sleep(first.session_lifetime_ms * 0.6 / 1000)
        second = log_in(client, fresh(lifetime_s=2))
        assert second.session_lifetime_ms > first.session_lifetime_ms
        assert is_served(client)
        time.sleep(second.session_lifetime_ms * 0.6 / 1000)
        assert log_in(client, fresh(sub="mallory")).error_code == E.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_logins_wait_for_keys_that_are_being_fetched(tmp_path):
    may_answer, began = threading.Event(), threading.Event()

    def slow(handler):
        began.set()
        may_answer.wait(60)
        status(200, jwks())(handler)

    with documents() as provider:
        provider.answers["/jwks"] = slow
        with Live(tmp_path, settings(f"{provider.url}/jwks")) as live, live.client() as client:
            began.wait(60)
            handshake(client, OAUTHBEARER)
            first = OAuthBearerClient(fresh()).first()
            client.send(SaslAuthenticateRequest(auth_bytes=first), 2)
            (keys,) = live.context.token_keys
            until(lambda: live.on_loop(lambda: len(keys._waiting)) == 1)
            may_answer.set()
            assert client.answer(SaslAuthenticateResponse, 2).error_code == 0
            assert is_served(client)


@pytest.mark.parametrize("answer", [None, b"x" * 600_000, b"{}", status(302, location="file:///x")])
def test_a_broker_starts_without_its_provider_and_says_what_fails(tmp_path, caplog, answer):
    with documents() as provider:
        provider.answers["/jwks"] = answer
        with (
            Live(tmp_path, settings(f"{provider.url}/jwks")) as live,
            live.client() as client,
        ):
            assert log_in(client).error_code == E.SASL_AUTHENTICATION_FAILED
            assert any(
                record.getMessage().startswith(
                    f"JWKS: {provider.url}/jwks: the keys for tokens cannot be read: it "
                )
                and "cannot log in" in record.getMessage()
                for record in caplog.records
            )
            # ... and serves as soon as the provider does
            provider.answers["/jwks"] = jwks()
            (keys,) = live.context.token_keys
            until(lambda: keys._refresh.keys is not None)
            with live.client() as again:
                assert log_in(again).error_code == 0


def test_the_keys_may_be_in_a_file_and_behind_tls(tmp_path):
    import ssl

    file = tmp_path / "jwks.json"
    file.write_bytes(jwks())
    authority = Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.signed("provider"))
    with documents(tls) as provider:
        provider.answers["/jwks"] = jwks()
        both = settings(
            file.as_uri(), listeners="A://127.0.0.1:0,B://127.0.0.1:0",
        ) | {
            "listener.security.protocol.map": "A:SASL_PLAINTEXT,B:SASL_PLAINTEXT",
            "inter.broker.listener.name": "A",
            "listener.name.b.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/jwks",
            "listener.name.b.oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security."
            "oauthbearer.OAuthBearerLoginModule required "
            f'ssl.truststore.location="{authority.certificate}";',
            "listener.name.b.oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka."
            "common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        }  # fmt: skip
        with Live(tmp_path / "data", both) as live:
            for listener in (0, 1):
                with live.client(listener) as client:
                    assert log_in(client).error_code == 0


MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"sasl.oauthbearer.expected.audience": ""}, "set sasl.oauthbearer.expected.audience"),
        ({"sasl.oauthbearer.expected.issuer": None}, "set sasl.oauthbearer.expected.issuer"),
        ({"sasl.oauthbearer.jwks.endpoint.url": None}, "without keys to check tokens"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///missing.json"}, "cannot be read"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "/etc/jwks"}, "it takes https://"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://u:hunter2@x/"}, "would be logged"),
        ({"sasl.jaas.config": f'{MODULE} unsecuredLoginStringClaim_sub="a";'}, "can forge"),
        ({"sasl.jaas.config": f'{MODULE} ssl.truststore.location="/x";'}, "cannot be read"),
        ({"sasl.jaas.config": f'{MODULE} hunter2="a";'}, "hunter2 of OAuthBearerLoginModule"),
        ({"sasl.server.callback.handler.class": "com.evil.Handler"}, "it takes org.apache"),
    ],
)
def test_a_listener_that_would_accept_too_much_does_not_start(tmp_path, provider, changed, says):
    given = settings(f"{provider.url}/jwks") | changed
    given = {name: value for name, value in given.items() if value is not None}
    with pytest.raises(ConfigError, match=says), Live(tmp_path, given):
        pass


def test_the_audience_may_be_left_out_if_the_operator_says_so(tmp_path, provider):
    given = settings(f"{provider.url}/jwks") | {
        "sasl.oauthbearer.expected.audience": "",
        "sasl.oauthbearer.allow.unverified.audience": "true",
    }
    with Live(tmp_path, given) as live, live.client() as client:
        assert log_in(client, fresh(aud=None)).error_code == 0


def test_without_the_extra_the_start_says_what_to_install(tmp_path, provider, monkeypatch):
    for name in ("broker.listener_oauth", "broker.token_keys", "security.signing_keys"):
        monkeypatch.delitem(sys.modules, f"headwater.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with (
        pytest.raises(ConfigError, match=r"cryptography: pip install 'headwater\[security\]'"),
        Live(tmp_path, settings(f"{provider.url}/jwks")),
    ):
        pass
