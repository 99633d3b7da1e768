"""A server on a real socket that does what a test tells it: answers, keeps silent, closes the connection."""

import json
import socket
import threading
import time
from contextlib import contextmanager

# what becomes of a request
CLOSE, WAIT = "close", "wait"


class Unreliable:
    """Does one thing of a list with each request, the last one for ever.

    requests: (method and path, headers in lower case, JSON) of each; times: when they came.
    """

    def __init__(self, things, port=0):
        self.things = list(things)
        self.requests, self.times = [], []
        self._socket = socket.create_server(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self._handle(connection)

    def _handle(self, connection):
        stream = connection.makefile("rb")
        first = stream.readline().decode().rsplit(" ", 1)[0]
        headers = {}
        while line := stream.readline().decode().strip():
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        body = stream.read(int(headers.get("content-length", 0)))
        self.requests.append((first, headers, json.loads(body) if body else None))
        self.times.append(time.monotonic())
        thing = self.things.pop(0) if len(self.things) > 1 else self.things[0]
        if thing == WAIT:
            self._ended.wait(10)
        elif thing != CLOSE:
            connection.sendall(thing if isinstance(thing, bytes) else thing(self.requests[-1][2]))

    def end(self):
        self._ended.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@contextmanager
def unreliable(*things):
    """YIELDS: A server that does these things."""
    server = Unreliable(things)
    try:
        yield server
    finally:
        server.end()


def answer(body, status=200, **headers):
    """RETURNS: An answer with a body: text, or anything that becomes JSON."""
    data = (body if isinstance(body, str) else json.dumps(body)).encode("utf8")
    lines = [f"HTTP/1.1 {status} Reason", f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("utf8") + data


def no_links(request):
    """RETURNS: The answer to `/link` that there are none."""
    return answer({"results": [{"text": text, "links": [], "error": None} for text in request["text"]]})
