"""The ACL index decides as a naive reading of Kafka's rules, and several brokers keep every change."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.broker.acl_changes import AclChanges, AclEdit
from headwater.controller.store.metadata_store import SessionState
from headwater.security.acl_index import AclIndex
from headwater.security.acl_nodes import decode_entries, encode_entries, node_path
from headwater.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)
from headwater.security.principals import Principal
from headwater.security.standard_authorizer import StandardAuthorizer
from tests.unit.controller.fake_loop import FakeLoop, MemoryFiles, embedded

Op, Allow, Deny = AclOperation, AclPermission.ALLOW, AclPermission.DENY
NAMES = ("*", "a", "ab", "abc", "b", "")
OPERATIONS = (
    Op.ALL,
    Op.READ,
    Op.WRITE,
    Op.ALTER,
    Op.DESCRIBE,
    Op.ALTER_CONFIGS,
    Op.DESCRIBE_CONFIGS,
)

patterns = st.builds(
    ResourcePattern,
    st.sampled_from((AclResourceType.TOPIC, AclResourceType.GROUP)),
    st.sampled_from((AclPatternType.LITERAL, AclPatternType.PREFIXED)),
    st.sampled_from(NAMES[:-1]),
)
entries = st.builds(
    AclEntry,
    st.sampled_from(("User:*", "User:eve", "User:bob", "Group:eve")),
    st.sampled_from(("*", "10.0.0.1", "::1")),
    st.sampled_from(OPERATIONS),
    st.sampled_from((Allow, Deny)),
)
acls = st.lists(st.tuples(patterns, entries), max_size=12)
questions = st.tuples(
    st.sampled_from((Principal("User", "eve"), Principal("User", "bob"), Principal("User", "*"))),
    st.sampled_from(("10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1", "::ffff:10.0.0.1")),
    st.sampled_from(OPERATIONS[1:]),
    st.sampled_from((AclResourceType.TOPIC, AclResourceType.GROUP)),
    st.sampled_from(NAMES),
)
SAME_HOST = {"0:0:0:0:0:0:0:1": "::1", "::ffff:10.0.0.1": "10.0.0.1"}
IMPLIED = {
    Op.DESCRIBE: (Op.DESCRIBE, Op.READ, Op.WRITE, Op.DELETE, Op.ALTER),
    Op.DESCRIBE_CONFIGS: (Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
}


def names(pattern, name):
    if pattern.pattern_type is AclPatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in ("*", name)


def is_for(entry, principal, host):
    return entry.principal in ("User:*", str(principal)) and entry.host in (
        "*",
        SAME_HOST.get(host, host),
    )


def naive(rules, open_without_acl, principal, host, operation, kind, name):
    """Kafka's rules, word by word."""
    about = [(p, e) for p, e in rules if p.resource_type is kind and names(p, name)]
    mine = [e for _, e in about if is_for(e, principal, host)]
    if any(e.permission is Deny and e.operation in (operation, Op.ALL) for e in mine):
        return False
    enough = (Op.ALL, *IMPLIED.get(operation, (operation,)))
    if any(e.permission is Allow and e.operation in enough for e in mine):
        return True
    return open_without_acl and not about


def authorizer_of(rules, open_without_acl=False):
    index = AclIndex()
    for pattern in {pattern for pattern, _ in rules}:
        index.replace(pattern, [entry for one, entry in rules if one == pattern])
    authorizer = StandardAuthorizer((), open_without_acl)
    authorizer.use(index)
    return authorizer


@settings(max_examples=400, deadline=None)
@given(acls, acls, st.booleans(), st.lists(questions, min_size=1, max_size=6))
def test_decisions_equal_the_naive_model_before_and_after_a_change(before, after, is_open, asked):
    authorizer = authorizer_of(before, is_open)
    for question in asked * 2:
        assert authorizer.authorize(*question) is naive(before, is_open, *question)
    for pattern in {pattern for pattern, _ in before + after}:
        authorizer.replace(pattern, [entry for one, entry in after if one == pattern])
    for question in asked * 2:
        assert authorizer.authorize(*question) is naive(after, is_open, *question)
        rule = authorizer.reason(*question)
        assert rule.startswith(("ALLOW", "DENY", "no ACL"))


@settings(max_examples=300, deadline=None)
@given(acls, questions)
def test_a_right_to_any_resource_is_one_that_no_denial_covers(rules, question):
    principal, host, operation, kind, _ = question
    mine = [
        (p, e)
        for p, e in rules
        if p.resource_type is kind
        and is_for(e, principal, host)
        and e.operation in (operation, Op.ALL)
    ]
    denied = [p for p, e in mine if e.permission is Deny]

    def covers(deny, allow):
        if deny.pattern_type is AclPatternType.PREFIXED:
            return allow.name.startswith(deny.name)
        return deny.name == "*" or deny == allow

    everything = ResourcePattern(kind, AclPatternType.LITERAL, "*")
    allowed = {p for p, e in mine if e.permission is Allow}
    expected = everything not in denied and (
        everything in allowed or any(not any(covers(d, a) for d in denied) for a in allowed)
    )
    found = authorizer_of(rules).authorize_any(principal, host, operation, kind)
    assert found is (expected or naive(rules, False, principal, host, operation, kind, "hardcode"))


filters = st.builds(
    AclFilter,
    st.sampled_from((AclResourceType.ANY, AclResourceType.TOPIC, AclResourceType.GROUP)),
    st.none() | st.sampled_from(NAMES),
    st.sampled_from(AclPatternType),
    st.none() | st.sampled_from(("User:eve", "User:*")),
    st.none() | st.just("10.0.0.1"),
    st.sampled_from((Op.ANY, Op.READ, Op.ALL)),
    st.sampled_from(AclPermission),
)


def selects(wanted, pattern, entry):
    kind, name = wanted.pattern_type, wanted.name
    if kind is AclPatternType.MATCH:
        of_name = name is None or names(pattern, name)
    else:
        of_name = name in (None, pattern.name) and kind in (
            AclPatternType.ANY,
            pattern.pattern_type,
        )
    return (
        of_name
        and wanted.resource_type in (AclResourceType.ANY, pattern.resource_type)
        and wanted.principal in (None, entry.principal)
        and wanted.host in (None, entry.host)
        and wanted.operation in (Op.ANY, entry.operation)
        and wanted.permission in (AclPermission.ANY, entry.permission)
    )


@settings(max_examples=300, deadline=None)
@given(acls, filters)
def test_filters_select_what_a_scan_selects(rules, wanted):
    found = [one for one in authorizer_of(rules).index.select(wanted) if one is not None]
    assert sorted(found) == sorted({rule for rule in rules if selects(wanted, *rule)})


def reread(store, loop):
    """The ACLs as a broker that starts now reads them."""
    authorizer = StandardAuthorizer()
    AclChanges(store, authorizer, lambda: None).start(lambda: None)
    loop.run()
    index = authorizer.index
    return {(pattern, one) for pattern in index.patterns() for one in index.entries(pattern)}


edits = st.tuples(
    st.integers(0, 3), patterns, entries, st.booleans(), st.integers(0, 30), st.booleans()
)


@settings(max_examples=60, deadline=None)
@given(st.lists(edits, max_size=25))
def test_four_brokers_that_change_acls_at_once_lose_nothing(changes):
    """Each ACL ends as the last of its edits to be stored says, on every broker and in the store.

    A broker whose session with the store opens again reads everything, also in the middle of a write.
    """
    loop = FakeLoop()
    store = embedded(loop, MemoryFiles())
    brokers = [StandardAuthorizer() for _ in range(4)]
    stores = [AclChanges(store, one, lambda: None) for one in brokers]
    for one in stores:
        one.start(lambda: None)
    loop.run()
    expected, answered = set(), []
    for broker, pattern, entry, adds, pause, reopens in changes:
        some = frozenset({entry})
        edit = AclEdit(added=some) if adds else AclEdit(removed=some)

        def replied(outcomes, *, own=broker, acl=(pattern, entry), adds=adds):
            assert outcomes[acl[0]].failure is None
            answered.append(acl)
            (expected.add if adds else expected.discard)(acl)
            assert (acl[1] in brokers[own].index.entries(acl[0])) is adds, "in force here first"

        stores[broker].write({pattern: edit}, replied)
        for _ in range(pause):
            loop.step()
        if reopens:
            stores[broker]._session_changed(SessionState.OPEN)
    loop.run()
    assert len(answered) == len(changes)
    stored = reread(store, loop)
    assert stored == expected
    for one in brokers:
        index = one.index
        assert {(p, e) for p in index.patterns() for e in index.entries(p)} == stored


def test_a_change_of_many_large_patterns_is_stored_in_writes_that_zookeeper_takes(monkeypatch):
    """ZooKeeper ends the connection of a client that sends 1 MiB, and the broker would send it again."""
    loop = FakeLoop()
    store = embedded(loop, MemoryFiles())
    acls = AclChanges(store, StandardAuthorizer(), lambda: None)
    acls.start(lambda: None)
    loop.run()
    sizes, multi = [], store.multi

    def weighed(ops, reply):
        sizes.append(sum(len(one.path) + len(getattr(one, "data", b"")) for one in ops))
        multi(ops, reply)

    monkeypatch.setattr(store, "multi", weighed)
    some = frozenset(
        AclEntry(f"User:{user}", "*", Op.READ, Allow) for user in ("eve", *(map(str, range(1000))))
    )
    names = [f"{number}{'n' * 3000}" for number in range(12)]
    wanted = {ResourcePattern(AclResourceType.TOPIC, AclPatternType.LITERAL, n) for n in names}
    outcomes = []
    acls.write({pattern: AclEdit(added=some) for pattern in wanted}, outcomes.append)
    loop.run()
    eve = frozenset(one for one in some if one.principal == "User:eve")
    acls.write({pattern: AclEdit(removed=eve) for pattern in wanted}, outcomes.append)
    loop.run()
    added, removed = outcomes
    assert not any(one.failure for one in [*added.values(), *removed.values()])
    assert {one.removed for one in removed.values()} == {eve}
    assert reread(store, loop) == {(pattern, one) for pattern in wanted for one in some - eve}
    assert max(sizes) < 300_000
    assert len(sizes) < 24, "several patterns in one write"


@given(st.lists(entries, unique=True))
def test_a_node_has_every_acl(some):
    assert list(decode_entries(encode_entries(some))) == some


@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_any_name_is_one_segment_of_a_path(name):
    for kind in (AclPatternType.LITERAL, AclPatternType.PREFIXED):
        path = node_path(ResourcePattern(AclResourceType.GROUP, kind, name))
        parent, _, segment = path.rpartition("/")
        assert parent.endswith("/Group")
        assert segment not in (".", "..", "")


def test_a_right_to_any_of_ten_thousand_topics_is_decided_without_a_look_at_each_prefix(
    monkeypatch,
):
    """It is decided again after every change, for each producer that begins: it must not hold the loop."""
    made = 0

    class Counted(ResourcePattern):
        def __new__(cls, *parts):
            nonlocal made
            made += 1
            return super().__new__(cls, *parts)

    kind, literal = AclResourceType.TOPIC, AclPatternType.LITERAL
    rules = [
        (
            ResourcePattern(kind, literal, f"{number:0240}"),
            AclEntry("User:eve", "*", Op.WRITE, Allow),
        )
        for number in range(10_000)
    ]
    denial = ResourcePattern(kind, AclPatternType.PREFIXED, "0")
    index = AclIndex()
    for pattern, entry in [*rules, (denial, AclEntry("User:*", "*", Op.ALL, Deny))]:
        index.replace(pattern, [entry])
    monkeypatch.setattr("headwater.security.acl_index.ResourcePattern", Counted)
    assert not index.allows_some("User:eve", "10.0.0.1", Op.WRITE, kind)
    assert made < 10
    index.replace(denial, [])
    assert index.allows_some("User:eve", "10.0.0.1", Op.WRITE, kind)
    assert made < 20


def test_decisions_about_names_that_no_topic_can_have_are_not_remembered():
    """Clients choose the names: fifty thousand of them could fill the memory of the broker."""
    authorizer = authorizer_of([])
    eve = Principal("User", "eve")
    for length in (1, 249, 255, 256, 100_000):
        authorizer.authorize(eve, "10.0.0.1", Op.READ, AclResourceType.TOPIC, "n" * length)
    remembered = [question[-1] for question in authorizer._decided]
    assert [len(name) for name in remembered] == [1, 249, 255]
