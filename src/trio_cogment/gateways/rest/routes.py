"""The routes of a web proxy: from a request to what the proxy does, and back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from trio_cogment.base.about import API_VERSION, GRPC_VERSION
from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError
from trio_cogment.budget.made_once import Made
from trio_cogment.gateways.rest.fields import as_integer
from trio_cogment.gateways.rest.openapi import TITLE, TOKEN_FIELD, document
from trio_cogment.gateways.rest.proxy import Caller, RestProxy
from trio_cogment.web.json_text import json_text
from trio_cogment.web.page_access import token_of
from trio_cogment.web.replies import Reply, Send, Streamed, json_data, json_reply, refusal
from trio_cogment.web.routing import Handler, Route, Visit

_TRIALS = "/controller/trials"
_SEAT = "/actor/{actor_name}/{trial_id}"
_TICK = _SEAT + "/{tick_id}"

#: An answer with a large observation is sent in pieces of this size, as fast as its client reads.
_PIECE_BYTES: Final = 64 * 1024

_Answer: TypeAlias = Callable[[Visit, Caller], Awaitable[Any]]


def rest_routes(proxy: RestProxy) -> list[Route]:
    """Return the routes of a proxy.

    They are open to anybody as far as the web side is concerned: what a caller may do the proxy decides. Pages of other
    origins may use them if the origin policy lets them in.

    Args:
        proxy: does what is asked for.
    """
    pages = _Pages(proxy)
    found: list[Route] = []
    for method, pattern, status, answer in (
        ("GET", "/openapi.json", 200, pages.describe),
        ("GET", _TRIALS, 200, pages.list_trials),
        ("POST", _TRIALS, 202, pages.start_trial),
        ("POST", _SEAT, 200, pages.join),
        ("DELETE", _SEAT, 202, pages.leave),
        ("POST", _TICK, 200, pages.act),
        ("GET", _TICK, 200, pages.act_empty),
    ):
        handler = _handler(answer, status)
        for path in (pattern, pattern + "/"):
            found.append(_route(method, path, handler, proxy.config.max_body_bytes))
    return [_route("GET", "/", _info, 0), *found]


def _route(method: str, path: str, handler: Handler, max_body_bytes: int) -> Route:
    return Route(method, path, handler, right=None, foreign=True, waits=True, max_body_bytes=max_body_bytes)


async def _info(_visit: Visit) -> Reply:
    return json_reply(200, TITLE, version=API_VERSION, version_hash=GRPC_VERSION)


def _handler(answer: _Answer, status: int) -> Handler:
    async def handle(visit: Visit) -> Reply | Streamed:
        caller = Caller(
            peer=visit.peer,
            identity=visit.identity,
            token=token_of(visit.request),
            seat_token=visit.request.first(TOKEN_FIELD.lower().encode()).decode("latin-1"),
        )
        try:
            return _reply(status, await answer(visit, caller))
        except RemoteProtocolError as error:
            return refusal(502, str(error))  # it was a participant, not the caller

    return handle


def _reply(status: int, document: Any) -> Reply | Streamed:
    observation = document.get("observation") if isinstance(document, dict) else None
    if not isinstance(observation, Made):
        return json_data(document, status)
    rest = json_text({name: value for name, value in document.items() if name != "observation"}).encode()
    head, tail = rest[:-1] + b',"observation":', b"}"  # there are other fields, always

    async def write(send: Send) -> None:
        await send(head)
        # What refers to the observation keeps it counted: its text may be that of other answers, too.
        with memoryview(observation.data) as view:
            for begin in range(0, len(view), _PIECE_BYTES):
                await send(bytes(view[begin : begin + _PIECE_BYTES]))
        await send(tail)

    size = len(head) + len(observation.data) + len(tail)
    return Streamed(status, b"application/json", write, ((b"content-length", b"%d" % size),))


class _Pages:
    def __init__(self, proxy: RestProxy) -> None:
        self._proxy = proxy

    async def describe(self, _visit: Visit, _caller: Caller) -> Any:
        return document(API_VERSION)

    async def list_trials(self, _visit: Visit, caller: Caller) -> Any:
        return await self._proxy.list_trials(caller)

    async def start_trial(self, visit: Visit, caller: Caller) -> Any:
        return await self._proxy.start_trial(caller, visit.body)

    async def join(self, visit: Visit, caller: Caller) -> Any:
        return await self._proxy.join(caller, *_seat(visit))

    async def leave(self, visit: Visit, caller: Caller) -> Any:
        return self._proxy.leave(caller, *_seat(visit))

    async def act(self, visit: Visit, caller: Caller) -> Any:
        return await self._act(visit, caller, visit.body)

    async def act_empty(self, visit: Visit, caller: Caller) -> Any:
        if visit.request.method == "HEAD":
            raise InvalidArgumentError("expected GET: this acts")
        return await self._act(visit, caller, None)

    async def _act(self, visit: Visit, caller: Caller, body: bytes | None) -> Any:
        tick_id = as_integer(visit.parameters["tick_id"], "tick_id")
        return await self._proxy.act(caller, *_seat(visit), tick_id, body)


def _seat(visit: Visit) -> tuple[str, str]:
    return visit.parameters["trial_id"], visit.parameters["actor_name"]
