"""What surrounds every request: its size, its time, a line in the log."""

import json
import time
from typing import Any, Awaitable, Callable, MutableMapping

from .log import log
from .metrics import Metrics

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class BodyLimit:
    """Refuses requests that are too large, as soon as that is known."""

    def __init__(self, app: App, limit: int, error: Callable[[str], Exception]) -> None:
        """Make the layer.

        limit (int): Bytes of a request.
        error (Callable[[str], Exception]): Makes what is raised, of a message.
        """
        self._app = app
        self._limit = limit
        self._message = f"The request is larger than {limit} bytes. Send fewer texts at a time."
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _announced(scope) > self._limit:
            await _refuse(send, self._message)
            return
        read = 0

        async def receive_some() -> MutableMapping[str, Any]:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._limit:
                raise self._error(self._message)
            return message

        await self._app(scope, receive_some, send)


def _announced(scope: Scope) -> int:
    """RETURNS (int): The size of a request by its header, 0 if it does not say."""
    values = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(values[0]) if values and values[0].isdigit() else 0


async def _refuse(send: Send, message: str) -> None:
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"detail": message}).encode()})


class Watch:
    """Counts and logs requests: method, path, status, time. The path is that of the route, without what
    people asked for.
    """

    def __init__(self, app: App, metrics: Metrics) -> None:
        """Make the layer.

        metrics (Metrics): Where requests are counted.
        """
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def send_on(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        finally:
            seconds = time.perf_counter() - start
            path = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if path != "other" else "other"
            self._metrics.requests.labels(method, path, status).inc()
            self._metrics.latency.labels(path).observe(seconds)
            said = scope.get("state", {}).get("log", {})
            log("request", method=method, path=path, status=status, ms=round(1000 * seconds, 2), **said)
