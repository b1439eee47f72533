"""Tokens of an identity provider: our clients log in, and log in again, without losing a record.

Other clients do it in `tests/compat/logins`.
"""

import asyncio
import json
import time

import pytest
from aiokafka.abc import AbstractTokenProvider

import headwater
from headwater import AuthenticationError, NewTopic, aio
from tests.integration.test_sasl import principals_of
from tests.unit.broker.live import Live
from tests.unit.seams.document_server import documents, status
from tests.unit.security.identity_provider import AUDIENCE, ISSUER, claims, jwk, jwks, token

LIFETIME_S = 3
"""Long enough for clients that log in again at 80 to 95 %, on a busy machine too."""
RUN_S = 2.2 * LIFETIME_S
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def fresh(lifetime_s=LIFETIME_S, **changed):
    return token(claims(time.time_ns() // 1_000_000, lifetime_s, **changed))


@pytest.fixture(scope="module")
def provider():
    with documents() as served:
        served.answers["/jwks"] = jwks(jwk("one"))

        def grant(handler):
            headers, form = served.forms[-1]
            if headers["Authorization"] != "Basic aWQ6c2VjcmV0":  # id:secret
                status(401, b'{"error":"invalid_client"}')(handler)
                return
            said = {"access_token": fresh(scope=form.decode()), "expires_in": LIFETIME_S}
            status(200, json.dumps(said).encode())(handler)

        served.answers["/token"] = grant
        yield served


@pytest.fixture(scope="module")
def live(tmp_path_factory, provider):
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512",
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/jwks",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    with Live(tmp_path_factory.mktemp("oauth"), settings) as running:
        yield running


@pytest.fixture
def oauth(live):
    return f"127.0.0.1:{live.broker.listeners[1].port}"


@pytest.fixture
def topic(live, request):
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)
    with headwater.Admin(bootstrap_servers=live.bootstrap) as admin:
        admin.create_topics([NewTopic(name)])
    return name


def login(oauth, **more):
    return {
        "bootstrap_servers": oauth,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        **more,
    }


def with_endpoint(oauth, provider, **changed):
    keys = {
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.oauthbearer.client.credentials.client.id": "id",
        "sasl.oauthbearer.client.credentials.client.secret": "secret",
        "sasl.oauthbearer.scope": "read write",
    }
    return login(oauth, **keys, **changed)


def test_our_clients_outlive_their_tokens(live, oauth, topic, provider):
    mine = with_endpoint(oauth, provider)
    opened = live.on_loop(lambda: len(live.context.connection_quotas.open))
    futures, received = [], []
    with (
        headwater.Producer(**mine, linger_ms=0) as producer,
        headwater.Consumer(**mine, group_id=topic, auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe([topic])
        ends = time.monotonic() + RUN_S
        while time.monotonic() < ends or len(received) < len(futures):
            if time.monotonic() < ends:
                futures += [producer.send(topic, b"%d" % (len(futures) + n)) for n in range(20)]
            received += [record.value for record in consumer.poll(0.02)]
        # The connections are those of the beginning: nobody has reconnected.
        connections = live.on_loop(lambda: len(live.context.connection_quotas.open))
        assert connections - opened <= 6
        assert "User:alice" in principals_of(live)
    assert [future.result().offset for future in futures] == list(range(len(futures)))
    assert received == [b"%d" % number for number in range(len(futures))]
    assert len([path for path in provider.asked if path == "/token"]) >= 3
    _, form = provider.forms[-1]
    assert form == b"grant_type=client_credentials&scope=read+write"


class Tokens:
    """What kafka-python and aiokafka users pass."""

    def token(self):
        return fresh()

    def extensions(self):
        return {"pool": "a"}


class AsyncTokens(AbstractTokenProvider):
    async def token(self):
        await asyncio.sleep(0)
        return fresh()


def confluent_token(config):
    return fresh(sub=config or "alice"), time.time() + LIFETIME_S, "", {"pool": "a"}


async def async_token():
    return fresh(), time.time() + LIFETIME_S


@pytest.mark.parametrize(
    "source",
    [
        {"sasl_oauth_token_provider": fresh},
        {"sasl_oauth_token_provider": Tokens()},
        {"sasl_oauth_token_provider": AsyncTokens()},
        {"sasl_oauth_token_provider": async_token},
        {"oauth_cb": confluent_token, "sasl_oauthbearer_config": "bob"},
        {
            "sasl_jaas_config": f'{MODULE} clientId="id" clientSecret="secret" extension_pool="a";',
            "sasl_oauthbearer_token_endpoint_url": "TOKEN",
            "sasl_login_callback_handler_class": "org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginCallbackHandler",
        },
        {"sasl_oauthbearer_token_endpoint_url": "FILE"},
    ],
    ids=["callable", "object", "async object", "async callable", "confluent", "jaas", "file"],
)
def test_every_source_of_tokens_serves_both_faces(live, oauth, topic, provider, tmp_path, source):
    file = tmp_path / "token"
    file.write_text(fresh(60) + "\n")
    places = {"TOKEN": f"{provider.url}/token", "FILE": file.as_uri()}
    source = {
        name: places.get(value, value) if isinstance(value, str) else value
        for name, value in source.items()
    }
    mine = login(oauth, **source)
    with headwater.Producer(**mine) as producer:
        producer.send(topic, b"one").result()

    async def run():
        async with aio.Producer(**mine) as producer:
            await producer.send_and_wait(topic, b"two")
        async with aio.Admin(**mine) as admin:
            return await admin.list_topics()

    assert topic in asyncio.run(run())
    with headwater.Consumer(**mine, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found = []
        while len(found) < 2:
            found += [record.value for record in consumer.poll(1.0)]
        assert ("User:bob" if "oauth_cb" in source else "User:alice") in principals_of(live)
    assert found == [b"one", b"two"]


def test_a_provider_that_is_away_for_a_while_loses_nothing(oauth, topic, provider):
    mine = with_endpoint(oauth, provider, sasl_oauthbearer_scope="away")
    del mine["sasl.oauthbearer.scope"]
    grant, futures = provider.answers["/token"], []
    with headwater.Producer(**mine, linger_ms=0) as producer:
        try:
            producer.send(topic, b"0").result()
            provider.answers["/token"] = status(503)
            ends = time.monotonic() + 1.3 * LIFETIME_S
            while time.monotonic() < ends:
                futures.append(producer.send(topic, b"x"))
                time.sleep(0.02)
        finally:
            provider.answers["/token"] = grant
        offsets = [future.result().offset for future in futures]
    assert offsets == list(range(1, len(futures) + 1))


def test_a_refusal_says_what_to_check(oauth, topic, provider):
    def refused(says, **changed):
        with (
            headwater.Admin(**{**login(oauth), **changed}) as admin,
            pytest.raises(AuthenticationError, match=says) as problem,
        ):
            admin.list_topics()
        assert "secret" not in str(problem.value).replace("client.secret", "")

    wrong = {"sasl.oauthbearer.client.credentials.client.secret": "wrong"}
    refused("answered 401 Unauthorized .invalid_client.", **with_endpoint(oauth, provider) | wrong)
    refused("issuer, audience and times", sasl_oauth_token_provider=lambda: fresh(aud="other"))
    refused("cannot be sent", sasl_oauth_token_provider=lambda: "a\nsecret")
    refused("ZeroDivisionError", sasl_oauth_token_provider=lambda: 1 // 0)
    refused("neither a token nor a tuple", sasl_oauth_token_provider=lambda: b"secret")


def test_a_rotated_key_is_found_while_the_broker_runs(oauth, provider, live):
    """The login waits for the fetch that its unknown key causes."""
    provider.answers["/jwks"] = jwks(jwk("one"), jwk("two", "RS256"))
    (keys,) = live.context.token_keys
    live.on_loop(lambda: setattr(keys._refresh, "_began_ms", -1_000_000))

    def rotated():
        return token(claims(time.time_ns() // 1_000_000, 60), kid="two", algorithm="RS256")

    with headwater.Admin(**login(oauth, sasl_oauth_token_provider=rotated)) as admin:
        assert admin.describe_cluster().brokers
