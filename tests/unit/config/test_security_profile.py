"""security.profile=hardened, and security settings that protect nothing."""

import pytest

from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from headwater.config.security_profile import _RULES

LISTENER = {"listeners": "SASL_SSL://127.0.0.1:0"}
HARDENED = {"security.profile": "hardened", **LISTENER}
WEAKER = {
    "authorizer.class.name": "",
    "allow.everyone.if.no.acl.found": "true",
    "sasl.plain.without.tls": "true",
    "sasl.server.max.receive.size": "65537",
    "socket.request.max.bytes": "104857600",
    "connection.failed.authentication.delay.ms": "999",
    "max.connections.per.ip": "201",
    "max.connection.creation.rate.per.ip": "51",
    "ssl.endpoint.identification.algorithm": "",
    "zookeeper.set.acl": "false",
}
STRICTER = {
    "sasl.server.max.receive.size": "4096",
    "socket.request.max.bytes": "1048576",
    "connection.failed.authentication.delay.ms": "5000",
    "max.connections.per.ip": "10",
    "max.connections.per.ip.overrides": "10.0.0.1:500",
    "max.connection.creation.rate.per.ip": "5",
}


def load(**more):
    return BrokerSettings.load(None, {**HARDENED, **more})


def test_it_sets_what_is_not_set_and_says_so():
    settings = load()
    assert settings.authorizer_class_name.endswith("StandardAuthorizer")
    assert settings.sasl_server_max_receive_size == 65_536
    assert settings.socket_request_max_bytes == 16 << 20
    assert settings.connection_failed_authentication_delay_ms == 1000
    assert settings.max_connections_per_ip == 200
    assert settings.max_connection_creation_rate_per_ip == 50
    assert not settings.zookeeper_set_acl, "there is no ZooKeeper"
    said = "\n".join(settings.hardening)
    assert "max.connections.per.ip=200: one machine cannot take all connections" in said
    assert len(settings.hardening) == len(_RULES) - 1
    assert BrokerSettings.load(None, LISTENER).hardening == ()


def test_stricter_settings_stay():
    settings = load(**STRICTER)
    for name, value in STRICTER.items():
        assert settings.layers.static[name] == value
        assert not any(name + "=" in line for line in settings.hardening)


@pytest.mark.parametrize("name", WEAKER)
def test_weaker_settings_are_refused(name):
    with pytest.raises(ConfigError, match=f"{name}=.* contradicts security.profile=hardened"):
        load(**{name: WEAKER[name]})


def test_every_rule_has_a_weaker_value():
    assert WEAKER.keys() | {"max.connections.per.ip.overrides"} == _RULES.keys()


def test_a_setting_of_one_listener_is_refused_too():
    with pytest.raises(ConfigError, match="contradicts"):
        load(**{"listener.name.sasl_ssl.sasl.plain.without.tls": "true"})


@pytest.mark.parametrize(
    ("listener", "why"),
    [
        ("PLAINTEXT://127.0.0.1:0", "not encrypted"),
        ("SASL_PLAINTEXT://127.0.0.1:0", "not encrypted"),
        ("SSL://127.0.0.1:0", "ssl.client.auth=required"),
    ],
)
def test_open_listeners_are_refused(listener, why):
    with pytest.raises(ConfigError, match=why):
        load(listeners=f"SASL_SSL://127.0.0.1:0,{listener}")


def test_clients_with_certificates_need_no_login():
    given = {"listeners": "SSL://127.0.0.1:0", "listener.name.ssl.ssl.client.auth": "required"}
    assert load(**given).hardening


def test_a_cluster_needs_a_login_to_its_store():
    with pytest.raises(ConfigError, match="needs an identity"):
        load(**{"zookeeper.connect": "zk:2181"})
    own = {"zookeeper.digest.username": "a", "zookeeper.digest.password": "b"}
    assert load(**{"zookeeper.connect": "zk:2181", **own}).zookeeper_set_acl


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ssl.keystore.location": "a.pem"}, "uses TLS"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "uses SASL"),
        ({"super.users": "User:a"}, "set authorizer.class.name"),
        ({"allow.everyone.if.no.acl.found": "true"}, "set authorizer.class.name"),
        (
            {
                "listeners": "SSL://:1,PLAINTEXT://:2",
                "listener.name.plaintext.ssl.client.auth": "required",
            },
            "uses TLS",
        ),
    ],
)
def test_security_settings_that_protect_nothing_are_refused(given, why):
    with pytest.raises(ConfigError, match=f"is set, but .*{why}"):
        BrokerSettings.load(None, given)
