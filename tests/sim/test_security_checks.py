"""The rules that the logins and rights of a simulated cluster are held against can fail."""

import json

from headwater.controller.store.tree import Made, Removed, Wrote
from simulator.clock import SimClock
from simulator.disk import Disk
from simulator.files import FileFaults, SimFiles
from simulator.loop import Scheduler
from simulator.randomness import stream
from simulator.security.acl_history import LAG_US, LITERAL, PREFIXED, AclHistory, Entry, Question
from simulator.security.users import ADMIN, APP, BROKER, STRANGER, Password, user_of
from simulator.trace import Trace

MAY = Question("bob", "Read", "of-alice")


def node(*rows):
    keys = ("principal", "host", "operation", "permissionType")
    return json.dumps({"acls": [dict(zip(keys, row, strict=True)) for row in rows]}).encode()


ALLOWED = node(("User:bob", "*", "Read", "Allow"))
DENIED = node(("User:bob", "*", "All", "Deny"))


def test_the_versions_of_the_acls_decide_by_kafkas_rules():
    history = AclHistory(Scheduler(Trace()))
    assert not history.somebody(MAY, 0)
    history.edited(Made(LITERAL + "of-alice", ALLOWED, 0))
    assert history.everybody(MAY, 1)
    history.edited(Made(PREFIXED + "of", DENIED, 0))
    assert history.somebody(MAY, 1)
    assert not history.somebody(MAY, 2)
    history.edited(Removed(PREFIXED + "of"))
    assert history.everybody(MAY, 3)
    history.edited(Wrote(LITERAL + "of-alice", node(("User:bob", "10.0.0.1", "Read", "Allow"))))
    assert not history.somebody(MAY, 4)
    history.edited(Made(LITERAL + "*", ALLOWED, 0))
    assert history.everybody(MAY, 5)


def test_a_change_is_in_force_where_it_was_answered_and_in_time_elsewhere():
    scheduler = Scheduler(Trace())
    history = AclHistory(scheduler)
    history.edited(Made(LITERAL + "of-alice", ALLOWED, 0))
    entry = Entry(LITERAL + "of-alice", "User:bob", "*", "Read", "Allow")
    assert history.first(0, entry, present=True) == 1
    assert history.first(1, entry, present=False) is None
    history.answered("broker", 1)
    assert (history.oldest("broker"), history.oldest("broker-2")) == (1, 0)
    scheduler.now_us = LAG_US + 1
    assert history.oldest("broker-2") == 0
    history.calm_since_us = 0
    assert history.oldest("broker-2") == 1


def test_a_password_is_replaced_only_by_one_that_was_acknowledged():
    password = Password("alice")
    first, unknown, last = password.next(), "", ""
    password.acknowledged(first, 1)
    unknown = password.next()
    assert (password.text, password.replaced) == (unknown, [])
    last = password.next()
    password.acknowledged(last, 5)
    assert password.replaced == [(5, first)]


def test_the_host_of_a_client_tells_its_user():
    hosts = ("tenant bob reader", "warden 1", "stranger", "producer-0", "broker-2")
    assert [user_of(host) for host in hosts] == ["bob", ADMIN, STRANGER, APP, BROKER]


def test_a_file_outside_of_the_log_dirs_is_seen_whatever_dots_are_in_its_path():
    scheduler = Scheduler(Trace())
    clock, chance = SimClock(scheduler), stream(1, "disk")
    files = SimFiles(Disk(), clock, chance, Trace(), FileFaults())
    files.disk.make_folders("/data")
    files.homes, seen = ("/data",), []
    files.on_outside = seen.append
    files.mkdir("/data/orders-0")
    files.exists("/data/./orders-0/../payments-0")
    assert seen == []
    for path in ("/data/../elsewhere", "/data-elsewhere", "/data/orders-0/../../elsewhere"):
        files.exists(path)
        files.mkdir(path)
        assert set(seen) == {path}
        seen.clear()
