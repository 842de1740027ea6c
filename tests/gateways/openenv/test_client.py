"""OpenEnv servers as environments: one of this package, and others that know nothing of it."""

from __future__ import annotations

import json
import string
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.gateways.openenv.games import RockPaperScissors, Walk, served
from trio_cogment.api import rl_pb2, spaces_pb2
from trio_cogment.base.errors import EndpointError, InvalidArgumentError, TrialFailedError
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.gateways.openenv.client import openenv_environment
from trio_cogment.platform import open_platform
from trio_cogment.sdk import ActorSession, EnvironmentImplementation, Participants, actor_params, trial_params
from trio_cogment.spaces import Box, Dict, Discrete, Observation, Text, decode_observation, encode_action
from trio_cogment.spaces.values import fill_fields


class Player:
    """Answers what it is told to, and keeps all that it gets."""

    def __init__(self, act: Callable[[Observation], Any]) -> None:
        self.act = act
        self.observations: list[Observation] = []
        self.rewards: list[float] = []

    async def play(self, session: ActorSession[Any, Any, Any]) -> None:
        async for event in session.all_events():
            if event.reward is not None:
                self.rewards.append(event.reward.value)
            if event.observation is None:
                continue
            observation = decode_observation(event.observation.payload, copy=True)
            self.observations.append(observation)
            if event.type.name != "ENDING":
                action = self.act(observation)
                answer = spaces_pb2.Action() if action is None else encode_action(action)
                await session.do_action(answer)


@asynccontextmanager
async def playing(
    environment: EnvironmentImplementation, player: Player
) -> AsyncIterator[Callable[..., Awaitable[TrialOutcome]]]:
    """Yield a function that plays one trial."""
    participants = Participants(RL_SPEC)
    participants.register_environment(environment)
    participants.register_actor(player.play, "player")
    async with open_platform(participants) as platform:

        async def play(
            seed: int | None = None,
            options: dict[str, Any] | None = None,
            *,
            actors: tuple[str, ...] = ("player_0",),
            max_steps: int = 0,
            **config: Any,
        ) -> TrialOutcome:
            found = rl_pb2.EnvironmentConfig(seed=seed, **config)
            if options is not None:
                fill_fields(found.options, options)
            params = trial_params(
                [actor_params(name, PLAYER, implementation="player", spec=RL_SPEC) for name in actors],
                environment_config=found,
                max_steps=max_steps,
                spec=RL_SPEC,
            )
            trial = await platform.controller.start_trial(params)
            with trio.fail_after(30):
                return await platform.controller.wait_trial(trial)

        yield play


async def test_a_server_of_this_package() -> None:
    player = Player(lambda _: np.int64(1))
    async with served(Walk) as (server, _), playing(openenv_environment(server.url), player) as play:
        await play(seed=7)
        first, last = player.observations[0], player.observations[-1]
        assert first.observation_space == Walk.observation_spaces["player_0"]
        assert first.action_space == Walk.action_spaces["player_0"]
        assert first.reward is None
        assert first.value.dtype == np.float32
        assert (last.terminated, last.truncated, last.reward, last.info) == (True, False, 0.1, {"place": 3})
        assert player.rewards == [np.float32(0.1)] * (len(player.observations) - 1)
        once = [observation.value.tolist() for observation in player.observations]
        player.observations.clear()
        await play(seed=7)
        assert [observation.value.tolist() for observation in player.observations] == once


async def test_a_trial_that_somebody_ends_is_truncated() -> None:
    player = Player(lambda _: np.int64(0))
    async with served(Walk) as (server, _), playing(openenv_environment(server.url), player) as play:
        await play(seed=7, max_steps=3)
        last = player.observations[-1]
        assert (last.terminated, last.truncated) == (False, True)


async def test_an_instance_keeps_its_session() -> None:
    player = Player(lambda _: np.int64(1))
    begins = []
    async with served(Walk) as (server, _), trio.open_nursery() as nursery:
        environment = openenv_environment(server.url, nursery=nursery)
        async with playing(environment, player) as play:
            for seed in (5, None, 5, None):
                player.observations.clear()
                await play(seed, instance="one")
                begins.append(player.observations[0].value[0])
            assert begins[:2] == begins[2:]
        generator = np.random.default_rng(5)
        assert begins[:2] == [-generator.integers(10), -generator.integers(10)]
        nursery.cancel_scope.cancel()


async def test_options_reach_the_environment_and_its_failure_ends_the_trial_alone() -> None:
    player = Player(lambda _: np.int64(1))
    async with served(Walk) as (server, _), playing(openenv_environment(server.url), player) as play:
        with pytest.raises(TrialFailedError, match=r"step: the server refused: .*the floor is gone"):
            await play(seed=1, options={"fail": True})
        await play(seed=1)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (np.int64(5), "actor 'player_0': action: expected -1 to 1, got 5"),
        (None, "action: expected one, because it is the actor's turn; got none"),
        (np.zeros(2), "actor 'player_0': action: expected"),
    ],
)
async def test_actions_that_are_none(action: Any, words: str) -> None:
    player = Player(lambda _: action)
    async with served(Walk) as (server, _), playing(openenv_environment(server.url), player) as play:
        with pytest.raises(TrialFailedError, match=words):
            await play(seed=1)


async def test_trials_that_do_not_fit() -> None:
    player = Player(lambda _: np.int64(1))
    async with served(Walk) as (server, _), playing(openenv_environment(server.url), player) as play:
        with pytest.raises(TrialFailedError, match="actors: expected 'player_0', got 'player_0', 'player_1'"):
            await play(actors=("player_0", "player_1"))
        with pytest.raises(TrialFailedError, match="config: id: expected none"):
            await play(id="Walk-v0")


async def test_a_game_of_several_refuses_who_comes_alone_and_takes_who_names_a_trial() -> None:
    one, two = Player(lambda _: np.int64(1)), Player(lambda _: np.int64(0))
    async with served(RockPaperScissors) as (server, _):
        async with playing(openenv_environment(server.url), one) as play:
            with pytest.raises(TrialFailedError, match="nobody sits at 'player_1'"):
                await play()
        environments = [
            openenv_environment(server.url, reset_arguments={"trial": "duel", "seat": seat})
            for seat in ("player_0", "player_1")
        ]
        async with (
            playing(environments[0], one) as play_one,
            playing(environments[1], two) as play_two,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(play_one)
            nursery.start_soon(play_two)
        assert (one.rewards, two.rewards) == ([1.0] * 5, [-1.0] * 5)


# Servers that know nothing of this package


class Foreign:
    """An OpenEnv server whose answers a test says."""

    def __init__(self, *answers: Any, schema: Any = None) -> None:
        self.answers = list(answers)
        self.schema = schema
        self.heard: list[Any] = []
        self.gone = False

    async def ws(self, websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            while True:
                message = json.loads(await websocket.receive_text())
                self.heard.append(message)
                if message["type"] == "close":
                    break
                answer = self.answers.pop(0)
                if answer == "silence":
                    await trio.sleep_forever()
                if answer == "hang up":
                    await websocket.close()
                    break
                if isinstance(answer, str):
                    await websocket.send_text(answer)
                else:
                    await websocket.send_text(json.dumps({"type": "observation", "data": answer}))
        except WebSocketDisconnect:
            pass

    async def schemas(self, request: Request) -> Response:
        return Response(status_code=500) if self.schema is None else JSONResponse(self.schema)


@asynccontextmanager
async def foreign(server: Foreign) -> AsyncIterator[str]:
    app = Starlette(routes=[WebSocketRoute("/env/ws", server.ws), Route("/env/schema", server.schemas)])
    settings = Config()
    settings.bind = ["127.0.0.1:0"]
    settings.errorlog = None
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[list[str]]) -> None:
            await serve(app, settings, mode="asgi", task_status=task_status)  # type: ignore[arg-type]  # Starlette's types

        (url,) = await nursery.start(run)
        yield f"{url}/env"
        nursery.cancel_scope.cancel()


def told(x: float, *, done: bool = False, reward: float | None = None) -> dict[str, Any]:
    return {"observation": {"x": x, "metadata": {}}, "reward": reward, "done": done, "metadata": {"lap": 1}}


MOVES = {
    "action": {"type": "object", "properties": {"move": {"type": "integer", "minimum": 0, "maximum": 2}}},
    "observation": {"type": "object", "properties": {"x": {"type": "number"}, "metadata": {"type": "object"}}},
}


async def test_the_spaces_come_from_the_schemas() -> None:
    server = Foreign(told(0.5), told(1.5, reward=1.0), told(2.5, done=True, reward=2.0), schema=MOVES)
    player = Player(lambda _: {"move": np.int64(2)})
    async with foreign(server) as url:
        environment = openenv_environment(f"{url}/", done="truncated", reset_arguments={"level": 3})
        async with playing(environment, player) as play:
            await play(seed=4, options={"wind": True})
    assert server.heard[:2] == [
        {"type": "reset", "data": {"level": 3, "wind": True, "seed": 4}},
        {"type": "step", "data": {"move": 2}},
    ]
    assert server.heard[-1]["type"] == "close"
    first, _, last = player.observations
    assert first.observation_space == Dict({"x": Box(-np.inf, np.inf, (), "float64")})
    assert first.action_space == Dict({"move": Discrete(3)})
    assert (last.value["x"], last.reward, last.terminated, last.truncated) == (2.5, 2.0, False, True)
    assert last.info == {"lap": 1}


async def test_what_no_space_can_tell_is_text() -> None:
    server = Foreign(told(0.5), told(2.5, done=True), schema={})
    player = Player(lambda _: '{"move": "north"}')
    async with foreign(server) as url, playing(openenv_environment(url), player) as play:
        await play()
    assert server.heard[1] == {"type": "step", "data": {"move": "north"}}
    assert isinstance(player.observations[0].action_space, Text)
    assert json.loads(player.observations[0].value) == {"x": 0.5}


@pytest.mark.parametrize("version", ["0.3", "0.10"])
async def test_what_a_policy_sees_does_not_depend_on_the_servers_version(version: str) -> None:
    """Since 0.10 servers put the metadata into the observation, too: scores, and reference answers."""

    def told(prompt: str, *, done: bool = False) -> dict[str, Any]:
        told: dict[str, Any] = {"observation": {"prompt": prompt}, "reward": None, "done": done}
        if version == "0.10":
            told["observation"]["metadata"] = told["metadata"] = {"answer": "4"}
        return told

    schema = {"action": {"type": "object", "properties": {"text": {"type": "string"}}}, "observation": {}}
    seen: list[Mapping[str, Any]] = []

    def to_value(fields: Mapping[str, Any]) -> str:
        seen.append(fields)
        return str(fields["prompt"])

    given: dict[str, Any] = {"observation_space": Text(100, 0, string.printable), "to_value": to_value}
    for more in ({}, given):
        server = Foreign(told("2+2"), told("well", done=True), schema=schema)
        player = Player(lambda _: {"text": "4"})
        async with foreign(server) as url, playing(openenv_environment(url, **more), player) as play:
            await play()
        values = [observation.value for observation in player.observations]
        assert values == (["2+2", "well"] if more else ['{"prompt":"2+2"}', '{"prompt":"well"}'])
        assert player.observations[0].info == ({"answer": "4"} if version == "0.10" else {})
    assert seen == [{"prompt": "2+2"}, {"prompt": "well"}]


async def test_spaces_that_the_user_gives() -> None:
    server = Foreign(told(0.5), told(2.5, done=True))
    player = Player(lambda _: np.int64(1))
    async with foreign(server) as url:
        environment = openenv_environment(
            url,
            action_space=Discrete(2),
            to_fields=lambda action: {"move": ["left", "right"][action]},
            observation_space=Box(0, 9, (1,), "float32"),
            to_value=lambda fields: np.array([fields["x"]], np.float32),
        )
        async with playing(environment, player) as play:
            await play()
    assert server.heard[1] == {"type": "step", "data": {"move": "right"}}
    assert player.observations[-1].value.tolist() == [2.5]


async def test_an_episode_that_is_over_when_it_begins() -> None:
    server = Foreign(told(1, done=True), schema=MOVES)
    player = Player(lambda _: {"move": np.int64(0)})
    async with foreign(server) as url, playing(openenv_environment(url), player) as play:
        await play()
    assert [observation.terminated for observation in player.observations] == [True, True]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (["hang up"], "reset: the server is gone: 1000 NORMAL_CLOSURE"),
        (["silence"], "reset: expected an answer within 0.2 s"),
        (["{"], "reset: expected JSON"),
        (["x" * 3000], "reset: the server is gone: 1009"),
        ([{"observation": 1}], "actor 'player_0': observation: expected an object"),
        ([told(1), told(float("nan"))], "observation.*expected .* got nan"),
        ([{**told(1), "done": "no"}], "done: expected true or false"),
        (
            [told(1), '{"type": "error", "data": {"message": "no", "code": "EXECUTION_ERROR"}}'],
            "step: the server refused: no",
        ),
    ],
)
async def test_a_server_that_fails_ends_the_trial_alone(answers: list[Any], words: str) -> None:
    server = Foreign(*answers, schema=MOVES)
    player = Player(lambda _: {"move": np.int64(0)})
    async with foreign(server) as url:
        environment = openenv_environment(url, message_timeout_seconds=0.2, max_message_bytes=2000)
        async with playing(environment, player) as play:
            with pytest.raises(TrialFailedError, match=words) as failed:
                await play()
            assert url in str(failed.value)
            server.answers[:] = [told(1), told(2, done=True)]
            await play()


async def test_a_session_that_was_lost_is_made_anew() -> None:
    server = Foreign(told(1), told(2, done=True), "hang up", told(3), told(4, done=True), schema=MOVES)
    player = Player(lambda _: {"move": np.int64(0)})
    async with foreign(server) as url, trio.open_nursery() as nursery:
        async with playing(openenv_environment(url, nursery=nursery), player) as play:
            await play(instance="one")
            with pytest.raises(TrialFailedError):
                await play(instance="one")
            await play(instance="one")
        nursery.cancel_scope.cancel()
    assert [message["type"] for message in server.heard] == ["reset", "step", "reset", "reset", "step"]


async def test_servers_that_are_none() -> None:
    player = Player(lambda _: None)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]

    async def refused(environment: EnvironmentImplementation, words: str) -> None:
        async with playing(environment, player) as play:
            with pytest.raises(TrialFailedError, match=words):
                await play()

    spaces: dict[str, Any] = {
        "action_space": Discrete(2),
        "to_fields": lambda action: {"a": int(action)},
        "observation_space": Discrete(2),
        "to_value": lambda fields: fields["x"],
    }
    deaf = f"http://127.0.0.1:{port}"
    await refused(
        openenv_environment(deaf, connect_timeout_seconds=0.1), "GET /schema: expected an answer within 0.1 s"
    )
    await refused(
        openenv_environment(deaf, connect_timeout_seconds=0.1, **spaces), "expected a WebSocket at /ws within 0.1 s"
    )
    for listener in listeners:
        await listener.aclose()
    await refused(openenv_environment(deaf), "expected a server there")
    async with foreign(Foreign()) as url:
        await refused(openenv_environment(url), "GET /schema: expected the status 200, got 500")
        words = "expected a WebSocket at /ws: it answered with the status 403"
        await refused(openenv_environment(url.removesuffix("/env"), **spaces), words)


@pytest.mark.parametrize(
    "url",
    ["localhost:8000", "grpc://a:1", "http://", "http://a:99999", "http://a?b", "http://u@a", "http://[", "http://ä"],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(EndpointError, match="expected http://host:port"):
        openenv_environment(url)


def test_arguments_that_are_none() -> None:
    with pytest.raises(InvalidArgumentError, match="action_space and to_fields: expected both or neither"):
        openenv_environment("http://a", action_space=Discrete(2))
    with pytest.raises(InvalidArgumentError, match="observation_space and to_value"):
        openenv_environment("http://a", to_value=lambda fields: 1)
    with pytest.raises(InvalidArgumentError, match="done: expected"):
        openenv_environment("http://a", done="maybe")  # type: ignore[arg-type]  # what this is about
