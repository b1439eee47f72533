"""SCRAM credentials of users: what clients may store, how it is stored, and what is shown of it."""

import json

import pytest

from headwater.controller.commands import AlterUsers, CredentialChange
from headwater.errors import E
from headwater.security.acls import AclOperation, AclResourceType
from headwater.security.scram_credentials import SCRAM_SHA_256, ScramCredential
from headwater.wire.messages.users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from tests.unit.controller.fake_loop import OneBroker
from tests.unit.controller.test_admin_handlers import Desk

Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
SALT = b"QSXCR+Q6sek8bf92"
SALTED = SCRAM_SHA_256.salted_password("pencil", SALT, 4096)


@pytest.fixture
def desk():
    return Desk()


def upsertion(name="alice", **changed):
    known = {"mechanism": 1, "iterations": 4096, "salt": SALT, "salted_password": SALTED}
    return Upsertion(name=name, **{**known, **changed})


def alter(desk, *changes):
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, Deletion)],
        upsertions=[one for one in changes if isinstance(one, Upsertion)],
    )
    return {one.user: (one.error_code, one.error_message) for one in desk.ask(request).results}


def describe(desk, *names):
    users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
    answer = desk.ask(DescribeUserScramCredentialsRequest(users=users or None))
    assert answer.error_code == 0
    return {
        one.user: one.error_code
        or [(info.mechanism, info.iterations) for info in one.credential_infos]
        for one in answer.results
    }


def test_a_credential_is_stored_as_kafka_stores_it_and_survives_a_restart(desk):
    assert alter(desk, upsertion("alice/ä")) == {"alice/ä": (0, None)}
    stored = json.loads(desk.broker.data("/config/users/alice%2F%C3%A4"))
    (text,) = stored["config"].values()
    credential = ScramCredential.decode(stored["config"]["SCRAM-SHA-256"])
    assert stored["version"] == 1
    assert text.startswith("salt=UVNYQ1IrUTZzZWs4YmY5Mg==,stored_key=")
    assert credential == ScramCredential.of_salted_password(SCRAM_SHA_256, SALT, SALTED, 4096)
    again = OneBroker(desk.broker.files)
    assert again.users.of("alice/ä") == {"SCRAM-SHA-256": credential}


@pytest.mark.parametrize("salted", [b"p", bytes(31), bytes(100)])
def test_a_salted_password_has_any_length_as_in_kafka(desk, salted):
    assert alter(desk, upsertion(salted_password=salted)) == {"alice": (0, None)}
    assert describe(desk) == {"alice": [(1, 4096)]}


def test_credentials_of_two_mechanisms_come_and_go_one_by_one(desk):
    alter(desk, upsertion())
    alter(desk, upsertion(mechanism=2, iterations=8192, salted_password=bytes(64)))
    assert describe(desk) == {"alice": [(1, 4096), (2, 8192)]}
    assert alter(desk, Deletion(name="alice", mechanism=1)) == {"alice": (0, None)}
    assert describe(desk, "alice") == {"alice": [(2, 8192)]}
    assert alter(desk, Deletion(name="alice", mechanism=2)) == {"alice": (0, None)}
    assert describe(desk) == {}
    assert describe(desk, "alice", "bob", "bob") == {
        "alice": E.RESOURCE_NOT_FOUND,
        "bob": E.DUPLICATE_RESOURCE,
    }


def test_other_configs_of_a_user_stay(desk):
    desk.broker.submit(AlterUsers([CredentialChange("alice", "producer_byte_rate", "1000")]))
    alter(desk, upsertion())
    assert desk.broker.user_configs["alice"].keys() == {"producer_byte_rate", "SCRAM-SHA-256"}


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (upsertion(""), E.UNACCEPTABLE_CREDENTIAL, "needs a name"),
        (upsertion("<default>"), E.UNACCEPTABLE_CREDENTIAL, "stands for all"),
        (upsertion("ANONYMOUS"), E.UNACCEPTABLE_CREDENTIAL, "no user may have"),
        (upsertion("é" * 128), E.UNACCEPTABLE_CREDENTIAL, "255 bytes"),
        (upsertion(mechanism=3), E.UNSUPPORTED_SASL_MECHANISM, "SHA-256"),
        (upsertion(iterations=4095), E.UNACCEPTABLE_CREDENTIAL, "too few iterations"),
        (upsertion(iterations=16_385), E.UNACCEPTABLE_CREDENTIAL, "too many iterations"),
        (upsertion(salt=b""), E.UNACCEPTABLE_CREDENTIAL, "salt"),
        (upsertion(salt=bytes(1025)), E.UNACCEPTABLE_CREDENTIAL, "salt"),
        (upsertion(salted_password=b""), E.UNACCEPTABLE_CREDENTIAL, "is empty"),
        (Deletion(name="alice", mechanism=1), E.RESOURCE_NOT_FOUND, "no SCRAM-SHA-256"),
    ],
)
def test_a_bad_change_is_refused_beside_a_good_one(desk, change, error, says):
    answers = alter(desk, change, upsertion("bob"))
    code, message = answers[change.name]
    assert (code, answers["bob"]) == (error, (0, None))
    assert says in message
    assert describe(desk) == {"bob": [(1, 4096)]}


def test_a_user_appears_once_in_a_request(desk):
    assert alter(desk, upsertion(), upsertion(mechanism=2))["alice"][0] == E.DUPLICATE_RESOURCE
    both = alter(desk, upsertion(), Deletion(name="alice", mechanism=1))
    assert both["alice"][0] == E.DUPLICATE_RESOURCE
    assert describe(desk) == {}


def test_rights_to_the_cluster_are_needed(desk):
    alter(desk, upsertion())
    desk.forbidden = {
        (AclOperation.ALTER, AclResourceType.CLUSTER),
        (AclOperation.DESCRIBE, AclResourceType.CLUSTER),
    }
    assert alter(desk, upsertion())["alice"][0] == E.CLUSTER_AUTHORIZATION_FAILED
    answer = desk.ask(DescribeUserScramCredentialsRequest(users=None))
    assert (answer.error_code, answer.results) == (E.CLUSTER_AUTHORIZATION_FAILED, [])
