"""An HTTP server whose answers a test chooses."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Documents:
    """`answers[path]` is bytes, or a call that writes with the handler; `asked` counts requests."""

    def __init__(self, address):
        self.url = f"http://{address[0]}:{address[1]}"
        self.answers = {}
        self.asked = []
        self.forms = []
        self.ending = threading.Event()


@contextmanager
def documents(tls=None):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer(b"")

        def do_POST(self):
            self._answer(self.rfile.read(int(self.headers["content-length"])))

        def _answer(self, form):
            served.asked.append(self.path)
            served.forms.append((dict(self.headers), form))
            answer = served.answers.get(self.path)
            if callable(answer):
                answer(self)
                return
            self.send_response(404 if answer is None else 200)
            self.send_header("content-length", str(len(answer or b"")))
            self.end_headers()
            self.wfile.write(answer or b"")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None
    served = Documents(server.server_address)
    if tls is not None:
        served.url = served.url.replace("http:", "https:")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        served.ending.set()
        server.shutdown()
        thread.join()
        server.server_close()


def status(code, body=b"", **headers):
    """An answer with another status."""

    def answer(handler):
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer
