"""ZooKeeper's frames: kazoo's own serialization is the reference, and damage never passes."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoo
from kazoo.security import ACL, Id

from headwater.controller.store.metadata_store import Acl, Check, Create, Delete, Set
from headwater.zookeeper import messages
from headwater.zookeeper.jute import MalformedFrame
from headwater.zookeeper.messages import OpCode, Read, WriteRequest

XID = 7


def frame(request) -> bytes:
    header = kazoo.int_struct.pack(XID) + kazoo.int_struct.pack(request.type)
    return header + bytes(request.serialize())


OPEN = [ACL(31, Id("world", "anyone"))]
REQUESTS = [
    (kazoo.Create("/a", b"x", OPEN, 3), WriteRequest(Create("/a", b"x", True, True))),
    (kazoo.Create2("/a", b"x", OPEN, 0), WriteRequest(Create("/a", b"x"), with_stat=True)),
    (
        kazoo.Create("/a", b"", [ACL(1, Id("digest", "u:h"))], 0),
        WriteRequest(Create("/a", b"", acl=(Acl(1, "digest", "u:h"),))),
    ),
    (kazoo.SetData("/a", b"y", 4), WriteRequest(Set("/a", b"y", 4))),
    (kazoo.Delete("/a", -1), WriteRequest(Delete("/a", -1))),
    (kazoo.Exists("/a", None), Read(OpCode.EXISTS, "/a")),
    (kazoo.GetData("/ä", print), Read(OpCode.GET_DATA, "/ä", True)),
    (kazoo.GetChildren("/a", print), Read(OpCode.GET_CHILDREN, "/a", True)),
    (kazoo.GetChildren2("/a", None), Read(OpCode.GET_CHILDREN2, "/a")),
    (kazoo.GetACL("/a"), Read(OpCode.GET_ACL, "/a")),
    (kazoo.SetACL("/a", OPEN, 2), messages.SetAcl("/a", (Acl(31, "world", "anyone"),), 2)),
    (kazoo.Sync("/a"), messages.Sync("/a")),
    (kazoo.Auth(0, "digest", "u:p"), messages.Auth("digest", b"u:p")),
    (kazoo.PingInstance, messages.Ping()),
    (kazoo.CloseInstance, messages.Close()),
    (
        kazoo.Transaction([kazoo.CheckVersion("/a", 1), kazoo.Delete("/b", 2)]),
        messages.Multi((WriteRequest(Check("/a", 1)), WriteRequest(Delete("/b", 2)))),
    ),
]


@pytest.mark.parametrize(("sent", "meant"), REQUESTS, ids=lambda value: type(value).__name__)
def test_a_request_is_read_as_it_was_meant(sent, meant):
    assert messages.decode_request(frame(sent)) == (XID, meant)


def test_an_operation_that_is_not_served_says_so():
    whole = kazoo.int_struct.pack(XID) + kazoo.int_struct.pack(21)
    assert messages.decode_request(whole) == (XID, messages.Unserved(21))


@pytest.mark.parametrize(("sent", "_"), REQUESTS, ids=lambda value: type(value).__name__)
def test_a_request_cut_anywhere_is_malformed(sent, _):
    whole = frame(sent)
    for end in range(len(whole)):
        with pytest.raises(MalformedFrame):
            messages.decode_request(whole[:end])


@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_malformed(data):
    for decode in (messages.decode_request, messages.decode_connect):
        with contextlib.suppress(MalformedFrame):
            decode(data)


def test_a_count_that_the_frame_cannot_hold_is_malformed():
    whole = bytearray(frame(kazoo.SetACL("/a", OPEN, 2)))
    at = whole.index(b"/a") + 2
    whole[at : at + 4] = b"\x7f\xff\xff\xff"
    with pytest.raises(MalformedFrame):
        messages.decode_request(bytes(whole))
