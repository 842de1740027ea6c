"""The routes of an OpenEnv server, for the web side of a port."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio

from trio_cogment._version import __version__
from trio_cogment.base.config import OpenEnvConfig
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.budget.shares import Shares
from trio_cogment.gateways.openenv.connection import Connection
from trio_cogment.gateways.openenv.messages import (
    ErrorCode,
    RefusedError,
    Request,
    Reset,
    State,
    mcp_answer,
    parse_reset,
    parse_step,
)
from trio_cogment.gateways.openenv.schemas import openapi, seat_schemas
from trio_cogment.gateways.openenv.session import HangUp, Reply, Session
from trio_cogment.gateways.openenv.trials import Trials
from trio_cogment.spaces.json_values import dumps, loads
from trio_cogment.web.replies import Reply as HttpReply
from trio_cogment.web.routing import AnyRoute, Handler, Route, Socket, SocketRoute, Visit

#: WebSocket's code for a server that goes, or has no room for a client.
GOING_AWAY = 1001
TRY_AGAIN_LATER = 1013
#: What is HTTP's number for a refusal; others are 409, a conflict with the state of things.
_JSON = b"application/json"
_STATUSES = {
    ErrorCode.INVALID_JSON: 400,
    ErrorCode.VALIDATION_ERROR: 422,
    ErrorCode.CAPACITY_REACHED: 503,
}


class Application:
    """What a server answers; `routes` has it."""

    def __init__(self, trials: Trials, config: OpenEnvConfig, *, right: str | None = None) -> None:
        """Prepare the documents about the environment.

        Args:
            trials: that are played.
            config: limits.
            right: whoever plays needs it; None: anybody may.

        Raises:
            SpaceError: one of the spaces cannot be described.
        """
        self._trials = trials
        self._config = config
        self._right = right
        self._shares = Shares(
            "sockets", ("max_sockets", config.max_sockets), ("max_peer_sockets", config.max_peer_sockets)
        )
        self._numbers = itertools.count(1)
        game = trials.game
        self._schemas = {
            agent: seat_schemas(agent, game.observation_spaces[agent], game.action_spaces[agent])
            for agent in game.agents
        }
        # The seat that a call without a name gets.
        self._first = next((agent for agent in game.agents if agent not in game.others), game.agents[0])
        self._openapi = openapi(game.name, self._schemas[self._first])

    def routes(self) -> list[AnyRoute]:
        """Return what the web side of a server has for clients of OpenEnv.

        Pages of other origins may use it if the origin policy lets them in.
        """

        def route(method: str, path: str, handler: Handler, right: str | None = self._right) -> Route:
            most = self._config.max_message_bytes if method == "POST" else 0
            # How long an answer may take is said here.
            return Route(method, path, handler, right=right, foreign=True, waits=True, max_body_bytes=most)

        return [
            SocketRoute(
                "/ws",
                self._websocket,
                right=self._right,
                foreign=True,
                text=True,
                max_message_bytes=self._config.max_message_bytes,
            ),
            route("POST", "/reset", self._reset),
            route("POST", "/step", self._step),
            route("POST", "/mcp", self._mcp),
            route("GET", "/state", self._state),
            route("GET", "/metadata", self._metadata),
            route("GET", "/schema", self._schema),
            route("GET", "/openapi.json", self._openapi_json),
            # A supervisor's probe has no token.
            route("GET", "/health", self._health, None),
        ]

    # WebSockets

    async def _websocket(self, visit: Visit, socket: Socket) -> None:
        try:
            with self._admitted(visit) as connection:
                await self._serve(socket, connection)
        except RefusedError as refused:
            await self._send(socket, dumps(refused.document()).encode())
            socket.close_with(TRY_AGAIN_LATER)

    async def _serve(self, socket: Socket, connection: Connection) -> None:
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            nursery.start_soon(self._write, socket, connection, nursery.cancel_scope)
            while True:
                message = None
                with trio.move_on_at(connection.last_active + self._config.idle_seconds):
                    message = await socket.receive()
                if message is None:
                    await self._idle(connection)
                else:
                    connection.receive(message)

    async def _idle(self, connection: Connection) -> None:
        if connection.busy:
            # It is for the server to say something.
            connection.last_active = trio.current_time()
        elif trio.current_time() >= connection.last_active + self._config.idle_seconds:
            connection.dismiss(f"expected a message within {self._config.idle_seconds:g} s", GOING_AWAY)
            # The writer closes the socket, once the client has read why.
            await trio.sleep_forever()

    async def _write(self, socket: Socket, connection: Connection, scope: trio.CancelScope) -> None:
        async for answer in connection.answers:
            if isinstance(answer, HangUp):
                socket.close_with(answer.code)
                break
            content = dumps(answer.document).encode()
            del answer  # a picture is a million objects: a client that is slow or idle keeps none of them
            if not await self._send(socket, content):
                break
            del content
        connection.vanish()
        scope.cancel()

    async def _send(self, socket: Socket, content: bytes) -> bool:
        """Send an answer; return whether the client has taken it, or what was sent before."""
        with trio.move_on_after(self._config.send_seconds):
            await socket.send(content)
            return True
        return False

    @contextmanager
    def _admitted(self, visit: Visit) -> Iterator[Connection]:
        """Count a client as long as it is there."""
        account = visit.share
        reached = self._shares.reached(account)
        if reached is not None:
            whose = "the server has" if reached.name == "max_sockets" else "you have"
            details = {"active_sessions": reached.used, "max_sessions": reached.limit}
            text = f"{reached.name}: {whose} {reached.used} sockets, and {reached.limit} are allowed"
            raise RefusedError(ErrorCode.CAPACITY_REACHED, text, details)
        self._shares.count(account)
        connection = Connection(self._trials, f"openenv/{id(self):x}/{next(self._numbers)}")
        try:
            yield connection
        finally:
            connection.vanish()
            self._shares.count(account, -1)

    # HTTP

    async def _reset(self, visit: Visit) -> HttpReply:
        async with _refusals() as answer:
            reset = parse_reset(self._json(visit))
            answer.append(await self._call(visit, _own(reset)))
        return answer[0]

    async def _step(self, visit: Visit) -> HttpReply:
        async with _refusals() as answer:
            step, seconds = parse_step(self._json(visit))
            answer.append(await self._call(visit, Reset(), step, seconds=seconds))
        return answer[0]

    async def _call(self, visit: Visit, *requests: Request, seconds: float | None = None) -> HttpReply:
        """Return the answer to the last of some requests, which have a session of their own."""
        limit = min(seconds or self._config.call_seconds, self._config.call_seconds)
        document: dict[str, Any] | None = None
        with self._admitted(visit) as connection, trio.move_on_after(limit):
            for request in requests:
                connection.submit(request)
                answer = await connection.answers.receive()
                assert isinstance(answer, Reply)  # nobody has asked to close
                document = answer.document
                if document["type"] == "error":
                    data = document["data"]
                    raise RefusedError(ErrorCode(data["code"]), data["message"])
            return _json_response(document["data"] if document else None)
        raise RefusedError(ErrorCode.EXECUTION_ERROR, f"expected the trial's answer within {limit:g} s")

    def _json(self, visit: Visit) -> Any:
        """Return the body of a call; without one, an empty object.

        Raises:
            UnsupportedTypeError: it is said to be something else: what a page may send without asking first.
            RefusedError: it is not JSON.
        """
        if not visit.body:
            return {}
        visit.expect(_JSON)
        try:
            return loads(visit.body)
        except InvalidArgumentError as error:
            raise RefusedError(ErrorCode.INVALID_JSON, f"body: {error}") from None

    async def _state(self, _visit: Visit) -> HttpReply:
        (reply,) = Session().submit(State())
        assert isinstance(reply, Reply)
        return _json_response(reply.document["data"])

    async def _health(self, _visit: Visit) -> HttpReply:
        return _json_response({"status": "healthy"})

    async def _metadata(self, _visit: Visit) -> HttpReply:
        game = self._trials.game
        return _json_response({"name": game.name, "description": game.description, "version": __version__})

    async def _schema(self, visit: Visit) -> HttpReply:
        async with _refusals() as answer:
            seat = visit.query.get("seat", self._first)
            if seat not in self._schemas:
                expected = ", ".join(map(repr, self._schemas))
                raise RefusedError(ErrorCode.VALIDATION_ERROR, f"seat: expected one of {expected}; got {seat!r}")
            answer.append(_json_response({**self._schemas[seat], "seats": list(self._schemas)}))
        return answer[0]

    async def _mcp(self, visit: Visit) -> HttpReply:
        async with _refusals() as answer:
            try:
                found = self._json(visit)
            except RefusedError as refused:
                if refused.code is not ErrorCode.INVALID_JSON:
                    raise
                found = None
            answer.append(_json_response(mcp_answer(found)))
        return answer[0]

    async def _openapi_json(self, _visit: Visit) -> HttpReply:
        return _json_response(self._openapi)


def _own(reset: Reset) -> Reset:
    """Return a reset that needs no other client.

    Raises:
        RefusedError: it names a trial of several.
    """
    if reset.trial:
        text = "reset: trial: expected none, because a trial of several needs a WebSocket for each, on /ws"
        raise RefusedError(ErrorCode.VALIDATION_ERROR, text)
    return reset


@asynccontextmanager
async def _refusals() -> AsyncIterator[list[HttpReply]]:
    """Turn a refusal within the block into the response."""
    responses: list[HttpReply] = []
    try:
        yield responses
    except RefusedError as refused:
        document = {"detail": str(refused), "code": refused.code.value, **refused.details}
        responses.append(_json_response(document, _STATUSES.get(refused.code, 409)))


def _json_response(document: Any, status: int = 200) -> HttpReply:
    return HttpReply(status, dumps(document).encode(), _JSON)
