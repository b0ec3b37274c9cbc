"""Web pages of other origins, and requests for other names, do not reach Prefect's server."""

import asyncio

import pytest

from pipelines.runs.server import _OriginGuard, loopback_hosts

HOST = "127.0.0.1:4200"


def answers_of(hosts, kind="http", **headers):
    """What a client gets: the messages that the guard or the application behind it sends."""
    sent = []

    async def application(scope, receive, send):
        await send({"type": "passed on"})

    async def receive():
        return {"type": f"{kind}.connect"}

    async def send(message):
        sent.append(message)

    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(_OriginGuard(application, hosts)({"type": kind, "headers": encoded}, receive, send))
    return sent


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    "headers",
    [
        {"host": HOST},
        {"host": "localhost:4200"},
        {"host": HOST, "origin": f"http://{HOST}"},
        {"host": HOST, "origin": "http://localhost:4200"},
    ],
)
def test_own_pages_and_programs_of_this_machine_pass(kind, headers):
    assert answers_of(loopback_hosts(4200), kind, **headers) == [{"type": "passed on"}]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": HOST, "origin": "https://evil.example"},
        {"host": HOST, "origin": "http://localhost:8080"},
        {"host": HOST, "origin": "null"},
        {"host": "evil.example:4200"},
        {"host": "evil.example:4200", "origin": "http://evil.example:4200"},
        {},
    ],
)
def test_other_pages_and_other_names_are_refused(headers):
    start, body = answers_of(loopback_hosts(4200), **headers)
    assert start["status"] == 403 and b"detail" in body["body"]
    assert not any(b"allow-origin" in name for name, _ in start["headers"])
    (close,) = answers_of(loopback_hosts(4200), "websocket", **headers)
    assert close["type"] == "websocket.close"


def test_a_wider_server_answers_under_any_name_but_only_to_its_own_pages():
    assert answers_of(None, host="lab:4200", origin="http://lab:4200") == [{"type": "passed on"}]
    assert answers_of(None, host="lab:4200", origin="http://evil.example")[0]["status"] == 403


def test_the_life_of_the_server_is_not_the_guards_business():
    assert answers_of(loopback_hosts(4200), "lifespan") == [{"type": "passed on"}]
