"""OpenEnv's own client and checks against our server, and our client against its server."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import trio

from tests.gateways.openenv.games import RockPaperScissors, Walk, served
from tests.gateways.openenv.test_client import Player, playing
from trio_cogment.access import AccessControl, Grant, Keys, Role, Rules
from trio_cogment.gateways.openenv.client import openenv_environment
from trio_cogment.gateways.openenv.schemas import schema_of
from trio_cogment.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Sequence, Text, Tuple
from trio_cogment.spaces.json_values import to_json_value

pytestmark = pytest.mark.rl_peers


async def test_two_stock_clients_play_one_trial() -> None:
    from openenv.core.generic_client import GenericEnvClient

    def play(url: str, seat: str, action: int) -> list[Any]:
        with GenericEnvClient(base_url=url).sync() as client:
            told = [client.reset(trial="duel", seat=seat, seed=1)]
            while not told[-1].done:
                told.append(client.step({"value": action}))
            assert client.state()["step_count"] == 5
            return told

    found: dict[str, list[Any]] = {}

    async def client(url: str, seat: str, action: int) -> None:
        found[seat] = await trio.to_thread.run_sync(play, url, seat, action)

    async with served(RockPaperScissors) as (server, platform):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client, server.url, "player_0", 0)
            nursery.start_soon(client, server.url, "player_1", 2)
        assert len(await platform.controller.trial_infos()) == 1
    one, two = found["player_0"], found["player_1"]
    assert [result.reward for result in one] == [None] + [1.0] * 5
    assert [result.reward for result in two] == [None] + [-1.0] * 5
    assert [result.observation["value"] for result in one] == [3] + [2] * 5
    assert one[-1].observation["truncated"] is True
    assert one[-1].metadata == {"seat": "player_0"}


async def test_the_field_s_check_of_a_running_server() -> None:
    from openenv.cli._validation import validate_running_environment

    for make in (Walk, RockPaperScissors):
        async with served(make) as (server, _):
            report = await trio.to_thread.run_sync(validate_running_environment, server.url)
        assert report["passed"], report
        assert report["mode"] == "simulation"
        assert report["standard_profile"] == "openenv-http/1.x"


async def test_a_stock_client_is_told_what_is_wrong() -> None:
    from openenv.core.generic_client import GenericEnvClient

    def ask(url: str) -> None:
        with GenericEnvClient(base_url=url).sync() as client:
            with pytest.raises(RuntimeError, match=r"expected a reset before.*EXECUTION_ERROR"):
                client.step({"value": 1})
            client.reset(seed=1)
            with pytest.raises(RuntimeError, match=r"expected -1 to 1, got 7.*VALIDATION_ERROR"):
                client.step({"value": 7})
            assert client.step({"value": 1}).reward == 0.1

    async with served(Walk) as (server, _):
        await trio.to_thread.run_sync(ask, server.url)


async def test_a_stock_client_gives_its_token_in_the_address() -> None:
    from openenv.core.generic_client import GenericEnvClient

    access = AccessControl(Rules(keys=Keys((b"k" * 32,))), wall_clock=lambda: 1, new_id=lambda: "1")
    token = access.mint(Grant(name="ann", roles=frozenset([Role.PARTICIPANT])), 1000.0, ())

    def play(url: str) -> Any:
        with GenericEnvClient(base_url=url).sync() as client:
            client.reset(seed=1)
            return client.step({"value": 1}).reward

    async with served(Walk, access=access) as (server, _):
        assert await trio.to_thread.run_sync(play, f"{server.url}/~{token}") == 0.1
        with pytest.raises(Exception, match=r"401|[Cc]onnect"):
            await trio.to_thread.run_sync(play, server.url)


def test_values_of_spaces_are_what_their_schemas_say() -> None:
    import jsonschema

    generator = np.random.default_rng(1)
    parts = [
        Box(-np.inf, np.inf, (2, 3), "float32"),
        Box(0, 255, (2,), "uint8"),
        Discrete(5, -2),
        MultiDiscrete([[2, 3]]),
        MultiBinary(3),
        Text(5),
    ]
    spaces = [*parts, Dict({"a": parts[0], "b": parts[2]}), Tuple(parts), OneOf(parts), Sequence(parts[1])]
    for space in spaces:
        schema = schema_of(space)
        jsonschema.Draft202012Validator.check_schema(schema)
        for _ in range(20):
            jsonschema.validate(to_json_value(space.sample(generator)), schema)


@contextmanager
def stock_server() -> Iterator[str]:
    """Serve OpenEnv's own echo of an environment in a thread."""
    import uvicorn
    from openenv.core.env_server import Action, Environment, Observation, State, create_app
    from pydantic import Field

    class Move(Action):  # type: ignore[misc]  # not installed where types are checked
        move: int = Field(ge=0, le=2)

    class Place(Observation):  # type: ignore[misc]  # as above
        place: int = Field(ge=-1000, le=1000)
        seed: float

    class Line(Environment[Move, Place, State]):  # type: ignore[misc]  # as above
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self.place = 0
            self.seed = 0

        def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Place:
            self.place, self.seed = 0, seed or 0
            return Place(place=self.place, seed=self.seed, metadata={"answer": 7})

        def step(self, action: Move, timeout_s: float | None = None, **more: Any) -> Place:
            self.place += action.move
            return Place(place=self.place, seed=self.seed, reward=float(action.move), done=self.place >= 6)

        @property
        def state(self) -> State:
            return State(step_count=0)

    app = create_app(Line, Move, Place, max_concurrent_envs=4)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical")
    server = uvicorn.Server(config)
    started = threading.Event()
    startup = server.startup

    async def tell(*arguments: Any, **more: Any) -> None:
        await startup(*arguments, **more)
        started.set()

    # It tells nobody when it listens.
    server.startup = tell
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.run)
        assert started.wait(30)
        try:
            port = server.servers[0].sockets[0].getsockname()[1]
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            running.result(30)


async def test_our_environment_of_a_stock_server() -> None:
    player = Player(lambda _: {"move": np.int64(2)})
    with stock_server() as url:
        async with playing(openenv_environment(url), player) as play:
            await play(seed=5)
    first, last = player.observations[0], player.observations[-1]
    assert first.action_space == Dict({"move": Discrete(3)})
    assert first.observation_space == Dict(
        {"place": Discrete(2001, -1000), "seed": Box(-np.inf, np.inf, (), "float64")}
    )
    assert (int(first.value["place"]), float(first.value["seed"])) == (0, 5.0)
    assert (set(first.value), first.info) == ({"place", "seed"}, {"answer": 7})
    assert (int(last.value["place"]), last.reward, last.terminated) == (6, 2.0, True)
    assert len(player.observations) == 4


async def test_a_stock_servers_metadata_is_no_observation() -> None:
    seen: list[Mapping[str, Any]] = []

    def to_value(fields: Mapping[str, Any]) -> int:
        seen.append(fields)
        return int(fields["place"])

    player = Player(lambda _: {"move": np.int64(2)})
    with stock_server() as url:
        environment = openenv_environment(url, observation_space=Discrete(100), to_value=to_value)
        async with playing(environment, player) as play:
            await play(seed=5)
    assert seen[0] == {"place": 0, "seed": 5.0}
