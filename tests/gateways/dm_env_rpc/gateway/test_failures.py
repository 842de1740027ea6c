"""Trials that cannot be started, or go wrong: the client is told why, may try again, and nobody else notices."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.gateways.dm_env_rpc.gateway.games import (
    SEEN,
    Game,
    begun,
    joined,
    params_of,
    playing,
    step,
    together,
)
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.base.errors import ResourceExhaustedError, StatusCode
from trio_cogment.gateways.dm_env_rpc import (
    Connection,
    DmEnvRpcError,
    State,
    dm_env_rpc_environment,
    open_connection,
)
from trio_cogment.rl import InvalidEnvironmentError
from trio_cogment.sdk import EnvironmentSession, actor_params
from trio_cogment.seats.round import Round
from trio_cogment.seats.seat import Seat
from trio_cogment.spaces import Discrete, Observation, encode_observation

RUNNING, TERMINATED, INTERRUPTED = State.RUNNING, State.TERMINATED, State.INTERRUPTED
BOTH = ("ann", "ben")
pytestmark = pytest.mark.usefixtures("quiet")


async def refusal(connection: Connection, what: str = "step") -> DmEnvRpcError:
    asked = connection.step() if what == "step" else connection.join_world("w")
    with pytest.raises(DmEnvRpcError) as caught:
        await asked
    return caught.value


class Fails:
    """A beginning of an environment that fails while it is told to."""

    def __init__(self) -> None:
        self.failing = True

    async def __call__(self, _: EnvironmentSession) -> None:
        if self.failing:
            raise ValueError("the dice were never cast")


async def refuses(_: EnvironmentSession) -> None:
    raise InvalidEnvironmentError("zoo", "ann", "there is no such game")


async def test_an_environment_that_fails_at_once() -> None:
    fails = Fails()
    async with playing(Game(opening=fails)) as platform, open_connection(platform.channel) as ann:
        await ann.create_world({"world_name": "w"})
        error = await refusal(ann, "join")
        assert error.code is StatusCode.UNAVAILABLE
        assert "world 'w'" in error.message
        assert "the dice were never cast" in error.message
        assert ann.state is State.NOT_JOINED
        fails.failing = False
        await ann.join_world("w")
        assert await step(ann) == (RUNNING, 0, 0.0)
        await ann.reset()
        fails.failing = True
        error = await refusal(ann)
        assert error.code is StatusCode.UNAVAILABLE
        assert "the dice were never cast" in error.message
        assert "the dice were never cast" in (await ann.read_property("trial.last_error")).item()
        assert ann.state is INTERRUPTED
        fails.failing = False
        assert await step(ann) == (RUNNING, 0, 0.0)
        assert (await ann.read_property("trial.last_error")).item() == ""


async def test_a_world_that_fails_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody has expected in the tasks of a world is the end of that one."""

    async def planted(self: Round) -> None:
        raise RuntimeError("planted")

    async with playing(Game()) as platform, joined(platform, "ann") as [other]:
        assert await step(other) == (RUNNING, 0, 0.0)
        async with joined(platform, "ann", world="bad") as [bad]:
            await step(bad)
            with monkeypatch.context() as patched:
                patched.setattr(Round, "_have_it_ended", planted)
                await bad.reset()
                error = await refusal(bad)
            assert (error.code, error.message) == (
                StatusCode.UNAVAILABLE,
                "world 'bad' failed; the gateway's log has the details",
            )
        assert (await step(other))[0] is RUNNING


async def test_an_action_that_cannot_be_passed_on_may_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: Seat, action: bytes) -> None:
        raise ResourceExhaustedError("too much waits")

    async with playing(Game()) as platform, joined(platform, "ann") as [ann]:
        assert await step(ann) == (RUNNING, 0, 0.0)
        with monkeypatch.context() as patched:
            patched.setattr(Seat, "act", refuses)
            error = await refusal(ann)
        assert (error.code, error.message) == (StatusCode.RESOURCE_EXHAUSTED, "too much waits")
        assert ann.state is RUNNING
        assert await step(ann) == (RUNNING, 1, 0.0)


async def test_no_environment_is_registered() -> None:
    async with playing(Game()) as platform, open_connection(platform.channel) as ann:
        await ann.create_world({"world_name": "w"})
        platform.participants.unregister_environment("default")
        error = await refusal(ann, "join")
        assert error.code is StatusCode.FAILED_PRECONDITION
        assert "the trial could not be started" in error.message
        assert "environment.endpoint: cogment://discover" in error.message
        platform.participants.register_environment(Game())
        await ann.join_world("w")
        assert await step(ann) == (RUNNING, 0, 0.0)


async def test_an_environment_elsewhere_that_is_not_there() -> None:
    """Nobody listens at port 1: a clear error, and the gateway goes on."""
    params = params_of("ann", environment_endpoint="grpc://127.0.0.1:1")
    config = PlatformConfig(orchestrator=OrchestratorConfig(environment_init_timeout_seconds=1))
    async with playing(Game(), params, platform_config=config) as platform, open_connection(platform.channel) as ann:
        await ann.create_world({"world_name": "w"})
        error = await refusal(ann, "join")
        assert error.code is StatusCode.UNAVAILABLE
        assert "environment 'env'" in error.message
        assert (await ann.read_property("worlds.w")).tolist() == ["ann"]


async def test_the_orchestrator_refuses_a_later_trial() -> None:
    game = Game(length=1)
    async with playing(game, BOTH) as platform, joined(platform, *BOTH) as (ann, ben):
        await together(ann, ben)
        assert await together(ann, ben) == [(TERMINATED, 1, 0.0)] * 2
        platform.participants.unregister_environment("default")
        async with trio.open_nursery() as nursery:
            waiting = [await begun(nursery, connection) for connection in (ann, ben)]
        for each in waiting:
            assert each.error is not None
            assert each.error.code is StatusCode.FAILED_PRECONDITION
            assert "the trial could not be started" in each.error.message
        assert "could not be started" in (await ann.read_property("trial.last_error")).item()
        platform.participants.register_environment(game)
        assert await together(ann, ben) == [(RUNNING, 0, 0.0)] * 2


async def test_a_service_actor_that_is_not_there() -> None:
    params = params_of("ann", actor_params("bot", "player", implementation="bot"))
    async with playing(Game(), params) as platform, open_connection(platform.channel) as ann:
        await ann.create_world({"world_name": "w"})
        error = await refusal(ann, "join")
        assert error.code is StatusCode.FAILED_PRECONDITION
        assert "'bot'" in error.message


async def test_an_environment_whose_spaces_change() -> None:
    """Specifications hold for the life of a world."""
    game = Game(length=2)
    async with playing(game) as platform, joined(platform, "ann") as (ann,):
        assert [(await step(ann))[0] for _ in range(3)] == [RUNNING, RUNNING, TERMINATED]
        game.seen = Discrete(500)
        error = await refusal(ann)
        assert error.code is StatusCode.FAILED_PRECONDITION
        assert "other spaces than in the world's earlier sequences" in error.message
        assert "other spaces" in (await ann.read_property("trial.last_error")).item()
        async with joined(platform, "ann", world="v") as (other,):
            assert await step(other) == (RUNNING, 0, 0.0)
        game.seen = SEEN
        assert await step(ann) == (RUNNING, 0, 0.0)


async def test_observations_that_are_none() -> None:
    game = Game(length=0, content={2: b"\xff\xff"})
    async with playing(game) as platform, joined(platform, "ann") as (ann,):
        assert [(await step(ann))[:2] for _ in range(2)] == [(RUNNING, 0), (RUNNING, 1)]
        error = await refusal(ann)
        assert "expected a trio_cogment.spaces.Observation" in error.message
        assert await step(ann) == (INTERRUPTED, 1, 0.0)
        assert "expected a trio_cogment" in (await ann.read_property("trial.last_error")).item()
        game.content = {}
        assert await step(ann) == (RUNNING, 0, 0.0)


async def test_a_first_observation_that_is_none() -> None:
    game = Game(length=0, content={0: b"\xff\xff"})
    async with playing(game) as platform, open_connection(platform.channel) as ann:
        await ann.create_world({"world_name": "w"})
        error = await refusal(ann, "join")
        assert error.code is StatusCode.INTERNAL
        assert "expected a trio_cogment.spaces.Observation" in error.message
        game.content = {0: encode_observation(Observation(SEEN.check(0))).SerializeToString()}
        error = await refusal(ann, "join")
        assert error.code is StatusCode.FAILED_PRECONDITION
        assert "without its spaces" in error.message
        game.content = {}
        await ann.join_world("w")
        assert await step(ann) == (RUNNING, 0, 0.0)


async def test_observations_that_are_not_in_their_space() -> None:
    """The step that needs one is refused; one that does not need it goes on."""
    bad = encode_observation(Observation("a text")).SerializeToString()
    game = Game(length=0, content={1: bad})
    async with playing(game) as platform, joined(platform, "ann") as (ann,):
        await step(ann)
        error = await refusal(ann)
        assert "the environment's observation" in error.message
        assert await step(ann) == (RUNNING, 2, 0.0)


async def test_a_neighbour_whose_first_observation_is_wrong() -> None:
    """Who has had an observation of the trial already is told of its end by the next step."""
    game = Game(length=1)
    async with playing(game, BOTH) as platform, joined(platform, *BOTH) as (ann, ben):
        await together(ann, ben)
        assert await together(ann, ben) == [(TERMINATED, 1, 0.0)] * 2
        game.content = {("ben", 0): b"\xff"}
        async with trio.open_nursery() as nursery:
            waiting = [await begun(nursery, connection) for connection in (ann, ben)]
            await waiting[0].done.wait()
            await waiting[1].done.wait()
        assert waiting[1].error is not None
        assert "expected a trio_cogment" in waiting[1].error.message
        if waiting[0].error is None:  # which of the two observations comes first is nobody's promise
            assert waiting[0].told == (RUNNING, 0, 0.0)
            assert await step(ann) == (INTERRUPTED, 0, 0.0)
        game.content = {}
        assert await together(ann, ben) == [(RUNNING, 0, 0.0)] * 2


@pytest.mark.parametrize(
    ("environment", "code", "text"),
    [
        (dm_env_rpc_environment(), StatusCode.INVALID_ARGUMENT, "server: expected grpc://host:port, got none"),
        (Game(opening=refuses), StatusCode.FAILED_PRECONDITION, "there is no such game"),
    ],
)
async def test_what_would_fail_again_is_not_tried_again(environment: Any, code: StatusCode, text: str) -> None:
    async with playing(environment) as platform, open_connection(platform.channel) as ann:
        await ann.create_world({"world_name": "w"})
        error = await refusal(ann, "join")
        assert error.code is code
        assert text in error.message
