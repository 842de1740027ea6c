"""Servers of dm_env_rpc as environments of trials."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import trio

from tests.gateways.dm_env_rpc.servers import Catch, Duel, Server, served, serving
from tests.gateways.dm_env_rpc.servers import World as ServedWorld
from trio_cogment.api import rl_pb2, spaces_pb2
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.api.dm_env_rpc_bridge_pb2 import BridgeConfig
from trio_cogment.base.errors import EndpointError, InvalidArgumentError, TrialFailedError
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.gateways.dm_env_rpc import DM_ENV_RPC_SPEC, dm_env_rpc_environment, participants
from trio_cogment.gateways.dm_env_rpc.bridge.worlds import World
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import InProcessChannel, bind
from trio_cogment.sdk import ActorSession, EnvironmentImplementation, Participants, actor_params, trial_params
from trio_cogment.sdk.spec import Spec
from trio_cogment.spaces import Box, Dict, Discrete, Observation, decode_observation, encode_action
from trio_cogment.spaces.values import fill_fields

Play = Callable[..., Awaitable[TrialOutcome]]


def staying(_name: str, _observation: Observation) -> Any:
    return {"paddle": np.int8(0)}


class Player:
    """Answers what it is told to, and keeps all that it gets, by actor."""

    def __init__(
        self, act: Callable[[str, Observation], Any] = lambda _name, _observation: {"paddle": np.int8(0)}
    ) -> None:
        self.act = act
        self.seen: dict[str, list[Observation]] = {}
        self.rewards: dict[str, list[float]] = {}

    async def play(self, session: ActorSession[Any, Any, Any]) -> None:
        seen, rewards = self.seen.setdefault(session.name, []), self.rewards.setdefault(session.name, [])
        async for event in session.all_events():
            if event.reward is not None:
                rewards.append(event.reward.value)
            if event.observation is None:
                continue
            observation = decode_observation(event.observation.payload, copy=True)
            seen.append(observation)
            if event.type.name != "ENDING":
                action = self.act(session.name, observation) if observation.active else None
                await session.do_action(spaces_pb2.Action() if action is None else encode_action(action))

    def forget(self) -> None:
        self.seen.clear()
        self.rewards.clear()


@asynccontextmanager
async def playing(
    environment: EnvironmentImplementation, player: Player, spec: Spec = DM_ENV_RPC_SPEC
) -> AsyncIterator[Play]:
    """Yield a function that plays one trial."""
    found = Participants(spec)
    found.register_environment(environment)
    found.register_actor(player.play, "player")
    async with open_platform(found) as platform:

        async def play(
            config: Any = None, actors: Sequence[str] = ("player_0",), max_steps: int = 0, *, end_at: int | None = None
        ) -> TrialOutcome:
            params = trial_params(
                [actor_params(name, PLAYER, implementation="player", spec=spec) for name in actors],
                environment_config=config,
                max_steps=max_steps,
                spec=spec,
            )
            trial = await platform.controller.start_trial(params)
            with trio.fail_after(30):
                if end_at is not None:
                    while len(player.seen.get(actors[0], [])) < end_at:
                        await trio.lowlevel.checkpoint()
                    await platform.controller.terminate_trial([trial], hard=True)
                return await platform.controller.wait_trial(trial)

        yield play


def config(fields: Mapping[str, Mapping[str, Any]] = {}, **others: Any) -> BridgeConfig:
    found = BridgeConfig(**others)
    for name, settings in fields.items():
        fill_fields(getattr(found, name), dict(settings))
    return found


def duelling(name: str, observation: Observation) -> Any:
    return {"number": np.int32({"left": 5, "right": 2}[name])}


DUEL = {"create_settings": {"game": "duel"}}
BOTH = ("left", "right")


async def test_a_trial() -> None:
    player = Player(lambda _name, _observation: {"paddle": np.int8(1)})
    async with served() as (url, _, _), playing(dm_env_rpc_environment(url), player) as play:
        await play(config({"create_settings": {"seed": 3}}))
    seen = player.seen["player_0"]
    first, last = seen[0], seen[-1]
    assert first.observation_space == Dict(
        {
            "ball": Dict({"column": Discrete(Catch.COLUMNS, 0, "int32")}),
            "board": Box(-np.inf, np.inf, (6, 5), "float32"),
        }
    )
    assert first.action_space == Dict({"paddle": Discrete(3, -1, "int8")})
    assert (first.reward, first.info, first.active, first.alive) == (None, {}, True, True)
    assert len(seen) == Catch.ROWS
    assert seen[1].observation_space is None
    game = Catch(3)
    expected = [game.begin()[0], *(game.advance([{"paddle": 1}])[1][0] for _ in range(Catch.ROWS - 1))]
    for found, own in zip(seen, expected, strict=True):
        assert found.value["board"].tolist() == own["board"].tolist()
        assert found.value["ball"]["column"] == own["ball.column"]
    assert [found.reward for found in seen[1:]] == [own["reward"] for own in expected[1:]]  # in double precision
    assert (last.terminated, last.truncated, last.active, last.alive) == (True, False, False, False)
    assert player.rewards["player_0"] == [np.float32(own["reward"]) for own in expected[1:]]


async def test_worlds_are_kept_between_trials() -> None:
    player = Player()
    async with served() as (url, server, _):
        environment = dm_env_rpc_environment(url)
        async with playing(environment, player) as play:
            for _ in range(3):
                await play()
            assert server.log.count("create_world") == 1
            assert server.log.count("reset") == 0
            await play(config({"create_settings": {"seed": 1}}))
            assert len(server.worlds) == 2
            await environment.aclose()
        assert server.worlds == {}
        assert server.log.count("leave_world") == 2


async def test_worlds_of_one_trial() -> None:
    async with served() as (url, server, _):
        async with playing(dm_env_rpc_environment(url, single_use=True), Player()) as play:
            await play()
            await play()
        assert server.log.count("create_world") == server.log.count("destroy_world") == 2
        assert server.worlds == {}


def test_the_end_of_the_run_destroys_worlds() -> None:
    """The server is in another run, which goes on."""

    async def play_once(url: str) -> None:
        async with playing(dm_env_rpc_environment(url), Player()) as play:
            await play()
        assert len(server.worlds) == 1

    with serving() as (url, server):
        trio.run(play_once, url)
        assert server.worlds == {}
        assert server.log[-2:] == ["leave_world", "destroy_world"]


def test_the_end_of_the_run_destroys_a_world_that_nobody_gave_back() -> None:
    async def open_one(url: str) -> None:
        with trio.fail_after(10):
            world = await World.open(dm_env_rpc_environment(url)._defaults.plan(BridgeConfig(), ["player_0"]))
        assert world.usable
        assert len(server.worlds) == 1

    with serving() as (url, server):
        trio.run(open_one, url)
        assert server.worlds == {}


async def test_a_world_that_is_created_while_nobody_wants_it_any_more() -> None:
    async with served() as (url, server, _):
        plan = dm_env_rpc_environment(url)._defaults.plan(BridgeConfig(), ["player_0"])
        with trio.CancelScope() as scope:
            # The server has created the world, and its answer is on its way.
            server.mangle = lambda response: scope.cancel() if response.HasField("create_world") else None
            await World.open(plan)
        assert scope.cancelled_caught
        with trio.fail_after(10):
            while server.open:
                await trio.lowlevel.checkpoint()
        assert server.worlds == {}
        assert server.log == ["create_world", "leave_world", "destroy_world"]


async def test_seeds_and_settings_of_resets() -> None:
    player = Player()
    balls = []
    async with served() as (url, server, _), playing(dm_env_rpc_environment(url), player) as play:
        for seed in (5, None, 5, None):
            await play(BridgeConfig(instance="one", seed=seed))
            balls.append([int(player.seen["player_0"][0].value["ball"]["column"])])
            balls[-1].append(server.log.count("reset"))
            player.forget()
        assert server.log.count("create_world") == 1
    own = Catch(5)
    expected = [own.begin()[0]["ball.column"], own.begin()[0]["ball.column"]] * 2
    assert [ball for ball, _ in balls] == expected
    assert [resets for _, resets in balls] == [1, 1, 2, 2]


async def test_the_configuration_of_other_environments() -> None:
    player = Player()
    async with served() as (url, server, _), playing(dm_env_rpc_environment(), player, RL_SPEC) as play:
        found = rl_pb2.EnvironmentConfig(id=url, seed=5)
        fill_fields(found.arguments, {"game": "catch"})
        await play(found)
        assert player.seen["player_0"][0].value["ball"]["column"] == Catch(5).begin()[0]["ball.column"]
        assert server.log.count("reset") == 1


async def test_a_trial_that_somebody_ends_is_truncated() -> None:
    player = Player()
    async with served() as (url, server, _), playing(dm_env_rpc_environment(url), player) as play:
        await play(max_steps=2)
        last = player.seen["player_0"][-1]
        assert (last.terminated, last.truncated, last.active) == (False, True, False)
        player.forget()
        await play()  # in the same world, whose sequence has to be interrupted first
        assert len(player.seen["player_0"]) == Catch.ROWS
        assert (server.log.count("create_world"), server.log.count("reset")) == (1, 1)


async def test_two_actors_side_by_side() -> None:
    player = Player(duelling)
    async with served() as (url, server, _), playing(dm_env_rpc_environment(url), player) as play:
        await play(config(DUEL), BOTH)
        left, right = player.seen["left"], player.seen["right"]
        assert [found.reward for found in left] == [None, 3.0, 3.0, None, None]
        assert [found.reward for found in right] == [None, -3.0, -3.0, 2.0, 2.0]
        assert [(found.terminated, found.truncated, found.alive) for found in left] == [
            *[(False, False, True)] * 2,
            (False, True, False),
            *[(False, False, False)] * 2,
        ]
        assert [found.terminated for found in right] == [False] * 4 + [True]
        assert left[4].value["last"].tolist() == left[2].value["last"].tolist() == [5, 2]
        assert right[4].value["last"].tolist() == [0, 2]
        # A discount that is no more than what the state says is not told.
        assert [found.info for found in left] == [{}] * 5
        assert [found.info for found in right] == [{}] + [{"discount": 0.5}] * 4
        player.forget()
        await play(config(DUEL), BOTH)
        assert len(player.seen["left"]) == 5
        assert server.log.count("create_world") == 1


async def test_the_trial_ends_with_any() -> None:
    player = Player(duelling)
    async with served() as (url, server, _), playing(dm_env_rpc_environment(url, end_when="any"), player) as play:
        for _ in range(2):
            await play(config(DUEL), BOTH)
            ends = [player.seen[name][-1] for name in BOTH]
            assert [(end.terminated, end.truncated, end.alive) for end in ends] == [(False, True, False)] * 2
            assert [len(player.seen[name]) for name in BOTH] == [3, 3]
            player.forget()
        assert (server.log.count("create_world"), server.log.count("reset")) == (1, 1)


async def test_settings_of_joining() -> None:
    player = Player(duelling)
    async with served() as (url, _, _), playing(dm_env_rpc_environment(url), player) as play:
        found = config(DUEL)
        for name, slot in (("left", 1), ("right", 0)):
            fill_fields(found.actor_join_settings[name], {"slot": slot})
        await play(found, BOTH)
        assert player.seen["left"][1].value["last"].tolist() == [2, 5]


async def test_a_world_of_somebody_else() -> None:
    async with served() as (url, server, _):
        server.worlds["hall"] = hall = ServedWorld(Catch(), [None])
        environment = dm_env_rpc_environment(url, world_name="hall")
        async with playing(environment, Player()) as play:
            await play()
            await environment.aclose()
        assert server.worlds == {"hall": hall}
        assert hall.slots == [None]


async def test_chosen_observations() -> None:
    player = Player()
    async with (
        served() as (url, _, _),
        playing(dm_env_rpc_environment(url, observations=["ball.column"]), player) as play,
    ):
        await play()
        assert list(player.seen["player_0"][0].value) == ["ball"]
        assert player.seen["player_0"][-1].reward is not None
        with pytest.raises(TrialFailedError, match=r"observations: expected some of 'board', .* got 'score'"):
            await play(BridgeConfig(observations=["score"]))


async def test_refused_steps() -> None:
    def wild(_name: str, _observation: Observation) -> Any:
        return {"paddle": np.int8(1)}

    async with served() as (url, server, _):
        refuse = {3}  # the step with this number, of all

        count = 0

        def mangle(response: pb.EnvironmentResponse) -> None:
            nonlocal count
            if response.HasField("step"):
                count += 1
                if count in refuse:
                    response.error.code, response.error.message = 9, "the paddle is stuck"

        server.mangle = mangle
        player = Player(wild)
        async with playing(dm_env_rpc_environment(url), player) as play:
            with pytest.raises(
                TrialFailedError, match=r"actor 'player_0': .*: step: FAILED_PRECONDITION: the paddle is stuck"
            ):
                await play()
            assert len(player.seen["player_0"]) == 2
            player.forget()
            count = 0
            await play(BridgeConfig(on_error=BridgeConfig.REPEAT))
            infos = [found.info for found in player.seen["player_0"]]
            assert infos[2] == {"refused": "the paddle is stuck"}
            assert all(not info for info in infos[:2] + infos[3:])


@pytest.mark.parametrize(
    ("action", "text"),
    [({"paddle": np.int8(3)}, r'action\["paddle"\]: expected '), (None, "action: expected a value of Dict")],
)
async def test_wrong_actions(action: Any, text: str) -> None:
    player = Player(lambda _name, _observation: action)
    async with served() as (url, server, _), playing(dm_env_rpc_environment(url), player) as play:
        with pytest.raises(TrialFailedError, match=rf"environment '{url}', actor 'player_0': {text}"):
            await play()
        assert server.log.count("step") == 1


async def test_a_server_that_dies() -> None:
    server = Server()
    player = Player()
    async with served(server) as (url, _, life):
        environment = dm_env_rpc_environment(url, connect_timeout_seconds=5)
        async with playing(environment, player) as play:
            await play()

            def die(_name: str, _observation: Observation) -> Any:
                life.cancel()
                return {"paddle": np.int8(0)}

            player.act = die
            with pytest.raises(TrialFailedError, match=f"environment '{url}', actor 'player_0': .*connection was lost"):
                await play()
            with pytest.raises(TrialFailedError, match=f"environment '{url}'"):
                await play()  # nobody listens there any more


async def test_a_server_that_comes_back() -> None:
    player = Player()
    async with served() as (url, server, _), playing(dm_env_rpc_environment(url), player) as play:
        await play()
        # The kept connection dies while nobody uses it.
        (world,) = server.worlds.values()
        server.hang_up()
        while any(world.slots):
            await trio.lowlevel.checkpoint()
        await play()
        assert server.log.count("create_world") == 2


async def test_a_server_that_does_not_answer(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    async with InProcessChannel([bind(pb.DESCRIPTOR.services_by_name["Environment"], server)]) as channel:
        environment = dm_env_rpc_environment(channel, step_timeout_seconds=7, connect_timeout_seconds=3)

        def hold(_name: str, _observation: Observation) -> Any:
            server.hold = trio.Event()
            return {"paddle": np.int8(0)}

        async with playing(environment, Player(hold)) as play:
            with pytest.raises(TrialFailedError, match="step: expected answers within 7 s"):
                await play()
            expected = (
                "did not answer CreateWorld of actor 'player_0' within 3 s; "
                "a Python server needs a thread for each connection (ThreadPoolExecutor(max_workers=...))"
            )
            with pytest.raises(TrialFailedError, match=re.escape(expected)):
                await play()
            assert expected in caplog.text
            server.hold.set()  # type: ignore[union-attr]  # it was set above


async def test_a_server_that_does_not_answer_a_reset(autojump_clock: trio.testing.MockClock) -> None:
    server = Server()

    def hold(response: pb.EnvironmentResponse) -> None:
        if response.HasField("join_world"):
            server.hold = trio.Event()

    server.mangle = hold
    async with InProcessChannel([bind(pb.DESCRIPTOR.services_by_name["Environment"], server)]) as channel:
        environment = dm_env_rpc_environment(channel, step_timeout_seconds=7)
        async with playing(environment, Player()) as play:
            with pytest.raises(TrialFailedError, match="reset: expected answers within 7 s"):
                await play(BridgeConfig(seed=5))
            server.hold.set()  # type: ignore[union-attr]  # it was set above


async def test_a_trial_that_is_ended_hard() -> None:
    player = Player()
    async with served() as (url, server, _):
        hold = trio.Event()

        def stop(name: str, _observation: Observation) -> Any:
            if len(player.seen[name]) == 2:
                server.hold = hold
            return {"paddle": np.int8(0)}

        player.act = stop
        async with playing(dm_env_rpc_environment(url), player) as play:
            await play(end_at=2)
            hold.set()
            player.forget()
            player.act = staying
            await play()
            assert len(player.seen["player_0"]) == Catch.ROWS


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (BridgeConfig(server="grpc://other:1"), "server: expected 'grpc://.*; got 'grpc://other:1'"),
        (config({"create_settings": {"depth": 3}}), "create_world: INVALID_ARGUMENT: setting 'depth'"),
        (config({"join_settings": {"depth": 3}}), "join_world: INVALID_ARGUMENT: setting 'depth'"),
        (config({"reset_settings": {"depth": 3}}), "reset: INVALID_ARGUMENT: setting 'depth'"),
        (config(world_name="hall"), "join_world: NOT_FOUND: there is no world 'hall'"),
        (
            BridgeConfig(actor_join_settings={"nobody": spaces_pb2.Value.Fields()}),
            r"actor_join_settings: expected names of actors \('player_0'\), got 'nobody'",
        ),
    ],
)
async def test_configurations_that_are_refused(given: BridgeConfig, text: str) -> None:
    async with served() as (url, server, _), playing(dm_env_rpc_environment(url), Player()) as play:
        with pytest.raises(TrialFailedError, match=text):
            await play(given)
        with trio.fail_after(10):
            while server.worlds:  # what was created is destroyed
                await trio.lowlevel.checkpoint()


async def test_without_a_server() -> None:
    async with playing(dm_env_rpc_environment(), Player()) as play:
        with pytest.raises(TrialFailedError, match="server: expected grpc://host:port, got none"):
            await play()
        with pytest.raises(TrialFailedError, match="server: 'localhost': expected grpc://host:port"):
            await play(BridgeConfig(server="localhost"))
    with pytest.raises(InvalidArgumentError, match="end_when: expected 'all' or 'any'; got 'some'"):
        dm_env_rpc_environment(end_when="some")  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(InvalidArgumentError, match=r"^on_error: expected 'end_trial' or 'repeat'; got 'wait'$"):
        dm_env_rpc_environment(on_error="wait")  # type: ignore[arg-type]  # that is the mistake


async def test_what_the_command_line_serves() -> None:
    player = Player()
    found = participants()
    found.register_actor(player.play, "player")
    async with served() as (url, _, _), open_platform(found) as platform:
        params = trial_params(
            [actor_params("player_0", PLAYER, implementation="player", spec=DM_ENV_RPC_SPEC)],
            environment="dm_env_rpc",
            environment_config=BridgeConfig(server=url),
            spec=DM_ENV_RPC_SPEC,
        )
        await _wait(platform, await platform.controller.start_trial(params))
    assert len(player.seen["player_0"]) == Catch.ROWS


async def _wait(platform: Platform, trial: str) -> None:
    with trio.fail_after(30):
        await platform.controller.wait_trial(trial)


def test_the_game_of_two() -> None:
    assert Duel.lengths == (2, 4)  # what the numbers above stand for


async def test_an_address_as_the_published_library_takes_it() -> None:
    player = Player()
    async with served() as (url, server, _):
        short = url.removeprefix("grpc://")
        async with playing(dm_env_rpc_environment(short), player) as play:
            await play(config(server=url))
            await play(config(server=short))
        assert server.log.count("create_world") == 2


def test_an_address_that_is_none() -> None:
    with pytest.raises(EndpointError, match="server: 'grpc://localhost': expected grpc://host:port"):
        dm_env_rpc_environment("grpc://localhost")
