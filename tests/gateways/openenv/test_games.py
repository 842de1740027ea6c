"""`serve_openenv`: environments of the field, and seats of others."""

from __future__ import annotations

import base64
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import gymnasium
import httpx
import numpy as np
import pytest
import trio
import trio.testing

import trio_cogment.rl as tc
from tests.gateways.openenv.games import RockPaperScissors, TakingTurns, Walk
from tests.gateways.openenv.test_client import Player, playing
from tests.gateways.openenv.test_server import Client, client, error
from trio_cogment.api.rl_pb2 import EnvironmentConfig
from trio_cogment.base.config import OpenEnvConfig
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError
from trio_cogment.base.outcome import EndCause
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.gateways.openenv.games import registered_game
from trio_cogment.gateways.openenv.gathering import Gathering
from trio_cogment.gateways.openenv.server import serve_game
from trio_cogment.gateways.openenv.trials import Trials
from trio_cogment.platform import open_platform
from trio_cogment.spaces import Observation


@asynccontextmanager
async def serving(*arguments: Any, **options: Any) -> AsyncIterator[tc.OpenEnvServer]:
    async with trio.open_nursery() as nursery:
        server: tc.OpenEnvServer = await nursery.start(partial(tc.serve_openenv, *arguments, **options))
        yield server
        nursery.cancel_scope.cancel()


async def test_cartpole_is_what_it_is_in_gymnasium() -> None:
    bare = gymnasium.make("CartPole-v1")
    async with serving("CartPole-v1") as server, client(server) as socket:
        for seed in (3, None):
            expected, _ = bare.reset(seed=seed)
            told = await (socket.reset() if seed is None else socket.reset(seed=seed))
            assert np.array_equal(np.array(told["observation"]["value"], np.float32), expected)
            ended = False
            while not ended:
                value, reward, terminated, truncated, _ = bare.step(1)
                ended = terminated or truncated
                told = await socket.step(1)
                assert np.array_equal(np.array(told["observation"]["value"], np.float32), value)
                assert (told["reward"], told["done"]) == (reward, ended)
                assert told["observation"]["terminated"] == terminated


async def test_others_sit_where_no_socket_is_and_every_episode_is_stored() -> None:
    # The policy answers 0, and what it is told is kept.
    seen: list[Any] = []

    def act(value: Any, observation: Observation) -> int:
        seen.append(value)
        return 0

    async with open_platform(RL_SPEC, store="memory:") as platform:
        async with (
            serving(RockPaperScissors, platform=platform, seats={"player_1": tc.policy(act)}) as server,
            client(server) as socket,
        ):
            await socket.reset()
            for _ in range(4):
                assert (await socket.step(1))["reward"] == 1.0
            assert (await socket.step(1))["done"]
            trial = (await socket.state())["episode_id"]
            # A socket may also sit there itself.
            async with client(server) as other:
                await other.say("reset", trial="both", seat="player_1")
                assert (await socket.reset(trial="both"))["metadata"] == {"seat": "player_0"}
                await other.hear()
        assert seen == [3, 1, 1, 1, 1]
        await platform.controller.wait_trial(trial)
        stored = await platform.datastore_client().trial(trial)
        assert stored is not None
        assert stored.trial_id == trial


class OneIsOut(RockPaperScissors):
    """The first player is out after the first step; the other one plays 3000 more."""

    name = "out_v0"

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        self.rounds += 1
        self.over = self.rounds == 3001
        first, second = self.agents
        return {
            first: Observation(np.int64(0), terminated=self.rounds == 1, alive=self.rounds == 1, active=False),
            second: Observation(np.int64(0), reward=1.0, terminated=self.over),
        }


async def test_a_socket_that_is_out_holds_up_nobody() -> None:
    async with (
        open_platform(RL_SPEC) as platform,
        serving(OneIsOut, platform=platform, seats={"player_1": tc.policy(lambda _: 0)}) as server,
        client(server) as socket,
    ):
        await socket.reset()
        assert (await socket.step(1))["done"]
        trial = (await socket.state())["episode_id"]
        outcome = await platform.controller.wait_trial(trial)
        assert (outcome.cause, outcome.ticks) == (EndCause.ENVIRONMENT, 3002)
        # Its seat is taken in another trial as before.
        assert not (await socket.reset())["done"]


async def test_trials_end_with_their_server() -> None:
    async with open_platform(RL_SPEC) as platform:
        async with (
            serving(TakingTurns, platform=platform) as server,
            client(server) as one,
            client(server) as two,
        ):
            await two.say("reset", trial="t", seat="player_1")
            await one.reset(trial="t")
            trial = (await one.state())["episode_id"]
            assert (await one.step(1))["done"]  # its part is over, and its trial goes on
        with trio.fail_after(30):
            assert (await platform.controller.wait_trial(trial, check=False)).failed


async def test_equal_seeds_give_equal_trials_with_others_who_draw() -> None:
    async with serving(RockPaperScissors, seats={"player_1": tc.random()}) as server, client(server) as socket:
        games = []
        for _ in range(2):
            await socket.reset(seed=4)
            games.append([(await socket.step(0))["observation"]["value"] for _ in range(5)])
        assert games[0] == games[1]
        assert len(set(games[0])) > 1


async def test_seeded_trials_at_once_draw_nothing_from_each_other() -> None:
    async with open_platform(RL_SPEC) as platform:
        registered = registered_game(
            platform,
            RockPaperScissors,
            seats={"player_1": tc.random(3)},
            default_actions={},
            arguments={},
            hosting="inline",
            description="",
            max_idle=4,
        )
        async with registered as game, trio.open_nursery() as nursery:
            server = await nursery.start(partial(serve_game, game, platform))
            async with client(server) as one, client(server) as two, client(server) as three:

                async def play(socket: Client) -> list[int]:
                    return [(await socket.step(0))["observation"]["value"] for _ in range(5)]

                await one.reset(seed=4)
                alone = await play(one)
                await one.reset(seed=4)
                games = []
                for _ in range(2):
                    games.append((await one.step(0))["observation"]["value"])
                # In the middle of its trial others begin theirs, seeded and not.
                await two.reset(seed=4)
                await three.reset()
                await three.step(0)
                games += [(await one.step(0))["observation"]["value"] for _ in range(3)]
                assert games == alone
                assert await play(two) == alone
            nursery.cancel_scope.cancel()


async def test_pictures_are_for_the_seats_that_ask() -> None:
    lake = serving("FrozenLake-v1", arguments={"render_mode": "ansi", "is_slippery": False})
    async with lake as server, client(server) as socket, client(server) as blind:
        assert "frame" not in (await blind.reset())["observation"]
        first = (await socket.reset(frames=True))["observation"]["frame"]
        second = (await socket.step(1))["observation"]["frame"]
        assert first["media_type"] == "text/plain; charset=utf-8"
        assert base64.b64decode(first["base64"]) != base64.b64decode(second["base64"])
        assert "frame" not in (await blind.step(1))["observation"]
        assert "frame" not in (await socket.reset(frames=False))["observation"]
        # And so they come to an actor of a trial elsewhere.
        player = Player(lambda _: np.int64(1))
        async with playing(tc.openenv_environment(server.url), player) as play:
            await play(frames_for=["player_0"])
            assert player.observations[0].frame is not None
            assert player.observations[0].frame.data == base64.b64decode(first["base64"])
            player.observations.clear()
            await play()
            assert all(observation.frame is None for observation in player.observations)


async def test_pictures_are_for_a_person_with_a_page_unless_a_socket_has_the_seat() -> None:
    async with open_platform(RL_SPEC) as platform, trio.open_nursery() as nursery:
        registered = registered_game(
            platform,
            RockPaperScissors,
            seats={"player_0": tc.human(port=0, page=print), "player_1": tc.human()},
            default_actions={},
            arguments={},
            hosting="inline",
            description="",
            max_idle=4,
        )
        async with registered as game:
            assert list(game.config.frames_for) == ["player_0"]
            trials = Trials(nursery, platform, game, OpenEnvConfig())
            for taken, wanted in (("player_1", ["player_0"]), ("player_0", [])):
                params = trials._params(Gathering("", game.agents, taken={taken: object()}), "instance")
                config = EnvironmentConfig.FromString(params.environment.config.content)
                assert list(config.frames_for) == wanted


async def test_one_platform_may_have_several_servers() -> None:
    async with open_platform(RL_SPEC) as platform:
        one = serving(TakingTurns, platform=platform, seats={"player_1": tc.random()})
        two = serving(TakingTurns, platform=platform, seats={"player_1": tc.random()}, description="The same again.")
        async with one as first, two as second, client(first) as socket, client(second) as other:
            assert (await socket.reset())["done"] is False
            assert (await other.reset())["done"] is False
            async with httpx.AsyncClient(base_url=second.url) as http:
                assert (await http.get("/metadata")).json()["description"] == "The same again."


async def test_an_environment_that_fails_is_made_anew() -> None:
    class Broken(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Discrete(2)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Any, dict[str, Any]]:
            return np.int64(0), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            if action == 1:
                raise RuntimeError("it broke")
            return np.int64(1), 1.0, True, False, {}

    async with serving(Broken) as server, client(server) as socket:
        await socket.reset()
        assert "it broke" in error(await socket.ask("step", value=1))[1]
        await socket.reset()
        assert (await socket.step(0))["done"]


async def test_an_environment_is_made_where_it_is_hosted() -> None:
    made: list[int] = []

    class Affine(Walk):
        def __init__(self) -> None:
            super().__init__()
            made.append(threading.get_ident())

    async with serving(Affine, hosting="thread") as server, client(server) as socket:
        assert not (await socket.reset())["done"]
    assert made
    assert threading.get_ident() not in made


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seats": {"player_7": 1}}, "seats: expected agents of 'player_0', 'player_1'; got 'player_7'"),
        ({"default_actions": {"me": 1}}, "default_actions: expected agents of"),
        ({"default_actions": {"player_0": 0, "me": 1}}, "default_actions: expected agents of .*; got 'me'"),
        ({"default_actions": {"player_1": 7}}, "actor 'player_1': default_actions: expected 0 to 2, got 7"),
    ],
)
async def test_arguments_that_make_no_sense(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        await tc.serve_openenv(RockPaperScissors, **options)


async def test_there_is_no_such_environment_and_no_second_store() -> None:
    with pytest.raises(NotFoundError, match="Nowhere-v1"):
        await tc.serve_openenv("Nowhere-v1")
    async with open_platform(RL_SPEC) as platform:
        with pytest.raises(InvalidArgumentError, match="store: expected none beside a platform"):
            await tc.serve_openenv("CartPole-v1", platform=platform, store="memory:")
