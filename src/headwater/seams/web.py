"""Small documents from URLs, for threads: bounded in size and time, never from another scheme.

Identity providers are asked this way, a few times an hour. `https:`, `http:` and `file:` are read;
proxies are those of the environment.
"""

import http.client
import os
import socket
import ssl
import stat
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit

MAX_BYTES = 512 * 1024
_PART = 64 * 1024
_Headers = Mapping[str, str]


class WebError(Exception):
    """Why a document could not be had; `body` is what an HTTP error came with."""

    def __init__(self, message: str, *, status: int = 0, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.body = body


def fetch(
    url: str,
    trust: ssl.SSLContext | None = None,
    *,
    form: bytes | None = None,
    headers: _Headers | None = None,
    connect_timeout_s: float = 5.0,
    timeout_s: float = 10.0,
    max_bytes: int = MAX_BYTES,
) -> bytes:
    """Return the document; with `form`, what a POST of it returns. Raises WebError.

    `timeout_s` is for all of it, however slowly the server sends.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return _read(unquote(parts.path), max_bytes)
    wanted = request.Request(url, data=form, headers=dict(headers or {}))
    deadline = _Deadline(timeout_s)
    opener = _opener(parts.scheme, trust, deadline)
    try:
        with deadline, opener.open(wanted, timeout=min(connect_timeout_s, timeout_s)) as answer:
            body = _body(answer, max_bytes)
            if deadline.passed:  # the end that was read is that of the deadline
                raise TimeoutError
            return body
    except HTTPError as refused:
        raise _refusal(refused, deadline) from None
    except (OSError, http.client.HTTPException, ValueError) as problem:
        if deadline.passed:
            raise WebError(f"did not answer within {timeout_s:g} s") from None
        why = problem.reason if isinstance(problem, URLError) else problem
        raise WebError(f"cannot be read: {_text(why)}") from None


class _Deadline:
    """Ends the connections of one fetch when its time is up."""

    def __init__(self, timeout_s: float) -> None:
        self.passed = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(timeout_s, self._end)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def holds(self, opened: socket.socket) -> None:
        self._sockets.append(opened)
        if self.passed:
            self._end()

    def _end(self) -> None:
        self.passed = True
        for opened in self._sockets:
            with suppress(OSError):
                # Not the method of TLS: that would take the state another thread reads with.
                socket.socket.shutdown(opened, socket.SHUT_RDWR)


def _opener(
    scheme: str, trust: ssl.SSLContext | None, deadline: _Deadline
) -> request.OpenerDirector:
    class Plain(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            deadline.holds(self.sock)

    class Secure(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            deadline.holds(self.sock)

    class OpenPlain(request.HTTPHandler):
        def http_open(self, req: request.Request) -> http.client.HTTPResponse:
            return self.do_open(Plain, req)

    class OpenSecure(request.HTTPSHandler):
        def https_open(self, req: request.Request) -> http.client.HTTPResponse:
            return self.do_open(Secure, req, context=trust)

    opener = request.OpenerDirector()
    handlers: list[request.BaseHandler] = [
        request.ProxyHandler(),
        request.HTTPDefaultErrorHandler(),
        _SameScheme(scheme),
        request.HTTPErrorProcessor(),
        OpenPlain() if scheme == "http" else OpenSecure(),
    ]
    for handler in handlers:
        opener.add_handler(handler)
    return opener


class _SameScheme(request.HTTPRedirectHandler):
    """Follows a redirect of a GET to the same scheme; secrets in a form go to nobody else."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    def redirect_request(
        self,
        req: request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> request.Request | None:
        if req.data is not None or urlsplit(newurl).scheme != self._scheme:
            raise HTTPError(req.full_url, code, "a redirect is not followed", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _body(answer: http.client.HTTPResponse, max_bytes: int) -> bytes:
    data = bytearray()
    while part := answer.read1(_PART):
        data += part
        if len(data) > max_bytes:
            raise WebError(f"is larger than {max_bytes} bytes")
    if answer.length:
        raise WebError("ended early")
    return bytes(data)


def _refusal(refused: HTTPError, deadline: _Deadline) -> WebError:
    with refused, suppress(OSError, http.client.HTTPException, ValueError):
        return WebError(
            f"answered {refused.code} {_text(refused.reason)}",
            status=refused.code,
            body=b"" if deadline.passed else refused.read1(_PART),
        )
    return WebError(f"answered {refused.code}", status=refused.code)


def _read(path: str, max_bytes: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise WebError("is not a file")
            data = file.read(max_bytes + 1)
    except OSError as problem:
        raise WebError(f"cannot be read: {problem.strerror}") from None
    if len(data) > max_bytes:
        raise WebError(f"is larger than {max_bytes} bytes")
    return data


def _text(problem: object) -> str:
    """Return one line without control characters: a server may have written it."""
    said = str(problem)[:200] or type(problem).__name__
    return "".join(char if char.isprintable() else "?" for char in said)
