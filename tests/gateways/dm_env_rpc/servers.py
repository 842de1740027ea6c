"""A server of dm_env_rpc with small games, on this package's own gRPC."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import trio

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.api.dm_env_rpc import properties_pb2
from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    status_of,
)
from trio_cogment.rpc import ServerCall, bind, open_listeners, serve
from trio_cogment.spaces.tensor_specs import TensorSpec
from trio_cogment.spaces.tensors import decode_tensor, encode_tensor

Seen = dict[str, Any]


class Catch:
    """A ball falls, one row with each step; the paddle in the last row should be where it lands."""

    ROWS, COLUMNS = 6, 5
    players = 1
    actions: tuple[TensorSpec, ...] = (TensorSpec.of("paddle", "int8", (), -1, 1),)
    observations: tuple[TensorSpec, ...] = (
        TensorSpec.of("board", "float32", (ROWS, COLUMNS)),
        TensorSpec.of("ball.column", "int32", (), 0, COLUMNS - 1),
        TensorSpec.of("reward", "float64"),
    )

    def __init__(self, seed: int = 0) -> None:
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def begin(self) -> list[Seen]:
        self._row, self._ball, self._paddle = 0, int(self._generator.integers(self.COLUMNS)), self.COLUMNS // 2
        return [self._seen()]

    def advance(self, actions: list[Mapping[str, Any]]) -> tuple[list[Any], list[Seen]]:
        self._paddle = int(np.clip(self._paddle + int(actions[0].get("paddle", 0)), 0, self.COLUMNS - 1))
        self._row += 1
        over = self._row == self.ROWS - 1
        return [pb.TERMINATED if over else pb.RUNNING], [self._seen()]

    def _seen(self) -> Seen:
        board = np.zeros((self.ROWS, self.COLUMNS), np.float32)
        board[self._row, self._ball] = board[-1, self._paddle] = 1
        caught = 0.1 * (1 if self._paddle == self._ball else -1)
        return {
            "board": board,
            "ball.column": np.int32(self._ball),
            "reward": caught if self._row == self.ROWS - 1 else 0.0,
        }


class Duel:
    """Two players give a number each; the reward is the difference. Who has made as many steps as `lengths` is out."""

    players = 2
    actions = (TensorSpec.of("number", "int32", (), 0, 9),)
    observations = (
        TensorSpec.of("last", "int32", (2,)),
        TensorSpec.of("reward", "float32"),
        TensorSpec.of("discount", "float32"),
    )
    lengths = (2, 4)
    ends = (pb.INTERRUPTED, pb.TERMINATED)
    discounts = (1.0, 0.5)

    def __init__(self, seed: int = 0) -> None:
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        self._seed = seed

    def begin(self) -> list[Seen]:
        self._steps = 0
        return [self._seen([0, 0], player) for player in range(2)]

    def advance(self, actions: list[Mapping[str, Any]]) -> tuple[list[Any], list[Seen]]:
        self._steps += 1
        numbers = [int(given.get("number", 0)) for given in actions]
        states = [
            pb.RUNNING if self._steps < length else end for length, end in zip(self.lengths, self.ends, strict=True)
        ]
        return states, [self._seen(numbers, player) for player in range(2)]

    def _seen(self, numbers: list[int], player: int) -> Seen:
        reward = np.float32(numbers[player] - numbers[1 - player])
        return {"last": np.array(numbers, np.int32), "reward": reward, "discount": np.float32(self.discounts[player])}


GAMES: dict[str, Callable[[int], Any]] = {"catch": Catch, "duel": Duel}


@dataclass(eq=False)
class World:
    """A game, and who plays it: a step waits until all who take part have made theirs."""

    game: Any
    slots: list[Link | None] = field(default_factory=list)
    given: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    playing: set[int] = field(default_factory=set)
    done: trio.Event = field(default_factory=trio.Event)
    last: list[Seen] = field(default_factory=list)
    states: list[int] = field(default_factory=list)

    async def step(self, slot: int, actions: Mapping[str, Any]) -> tuple[int, Seen]:
        self.given[slot] = actions
        done = self.done
        if not self.playing and len(self.given) == self.game.players:
            self.last, self.states = self.game.begin(), [pb.RUNNING] * self.game.players
            self.playing = set(range(self.game.players))
            self._answer()
        elif self.playing and self.playing <= set(self.given):
            actions_of_all = [self.given.get(player, {}) for player in range(self.game.players)]
            self.states, self.last = self.game.advance(actions_of_all)
            self.playing = {player for player in self.playing if self.states[player] == pb.RUNNING}
            self._answer()
        await done.wait()
        return self.states[slot], self.last[slot]

    def _answer(self) -> None:
        self.given.clear()
        self.done.set()
        self.done = trio.Event()

    def stop(self) -> None:
        """Interrupt what is being played; steps that wait for a game to begin go on waiting."""
        if self.playing:
            self.playing = set()
            self.states = [pb.INTERRUPTED] * self.game.players
            self._answer()


class Server:
    """What all connections share, and what the tests look at afterwards."""

    def __init__(self) -> None:
        self.worlds: dict[str, World] = {}
        self.log: list[str] = []
        self.open = 0
        self.hold: trio.Event | None = None
        self.mangle: Callable[[pb.EnvironmentResponse], None] = lambda _: None
        self._numbers = itertools.count(1)
        self._scopes: list[trio.CancelScope] = []

    def number(self) -> int:
        return next(self._numbers)

    def hang_up(self) -> None:
        """End all connections."""
        for scope in self._scopes:
            scope.cancel()

    async def Process(self, call: ServerCall) -> None:
        link = Link(self)
        self.open += 1
        try:
            with trio.CancelScope() as scope:
                self._scopes.append(scope)
                async for request in call:
                    if self.hold is not None:
                        await self.hold.wait()
                    response = await link.answer(request)
                    self.mangle(response)
                    await call.send(response)
        finally:
            self.open -= 1
            link.leave()


class Link:
    """One connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._world: World | None = None
        self._slot = 0
        self._running = False
        self._difficulty = 1.0

    async def answer(self, request: pb.EnvironmentRequest) -> pb.EnvironmentResponse:
        kind = request.WhichOneof("payload") or "nothing"
        self._server.log.append(kind)
        response = pb.EnvironmentResponse()
        try:
            content = getattr(response, kind)
            content.SetInParent()
            await getattr(self, f"_{kind}")(getattr(request, kind), content)
        except CogmentError as error:
            code, text = status_of(error)
            response.error.code, response.error.message = code, text
        return response

    async def _create_world(self, request: Any, response: Any) -> None:
        settings = _settings(request, "game", "seed", "options.length")
        name = settings.get("game", "catch")
        if name not in GAMES:
            raise InvalidArgumentError(f"game: expected one of {', '.join(GAMES)}; got {name}")
        world = World(GAMES[name](int(settings.get("seed", 0))))
        if "options.length" in settings:
            world.game.lengths = (int(settings["options.length"]),) * 2
        world.slots = [None] * world.game.players
        response.world_name = f"{name}-{self._server.number()}"
        self._server.worlds[response.world_name] = world

    async def _join_world(self, request: Any, response: Any) -> None:
        settings = _settings(request, "slot")
        world = self._server.worlds.get(request.world_name)
        if self._world is not None:
            raise FailedPreconditionError("a world is joined already")
        if world is None:
            raise NotFoundError(f"there is no world {request.world_name!r}")
        slot = int(settings.get("slot", world.slots.index(None) if None in world.slots else 0))
        if world.slots[slot] is not None:
            raise FailedPreconditionError(f"slot {slot} is taken")
        world.slots[slot] = self
        self._world, self._slot, self._running = world, slot, False
        self._describe(response)

    def _describe(self, response: Any) -> None:
        for found, specs, first in (
            (response.specs.actions, self._game.actions, 1),
            (response.specs.observations, self._game.observations, 7),
        ):
            for uid, spec in enumerate(specs, first):
                found[uid].CopyFrom(spec.message())

    @property
    def _joined(self) -> World:
        if self._world is None:
            raise FailedPreconditionError("no world is joined")
        return self._world

    @property
    def _game(self) -> Any:
        return self._joined.game

    async def _step(self, request: Any, response: Any) -> None:
        world = self._joined
        named = dict(enumerate(self._game.observations, 7))
        for uid in request.requested_observations:
            if uid not in named:
                raise InvalidArgumentError(f"observation: there is no UID {uid}")
        actions = {}
        if self._running:
            specs = dict(enumerate(self._game.actions, 1))
            actions = {specs[uid].name: specs[uid].check(tensor) for uid, tensor in request.actions.items()}
        state, seen = await world.step(self._slot, actions)
        self._running = state == pb.RUNNING
        response.state = state
        for uid in request.requested_observations:
            response.observations[uid].CopyFrom(encode_tensor(seen[named[uid].name]))

    async def _reset(self, request: Any, response: Any) -> None:
        settings = _settings(request, "seed")
        if "seed" in settings:
            self._game.reseed(int(settings["seed"]))
        self._joined.stop()
        self._running = False
        self._describe(response)

    async def _reset_world(self, request: Any, _: Any) -> None:
        settings = _settings(request, "seed")
        world = self._server.worlds.get(request.world_name)
        if world is None:
            raise NotFoundError(f"there is no world {request.world_name!r}")
        if "seed" in settings:
            world.game.reseed(int(settings["seed"]))
        world.stop()
        for link in filter(None, world.slots):
            link._running = False

    async def _leave_world(self, *_: Any) -> None:
        self.leave()

    def leave(self) -> None:
        if self._world is not None:
            self._world.slots[self._slot] = None
            self._world = None

    async def _destroy_world(self, request: Any, _: Any) -> None:
        world = self._server.worlds.get(request.world_name)
        if world is None:
            raise NotFoundError(f"there is no world {request.world_name!r}")
        if any(world.slots):
            raise FailedPreconditionError("somebody has joined the world")
        del self._server.worlds[request.world_name]

    async def _extension(self, request: Any, response: Any) -> None:
        asked, answer = properties_pb2.PropertyRequest(), properties_pb2.PropertyResponse()
        if not request.Unpack(asked):
            raise InvalidArgumentError(f"unknown extension {request.type_url}")
        kind = asked.WhichOneof("payload")
        if kind == "list_property":
            for key, groups in (
                (("version", False), ("world", True)) if not asked.list_property.key else (("world.difficulty", False),)
            ):
                listed = answer.list_property.values.add(
                    is_listable=groups, is_readable=not groups, is_writable=key.startswith("world.")
                )
                listed.spec.CopyFrom(
                    TensorSpec.of(key, "str" if key == "version" else "float32").message()
                    if not groups
                    else pb.TensorSpec(name=key)
                )
        elif kind == "read_property":
            values: dict[str, Any] = {"version": "1.2", "world.difficulty": np.float32(self._difficulty)}
            if asked.read_property.key not in values:
                raise NotFoundError(f"there is no property {asked.read_property.key!r}")
            answer.read_property.value.CopyFrom(encode_tensor(values[asked.read_property.key]))
        else:
            self._difficulty = float(decode_tensor(asked.write_property.value))
            answer.write_property.SetInParent()
        response.Pack(answer)


def _settings(request: Any, *known: str) -> dict[str, Any]:
    for name in request.settings:
        if name not in known:
            raise InvalidArgumentError(f"setting {name!r}: expected one of {', '.join(known)}")
    return {name: decode_tensor(tensor)[()] for name, tensor in request.settings.items()}


@asynccontextmanager
async def served(server: Server | None = None) -> AsyncIterator[tuple[str, Server, trio.CancelScope]]:
    """Yield the endpoint of a server, the server, and what ends it."""
    server = server or Server()
    service = bind(pb.DESCRIPTOR.services_by_name["Environment"], server)
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        running: Any = await nursery.start(serve, [service], listeners)
        yield f"grpc://127.0.0.1:{running.port}", server, nursery.cancel_scope
        nursery.cancel_scope.cancel()


@contextmanager
def serving() -> Iterator[tuple[str, Server]]:
    """Serve in another thread; yield the endpoint and the server."""
    server = Server()
    started: queue.SimpleQueue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.SimpleQueue()

    async def serve() -> None:
        async with served(server) as (url, _, _):
            with trio.CancelScope() as scope:
                started.put((url, trio.lowlevel.current_trio_token(), scope))
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    url, token, scope = started.get(timeout=10)
    try:
        yield url, server
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join(10)
