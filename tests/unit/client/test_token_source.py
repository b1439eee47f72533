"""Tokens of a client: replaced in time, fetched once, and kept in use while none can be had."""

import threading
import time

import pytest

from headwater.client import token_grants
from headwater.client.errors import AuthenticationError, NetworkError, NoTokenError
from headwater.client.token_grants import obtain
from headwater.client.token_source import TokenSource, refresh_after_ms, source_of
from headwater.config.client import AdminSettings
from headwater.config.client_oauth import RefreshWindow
from headwater.config.keys import ConfigError
from headwater.seams.randomness import SystemRandomness
from headwater.security.bearer_tokens import MAX_TOKEN_BYTES
from tests.unit.security.identity_provider import claims, token

WINDOW = RefreshWindow(0.8, 0.05, 60_000, 300_000)
OAUTH = {
    "bootstrap_servers": "localhost:9092",
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "OAUTHBEARER",
}
URL = "sasl_oauthbearer_token_endpoint_url"
ID, SECRET = (f"sasl_oauthbearer_client_credentials_client_{name}" for name in ("id", "secret"))
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HOUR_MS = 3_600_000


class Clock:
    now_ms = 1_790_000_000_000

    def wall_ms(self):
        return self.now_ms

    monotonic_ms = wall_ms


def source(provider, **more):
    credentials = AdminSettings.of({**OAUTH, "sasl_oauth_token_provider": provider, **more}).login
    clock = Clock()
    return TokenSource(credentials, clock, SystemRandomness()), clock


@pytest.mark.parametrize(
    ("lifetime_ms", "jitter", "after_ms"),
    [
        (HOUR_MS, 0, 2_880_000),
        (HOUR_MS, 1, 3_060_000),
        (HOUR_MS, -1, 2_700_000),
        (600_000, 1, 300_000),
        (361_000, 0, 61_000),
        (360_000, 0, 288_000),
        (3000, 0, 2400),
        (1, 0, 0),
    ],
)
def test_a_token_is_replaced_when_java_clients_do_it(lifetime_ms, jitter, after_ms):
    assert refresh_after_ms(lifetime_ms, WINDOW, jitter) == after_ms


def test_a_token_is_taken_once_and_again_before_it_ends():
    given = []

    def provide():
        given.append(token(claims(clock.now_ms, 3600)))
        return given[-1]

    tokens, clock = source(provide, sasl_login_refresh_window_jitter=0)
    for _ in range(3):
        tokens.refresh()
    clock.now_ms += HOUR_MS * 8 // 10 - 1
    assert tokens.is_fresh
    clock.now_ms += 1
    assert not tokens.is_fresh
    tokens.refresh()
    assert tokens.current.text == given[1]
    assert len(given) == 2
    tokens.forget("another token")
    assert tokens.is_fresh
    tokens.forget(given[1])
    tokens.refresh()
    assert len(given) == 3


@pytest.mark.parametrize(
    ("problem", "error"), [(ConnectionError("refused"), NetworkError), (ValueError("no"), None)]
)
def test_a_token_stays_in_use_until_it_ends_while_no_other_one_can_be_had(problem, error):
    asked = []

    def provide():
        asked.append(clock.now_ms)
        if len(asked) > 1:
            raise problem
        return "opaque", clock.now_ms / 1000 + 10

    tokens, clock = source(provide, sasl_login_refresh_window_jitter=0)
    tokens.refresh()
    clock.now_ms += 9000
    tokens.refresh()
    assert tokens.current.text == "opaque"
    tokens.refresh()  # at once: nobody is asked again so soon
    assert len(asked) == 2
    clock.now_ms += 1000
    with pytest.raises(error or AuthenticationError, match="no token from the token provider"):
        tokens.refresh()
    assert len(asked) == 3


def test_a_file_without_a_token_fails_at_once_and_later_may_be_missing_for_a_while(tmp_path):
    file, clock = tmp_path / "token", Clock()
    login = AdminSettings.of({**OAUTH, URL: f"file://{file}"}).login
    tokens = TokenSource(login, clock, SystemRandomness())
    with pytest.raises(AuthenticationError, match=f"no token from file://{file}"):
        tokens.refresh()
    file.write_text(token(claims(clock.now_ms, 3600)))
    clock.now_ms += HOUR_MS // 2
    tokens.refresh()
    file.unlink()
    clock.now_ms += HOUR_MS
    with pytest.raises(NoTokenError, match="no token from"):
        tokens.refresh()


def test_many_connections_take_one_token():
    asked, may_answer = [], threading.Event()

    def provide():
        asked.append(1)
        may_answer.wait(60)
        return "opaque", time.time() + 3600

    tokens, clock = source(provide)
    clock.now_ms = int(time.time() * 1000)
    threads = [threading.Thread(target=tokens.refresh) for _ in range(8)]
    for thread in threads:
        thread.start()
    may_answer.set()
    for thread in threads:
        thread.join()
    assert len(asked) == 1


@pytest.mark.parametrize("given", ["", "zq xw", "zq\x01auth=Bearer x", "x" * (MAX_TOKEN_BYTES + 1)])
def test_what_is_no_token_is_refused_without_being_shown(given):
    tokens, _ = source(lambda: given)
    with pytest.raises(AuthenticationError, match="cannot be sent") as problem:
        tokens.refresh()
    assert given[:100] not in str(problem.value) or not given


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({}, "needs a source of tokens"),
        ({URL: "login.example"}, "it takes https://"),
        ({URL: "https://login.example/"}, "clientId and clientSecret"),
        ({URL: "https://login.example/", ID: "a"}, "clientId and clientSecret"),
        ({URL: "https://a:hunter2@login.example/", ID: "a", SECRET: "hunter2"}, "hidden"),
        ({URL: "file:///token", ID: "a"}, "is a file with a token"),
        ({URL: "file:///token", "sasl_username": "a"}, "does not use it"),
        ({URL: "file:///token", "sasl_oauth_token_provider": print}, "keep one"),
        ({"oauth_cb": print, "sasl_oauth_token_provider": print}, "keep one"),
        ({"sasl_oauth_token_provider": "module.function"}, "takes a callable"),
        ({"oauth_cb": print, "sasl_mechanism": "PLAIN"}, "oauth_cb is set"),
        ({"oauth_cb": print, "security_protocol": "PLAINTEXT"}, "oauth_cb is set"),
        ({URL: "file:///token", "sasl_mechanism": "PLAIN"}, "does not use it"),
        ({"sasl_jaas_config": f'{MODULE} unsecuredLoginStringClaim_sub="a";'}, "can forge"),
        (
            {URL: "https://x/", ID: "a", "sasl_jaas_config": f"{MODULE} clientId=b;"},
            "keep one of both",
        ),
        ({"oauth_cb": print, "sasl_login_callback_handler_class": "com.evil.X"}, "it takes org"),
        ({"sasl_oauthbearer_method": "oidc"}, "it is not needed"),
    ],
)
def test_settings_that_cannot_work_are_refused(keywords, says):
    with pytest.raises(ConfigError, match=says) as problem:
        AdminSettings.of({**OAUTH, **keywords})
    assert "hunter2" not in str(problem.value)


def test_the_names_of_kafka_and_librdkafka_mean_the_same_and_secrets_are_not_shown():
    url = "https://login.example/token"
    kafka = AdminSettings.of({**OAUTH, URL: url, ID: "a", SECRET: "hunter2"})
    other = {"sasl.oauthbearer.client.id": "a", "sasl.oauthbearer.client.secret": "hunter2"}
    assert AdminSettings.of({**OAUTH, URL: url, **other}).login == kafka.login
    jaas = f'{MODULE} clientId="a" clientSecret="hunter2" extension_pool="b";'
    with_jaas = AdminSettings.of({**OAUTH, URL: url, "sasl_jaas_config": jaas}).login
    assert with_jaas == kafka.login._replace(extensions=(("pool", "b"),))
    assert source_of(kafka.login) is source_of(kafka.login)
    for shown in (repr(kafka.login), repr(with_jaas), kafka.explain()):
        assert "hunter2" not in shown


def test_a_secret_that_others_could_read_is_one_warning(monkeypatch, caplog):
    answer = b'{"access_token": "a.b.c", "expires_in": 60}'
    monkeypatch.setattr(token_grants, "fetch", lambda *_, **__: answer)

    def warnings_of(url):
        token_grants.warn_of_open_endpoint.cache_clear()
        caplog.clear()
        given = {**OAUTH, URL: url, ID: "orders", SECRET: "hunter2"}
        for _ in range(2):
            obtain(AdminSettings.of(given).login, Clock.now_ms, None)
        return [one.getMessage() for one in caplog.records]

    (said,) = warnings_of("http://login.example/token")
    assert "use https in sasl.oauthbearer.token.endpoint.url" in said
    assert "hunter2" not in said
    for safe in ("https://login.example/token", "http://127.0.0.1:1/token", "http://[::1]/token"):
        assert warnings_of(safe) == []
