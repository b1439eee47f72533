"""Our clients and our command line under ACLs: refusals come at once and tell what to grant."""

import contextlib
import json
import re

import pytest
from click.testing import CliRunner

from headwater import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    Admin,
    AuthorizationError,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
    UserScramCredentialDeletion,
)
from headwater.broker import server_connection
from headwater.cli.app import command
from headwater.security.principals import Principal
from tests.unit.broker.live import Live
from tests.unit.broker.test_acl_matrix import AUTHORIZER

LONG_S = 20


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:root"}
    with Live(tmp_path_factory.mktemp("data"), settings) as broker:
        yield broker


@pytest.fixture
def become(monkeypatch):
    """Connections from now on belong to this user."""

    def become(name):
        monkeypatch.setattr(server_connection, "ANONYMOUS", Principal("User", name))

    become("root")
    return become


def run(live, *words, exit_code=0, typed=""):
    words = [*words, "--bootstrap-server", live.bootstrap]
    result = CliRunner().invoke(command, words, input=typed, catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result.output


def poll(live, topic, **settings):
    """Read without a group by assignment, or with one by subscription."""
    with Consumer(bootstrap_servers=live.bootstrap, **settings) as consumer:
        if settings:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, 0)])
        consumer.poll(LONG_S)


def test_the_walk_of_admin_writer_and_reader(live, become):
    """E4: the admin grants, the writer writes, the reader reads, and nobody does what it may not."""
    with Admin(bootstrap_servers=live.bootstrap) as admin:
        admin.create_topics([NewTopic("orders"), NewTopic("secrets")])
    assert "would be created: allow User:writer write topic orders" in run(
        live, "acls", "allow", "writer", "write", "topic", "orders", "--dry-run"
    )
    assert "no ACL matches" in run(live, "acls", "list")
    run(live, "acls", "allow-producer", "writer", "orders")
    run(live, "acls", "allow-consumer", "reader", "orders", "billing")

    become("writer")
    with Producer(bootstrap_servers=live.bootstrap) as producer:
        producer.send("orders", b"a book").result(30)
        with pytest.raises(AuthorizationError, match="may not write to topic 'secrets'") as refused:
            producer.send("secrets", b"a spy").result(30)
    assert "grant it with: headwater acls allow ANONYMOUS write topic secrets" in str(refused.value)
    with pytest.raises(AuthorizationError, match="may not read topic 'orders'"):
        poll(live, "orders")

    become("reader")
    with Consumer(
        bootstrap_servers=live.bootstrap, group_id="billing", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["orders"])
        assert next(iter(consumer)).value == b"a book"
        consumer.commit()
    with pytest.raises(AuthorizationError, match="may not read group 'other'"):
        poll(live, "orders", group_id="other")
    with pytest.raises(AuthorizationError, match="may not read topic 'secrets'"):
        poll(live, "secrets")
    with (
        Admin(bootstrap_servers=live.bootstrap) as admin,
        pytest.raises(AuthorizationError, match="user 'reader' may not create topic 'mine'"),
    ):
        admin.create_topics([NewTopic("mine")])

    become("root")
    assert "removed: allow User:writer write topic orders" in run(live, "acls", "remove", "writer")
    become("writer")
    with (
        Producer(bootstrap_servers=live.bootstrap) as producer,
        pytest.raises(AuthorizationError),
    ):
        producer.send("orders", b"another").result(30)


def test_the_command_line_needs_no_right_to_the_cluster_for_ones_own_topic(live, become):
    with Admin(bootstrap_servers=live.bootstrap) as admin:
        admin.create_topics([NewTopic("own"), NewTopic("hidden")])
    run(live, "acls", "allow-producer", "clerk", "own")
    become("clerk")
    assert run(live, "produce", "own", typed="a book\n") == "own: sent 1 record\n"
    said = run(live, "topics", "list")
    assert "BYTES not shown: user 'ANONYMOUS' may not describe the cluster" in said
    assert re.search(r"^own +1 +1 +1 +-$", said, re.MULTILINE)
    assert "configs not shown" in run(live, "topics", "describe", "own")
    assert "LOG_DIRS not shown" in run(live, "cluster")
    for words in (("describe",), ("trim", "--before", "end")):
        said = run(live, "topics", *words, "hidden", exit_code=1)
        assert "may not describe topic 'hidden'" in said
    assert "may not describe topic 'hidden'" in run(live, "produce", "hidden", exit_code=1)
    become("root")
    run(live, "acls", "remove", "clerk")  # the broker is shared


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (("users", "list"), "describe cluster"),
        (("quotas", "list"), "describe-configs cluster"),
        (("acls", "list"), "describe cluster"),
        (("brokers", "log-dirs"), "describe cluster"),
        (("quotas", "set", "--user", "a", "producer_byte_rate=1"), "alter-configs cluster"),
        (("elect", "--all"), "alter cluster"),
        (("topics", "trim", "--before", "end", "trimmed"), "delete topic trimmed"),
        (("groups", "delete", "billing-2"), "delete group billing-2"),
    ],
)
def test_a_refusal_names_the_command_that_grants_the_right(live, become, words, right):
    with Admin(bootstrap_servers=live.bootstrap) as admin, contextlib.suppress(KafkaError):
        admin.create_topics([NewTopic("trimmed")])
    for kind, name in (("topic", "trimmed"), ("group", "billing-2")):
        run(live, "acls", "allow", "stranger", "describe", kind, name)
    become("stranger")
    said = run(live, *words, exit_code=1)
    become("root")
    run(live, "acls", "remove", "stranger")  # the broker is shared
    assert re.search(f"grant it with: headwater acls allow (stranger|ANONYMOUS) {right}$", said)


def test_a_refused_change_of_users_names_the_command_too(live, become):
    become("stranger")
    with (
        Admin(bootstrap_servers=live.bootstrap) as admin,
        pytest.raises(AuthorizationError, match=r"acls allow ANONYMOUS alter cluster$"),
    ):
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob")])


def test_the_admin_and_the_command_line_show_and_change_the_same_acls(live, become):
    deny = ("deny", "eve", "all", "group", "g-", "--prefixed", "--host", "10.0.0.1")
    assert (
        run(live, "acls", *deny) == "created: deny User:eve all prefix of group g- from 10.0.0.1\n"
    )
    assert run(live, "acls", *deny) == "it already exists\n"
    (row,) = json.loads(run(live, "acls", "list", "--user", "eve", "--json"))
    assert row == {
        "principal": "User:eve", "permission": "deny", "operation": "all", "type": "group",
        "name": "g-", "pattern": "prefixed", "host": "10.0.0.1",
    }  # fmt: skip
    assert "g-" in run(live, "acls", "list", "--type", "group", "--name", "g-1")
    run(live, "acls", "allow", "eve", "alter,describe", "cluster")
    with Admin(bootstrap_servers=live.bootstrap) as admin:
        cluster = AclFilter(AclResourceType.CLUSTER, principal="User:eve")
        found = admin.describe_acls(cluster)
        assert {one.operation for one in found} == {AclOperation.ALTER, AclOperation.DESCRIBE}
        assert sorted(admin.delete_acls([cluster])) == sorted(found)
        admin.create_acls([AclBinding("User:eve", AclOperation.READ, AclResourceType.TOPIC, "t")])
    removed = run(live, "acls", "remove", "eve", "--dry-run")
    assert removed.count("would be removed") == 2
    assert run(live, "acls", "remove", "eve").count("removed") == 2
    assert "nothing is removed" in run(live, "acls", "remove", "eve")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("allow", "eve", "jump", "topic", "t"), "'jump' is not an operation"),
        (("allow", "eve", "alter-configs", "transactional-id", "t"), "does not apply to"),
        (("allow", "eve", "read", "topic"), "name the topic"),
        (("allow", "eve", "read", "topic", "t-*"), "write t- --prefixed"),
        (("allow", "eve", "alter", "cluster", "mine"), "leave NAME out"),
        (("allow", "eve", "read", "topic", "t", "--host", "h"), "write an IP address"),
    ],
)
def test_a_wrong_rule_is_refused_with_what_to_write(live, become, words, said):
    assert said in run(live, "acls", *words, exit_code=2)


def test_kafkas_line_is_translated():
    line = (
        "kafka-acls",
        "--add",
        "--allow-principal",
        "User:bob",
        "--operation",
        "DescribeConfigs",
    )
    said = CliRunner().invoke(
        command, [*line, "--topic", "t", "--resource-pattern-type", "prefixed"]
    )
    assert "headwater acls allow bob describe-configs topic t --prefixed" in said.output
    assert "without a counterpart" not in said.output
