"""Every cell of role x RPC on the browser's side: what the table refuses never reaches a handler.

By gRPC-Web the token is in the field `authorization`, over a WebSocket in the path, which is all that browsers have.
The services here have no handlers: a call that is let in ends with UNIMPLEMENTED.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from tests.access.keys import FOREIGN, KEYS, NOW, control, grant, token_text
from tests.access.test_wire import services
from tests.web.clients import Connect, Forward, channel_over, over_http, over_websocket
from trio_cogment.access import RIGHTS, Revoked, Role, Rules, Source
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import CallOpener, MetadataLike, Method, ServerCall, WithMetadata, bind, methods_of, serve_stream
from trio_cogment.web import WebSide

EVERYTHING = [bind(service, object()) for service in services()]
METHODS = [method for service in services() for method in methods_of(service).values()]
ROLES = [*Role, None]


def by_field(token: str) -> tuple[Forward, MetadataLike]:
    return over_http, [("authorization", f"Bearer {token}")]


def by_path(token: str) -> tuple[Forward, MetadataLike]:
    async def forward(connect: Connect, path: str, call: ServerCall) -> None:
        await over_websocket(connect, f"/~{token}{path}", call)

    return forward, ()


WAYS = {"gRPC-Web": by_field, "path": by_path}


@asynccontextmanager
async def opened(way: str, token: str) -> AsyncIterator[CallOpener]:
    forward, metadata = WAYS[way](token)
    access = control(Rules(keys=KEYS, revoked=Revoked.parse("gone")))
    async with trio.open_nursery() as nursery:

        async def connect() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(partial(serve_stream, web=WebSide(), access=access), EVERYTHING, theirs)
            return ours

        async with channel_over(connect, EVERYTHING, forward) as channel:
            yield WithMetadata(channel, metadata)
        nursery.cancel_scope.cancel()


async def code_of(channel: CallOpener, method: Method) -> StatusCode:
    """Make a call with an empty request, and return how it ended."""
    try:
        async with channel.call(method) as call:
            await call.send(method.request_type())
            await call.done_sending()
            while await call.receive() is not None:
                pass
    except RpcError as error:
        return error.code
    return StatusCode.OK


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("role", ROLES, ids=lambda role: "no role" if role is None else role.value)
async def test_every_cell(role: Role | None, way: str, autojump_clock: object) -> None:
    token = token_text(grant(*(() if role is None else (role,))))
    async with opened(way, token) as channel:
        for method in METHODS:
            _, service, name = method.path.split("/")
            row = RIGHTS[service][name]
            # What every other role may do, too, is open to who has none.
            allowed = role in row if role is not None else all(each in row for each in Role)
            expected = StatusCode.UNIMPLEMENTED if allowed else StatusCode.PERMISSION_DENIED
            assert await code_of(channel, method) is expected, method.path


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "token",
    [
        "x",
        token_text(grant(Role.ADMIN))[:-2],
        token_text(grant(Role.ADMIN), keys=FOREIGN),
        token_text(grant(Role.ADMIN), expires_at=NOW),
        token_text(grant(Role.ADMIN), token_id="gone"),
        control().mint(grant(Role.ADMIN), 60, (Source("gone", "ann"),)),
    ],
    ids=["nonsense", "forged", "foreign", "expired", "revoked", "derived"],
)
async def test_nobody_gets_in_without_a_good_token(token: str, way: str, autojump_clock: object) -> None:
    async with opened(way, token) as channel:
        for method in METHODS:
            assert await code_of(channel, method) is StatusCode.UNAUTHENTICATED, method.path
