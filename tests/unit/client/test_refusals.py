"""What a client without a right is told to type."""

from headwater.client.refusals import refused, user_of
from headwater.config.client import AdminSettings
from headwater.errors import E

LOGIN = {
    "bootstrap_servers": "127.0.0.1:9092",
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-512",
}
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required "


def test_the_id_of_a_delegation_token_is_no_user():
    entry = 'username="token-1" password="p"{};'
    alice = AdminSettings.of({**LOGIN, "sasl_jaas_config": JAAS + entry.format("")})
    assert user_of(alice) == "token-1"
    job = AdminSettings.of({**LOGIN, "sasl_jaas_config": JAAS + entry.format(' tokenauth="true"')})
    said = str(refused(job, E.TOPIC_AUTHORIZATION_FAILED, "orders"))
    assert "headwater acls allow USER describe topic orders" in said
    assert "token-1" not in said
