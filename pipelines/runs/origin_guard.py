"""Who may speak to Prefect's server: pages of its own address, and programs on this machine.

A browser sends a page's requests to any address, this machine's included. Without this guard every web page that a user
of the machine opens could start runs here.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
POLICY_VIOLATION = 1008
"""Of WebSocket's close codes."""


def loopback_hosts(port: int) -> frozenset[str]:
    """What the header Host may say on this machine."""
    return frozenset(f"{name}:{port}" for name in LOOPBACK_NAMES)


class OriginGuard:
    """An ASGI application that lets only requests of its own address through to another."""

    def __init__(self, app: App, hosts: frozenset[str] | None) -> None:
        """`hosts` are the allowed values of the header Host; None allows all, for a server that asks for a password."""
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it with a sentence."""
        sentence = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if sentence is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": sentence[:120]})
        else:
            await _forbid(sentence, send)

    def _refusal(self, scope: Scope) -> str | None:
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        host, origin = headers.get("host", "").lower(), headers.get("origin", "").lower()
        if self._hosts is not None and host not in self._hosts:
            return (
                f"The request is for {host[:80]!r}. This server answers for {', '.join(sorted(self._hosts))} only. "
                "Use one of these addresses."
            )
        page = origin.partition("://")[2]
        if origin and page != host and page not in (self._hosts or ()):
            return (
                f"The request comes from a page of {origin[:80]!r}. Only pages of this server may speak to it. "
                f"Open http://{host[:80]} instead."
            )
        return None


async def _forbid(sentence: str, send: Send) -> None:
    body = json.dumps({"detail": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
