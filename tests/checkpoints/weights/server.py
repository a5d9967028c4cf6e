"""The hub, as a server on this machine, for clients of the real library."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Server(BaseHTTPRequestHandler):
    """Answers in the hub's protocol; subclasses say what."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        raise NotImplementedError

    def answer(self, status: int, content: bytes | dict[str, object], **headers: str) -> None:
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        kind = {} if isinstance(content, bytes) else {"Content-Type": "application/json"}
        for key, value in {**kind, **headers, "Content-Length": str(len(raw))}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)


@contextmanager
def serving(handler: type[Server]) -> Iterator[str]:
    """The address of a server with this handler."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
