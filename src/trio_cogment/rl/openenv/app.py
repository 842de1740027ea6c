"""The routes of an OpenEnv server, as an ASGI application of Starlette's."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import trio
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from trio_cogment._version import __version__
from trio_cogment.config import OpenEnvConfig
from trio_cogment.errors import InvalidArgumentError
from trio_cogment.rl.openenv.connection import Connection
from trio_cogment.rl.openenv.messages import (
    ErrorCode,
    RefusedError,
    Request,
    Reset,
    State,
    mcp_answer,
    parse_reset,
    parse_step,
)
from trio_cogment.rl.openenv.schemas import openapi, seat_schemas
from trio_cogment.rl.openenv.session import HangUp, Reply, Session
from trio_cogment.rl.openenv.trials import Trials
from trio_cogment.spaces.json_values import dumps, loads

#: WebSocket's code for a server that goes, or has no room for a client.
GOING_AWAY = 1001
TRY_AGAIN_LATER = 1013
#: What is HTTP's number for a refusal; others are 409, a conflict with the state of things.
_STATUSES = {
    ErrorCode.INVALID_JSON: 400,
    ErrorCode.VALIDATION_ERROR: 422,
    ErrorCode.CAPACITY_REACHED: 503,
}


class Application:
    """What a server answers; `asgi` is the application."""

    def __init__(self, trials: Trials, config: OpenEnvConfig) -> None:
        """Prepare the routes, and the documents about the environment.

        Raises:
            SpaceError: one of the spaces cannot be described.
        """
        self._trials = trials
        self._config = config
        self._open = 0
        self._numbers = itertools.count(1)
        game = trials.game
        self._schemas = {
            agent: seat_schemas(agent, game.observation_spaces[agent], game.action_spaces[agent])
            for agent in game.agents
        }
        # The seat that a call without a name gets.
        self._first = next((agent for agent in game.agents if agent not in game.others), game.agents[0])
        self._openapi = openapi(game.name, self._schemas[self._first])
        self._routes = Starlette(
            routes=[
                WebSocketRoute("/ws", self._websocket),
                Route("/reset", self._reset, methods=["POST"]),
                Route("/step", self._step, methods=["POST"]),
                Route("/state", self._state),
                Route("/health", self._health),
                Route("/metadata", self._metadata),
                Route("/schema", self._schema),
                Route("/mcp", self._mcp, methods=["POST"]),
                Route("/openapi.json", self._openapi_json),
            ]
        )

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI has it."""

        async def send_if_open(message: Message) -> None:
            try:
                await send(message)
            except trio.BusyResourceError:
                pass  # Hypercorn is closing the connection at this moment: the client has gone

        await self._routes(scope, receive, send_if_open)

    # WebSockets

    async def _websocket(self, websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            with self._admitted() as connection:
                await self._serve(websocket, connection)
        except RefusedError as refused:
            await self._send(websocket, Reply(refused.document()))
            await self._send(websocket, HangUp(TRY_AGAIN_LATER))

    async def _serve(self, websocket: WebSocket, connection: Connection) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, websocket, connection, nursery.cancel_scope)
            while True:
                message = None
                with trio.move_on_at(connection.last_active + self._config.idle_seconds):
                    message = await websocket.receive()
                if message is None:
                    await self._idle(connection)
                elif message["type"] == "websocket.disconnect":
                    connection.vanish()
                    nursery.cancel_scope.cancel()
                    return
                else:
                    # What is not text may be JSON all the same.
                    text = message.get("text")
                    await connection.receive(message["bytes"] if text is None else text)

    async def _idle(self, connection: Connection) -> None:
        if connection.busy:
            # It is for the server to say something.
            connection.last_active = trio.current_time()
        elif trio.current_time() >= connection.last_active + self._config.idle_seconds:
            await connection.dismiss(f"expected a message within {self._config.idle_seconds:g} s", GOING_AWAY)
            # The writer closes the socket, once the client has read why.
            await trio.sleep_forever()

    async def _write(self, websocket: WebSocket, connection: Connection, scope: trio.CancelScope) -> None:
        async for answer in connection.answers:
            if not await self._send(websocket, answer) or isinstance(answer, HangUp):
                break
        connection.vanish()
        scope.cancel()

    async def _send(self, websocket: WebSocket, answer: Reply | HangUp) -> bool:
        """Send an answer; return whether the client has taken it."""
        with trio.move_on_after(self._config.send_seconds):
            try:
                if isinstance(answer, HangUp):
                    await websocket.close(answer.code)
                else:
                    await websocket.send_text(dumps(answer.document))
            except (WebSocketDisconnect, WebSocketDisconnected):
                return False
            return True
        return False

    @contextmanager
    def _admitted(self) -> Iterator[Connection]:
        """Count a client as long as it is there."""
        most = self._config.max_sockets
        if self._open >= most:
            details = {"active_sessions": self._open, "max_sessions": most}
            text = f"the server has {most} sockets, which are all that it may have"
            raise RefusedError(ErrorCode.CAPACITY_REACHED, text, details)
        self._open += 1
        connection = Connection(self._trials, f"openenv/{id(self):x}/{next(self._numbers)}")
        try:
            yield connection
        finally:
            connection.vanish()
            self._open -= 1

    # HTTP

    async def _reset(self, request: HttpRequest) -> Response:
        async with _refusals() as answer:
            reset = parse_reset(await self._json(request))
            answer.append(await self._call(_own(reset)))
        return answer[0]

    async def _step(self, request: HttpRequest) -> Response:
        async with _refusals() as answer:
            step, seconds = parse_step(await self._json(request))
            answer.append(await self._call(Reset(), step, seconds=seconds))
        return answer[0]

    async def _call(self, *requests: Request, seconds: float | None = None) -> Response:
        """Return the answer to the last of some requests, which have a session of their own."""
        limit = min(seconds or self._config.call_seconds, self._config.call_seconds)
        document: dict[str, Any] | None = None
        with self._admitted() as connection, trio.move_on_after(limit):
            for request in requests:
                await connection.submit(request)
                answer = await connection.answers.receive()
                assert isinstance(answer, Reply)  # nobody has asked to close
                document = answer.document
                if document["type"] == "error":
                    data = document["data"]
                    raise RefusedError(ErrorCode(data["code"]), data["message"])
            return _json_response(document["data"] if document else None)
        raise RefusedError(ErrorCode.EXECUTION_ERROR, f"expected the trial's answer within {limit:g} s")

    async def _json(self, request: HttpRequest) -> Any:
        """Return the body of a call; without one, an empty object."""
        body = bytearray()
        with trio.move_on_after(self._config.send_seconds) as scope:
            async with aclosing(request.stream()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > self._config.max_message_bytes:
                        text = f"body: expected at most {self._config.max_message_bytes} bytes"
                        raise RefusedError(ErrorCode.VALIDATION_ERROR, text)
        if scope.cancelled_caught:
            text = f"body: expected it within {self._config.send_seconds:g} s"
            raise RefusedError(ErrorCode.VALIDATION_ERROR, text)
        try:
            return loads(bytes(body)) if body else {}
        except InvalidArgumentError as error:
            raise RefusedError(ErrorCode.INVALID_JSON, f"body: {error}") from None

    async def _state(self, _request: HttpRequest) -> Response:
        (reply,) = Session().submit(State())
        assert isinstance(reply, Reply)
        return _json_response(reply.document["data"])

    async def _health(self, _request: HttpRequest) -> Response:
        return _json_response({"status": "healthy"})

    async def _metadata(self, _request: HttpRequest) -> Response:
        game = self._trials.game
        return _json_response({"name": game.name, "description": game.description, "version": __version__})

    async def _schema(self, request: HttpRequest) -> Response:
        async with _refusals() as answer:
            seat = request.query_params.get("seat", self._first)
            if seat not in self._schemas:
                expected = ", ".join(map(repr, self._schemas))
                raise RefusedError(ErrorCode.VALIDATION_ERROR, f"seat: expected one of {expected}; got {seat!r}")
            answer.append(_json_response({**self._schemas[seat], "seats": list(self._schemas)}))
        return answer[0]

    async def _mcp(self, request: HttpRequest) -> Response:
        async with _refusals() as answer:
            try:
                found = await self._json(request)
            except RefusedError as refused:
                if refused.code is not ErrorCode.INVALID_JSON:
                    raise
                found = None
            answer.append(_json_response(mcp_answer(found)))
        return answer[0]

    async def _openapi_json(self, _request: HttpRequest) -> Response:
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
async def _refusals() -> AsyncIterator[list[Response]]:
    """Turn a refusal within the block into the response."""
    responses: list[Response] = []
    try:
        yield responses
    except RefusedError as refused:
        document = {"detail": str(refused), "code": refused.code.value, **refused.details}
        responses.append(_json_response(document, _STATUSES.get(refused.code, 409)))


def _json_response(document: Any, status: int = 200) -> Response:
    return Response(dumps(document), status, media_type="application/json")
