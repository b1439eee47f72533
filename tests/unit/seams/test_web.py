"""Documents from URLs: bounded in size and time, from one scheme, and never a crash."""

import os
import socket

import pytest

from headwater.seams.web import WebError, fetch
from tests.unit.seams.document_server import documents, status


@pytest.fixture(scope="module")
def served():
    with documents() as running:
        yield running


def refused(says, url, **more):
    with pytest.raises(WebError, match=says) as problem:
        fetch(url, **more)
    return problem.value


def test_a_document_and_a_form(served):
    served.answers["/keys"] = b"x" * 200_000
    assert fetch(f"{served.url}/keys") == b"x" * 200_000
    assert fetch(f"{served.url}/keys", form=b"a=1", headers={"Authorization": "Basic x"})
    headers, form = served.forms[-1]
    assert (headers["Authorization"], form) == ("Basic x", b"a=1")


def test_a_document_that_is_too_large_is_not_read(served):
    served.answers["/keys"] = b"x" * 101
    assert len(fetch(f"{served.url}/keys", max_bytes=101)) == 101
    refused("larger than 100 bytes", f"{served.url}/keys", max_bytes=100)

    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        while not served.ending.is_set():
            handler.wfile.write(b"x" * 65536)

    served.answers["/endless"] = endless
    refused("larger than", f"{served.url}/endless")


def drip(handler, served, head):
    handler.wfile.write(head)
    while not served.ending.wait(0.02):
        handler.wfile.write(b"x")


@pytest.mark.parametrize("head", [b"", b"HTTP/1.0 200 OK\r\nA: ", b"HTTP/1.0 200 OK\r\n\r\n"])
def test_a_slow_server_is_given_up_however_it_is_slow(served, head):
    served.answers["/slow"] = lambda handler: drip(handler, served, head)
    refused("did not answer within 0.3 s", f"{served.url}/slow", timeout_s=0.3)


def test_errors_and_ends_that_come_early(served):
    served.answers["/error"] = status(401, b'{"error":"invalid_client"}')
    problem = refused("answered 401", f"{served.url}/error")
    assert (problem.status, problem.body) == (401, b'{"error":"invalid_client"}')
    served.answers["/short"] = lambda handler: handler.wfile.write(
        b"HTTP/1.0 200 OK\r\nContent-Length: 50\r\n\r\nabc"
    )
    refused("ended early|IncompleteRead", f"{served.url}/short")
    served.answers["/senseless"] = lambda handler: handler.wfile.write(b"\x16\x03\x01\n\x1b[31m")
    said = str(refused("cannot be read", f"{served.url}/senseless"))
    assert said.isprintable()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    refused("Connection refused", f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("place", ["file:///etc/passwd", "https://127.0.0.1:1/", "ftp://x/"])
def test_a_redirect_to_another_scheme_is_not_followed(served, place):
    served.answers["/moved"] = status(302, location=place)
    refused("answered 302", f"{served.url}/moved")


def test_a_redirect_of_a_document_is_followed_and_of_a_form_is_not(served):
    served.answers["/here"] = b"found"
    served.answers["/moved"] = status(302, location="/here")
    assert fetch(f"{served.url}/moved") == b"found"
    refused("answered 302", f"{served.url}/moved", form=b"secret=1")
    served.answers["/round"] = status(302, location="/round")
    refused("answered 302", f"{served.url}/round")


def test_files(tmp_path):
    file = tmp_path / "a b.json"
    file.write_bytes(b"found")
    assert fetch(file.as_uri()) == b"found"
    refused("larger than 4 bytes", file.as_uri(), max_bytes=4)
    refused("No such file", (tmp_path / "missing").as_uri())
    refused("is not a file|Is a directory", tmp_path.as_uri())
    os.mkfifo(tmp_path / "fifo")
    refused("is not a file", (tmp_path / "fifo").as_uri())
