"""Environments of the field in trials that go on: wherever they run, saved or played again, and what goes wrong."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.environments._games import Rps
from tests.environments._trials import open_table
from tests.environments.test_serving import HOSTINGS, ONE, config
from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.api.common_pb2 import Checkpoint, PastTick, TakenUp
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.base.errors import TrialFailedError
from trio_cogment.base.taking_up import Past
from trio_cogment.environments.episode import Episode
from trio_cogment.environments.errors import TakingUpError
from trio_cogment.environments.making import make_environment
from trio_cogment.environments.serving import Hosting, environment
from trio_cogment.environments.taking_up import Saver, check_same
from trio_cogment.rl.views.raw_types import TypeMemory
from trio_cogment.spaces import Observation, encode_action, encode_observation

SAVING = PlatformConfig(orchestrator=OrchestratorConfig(checkpoint_ticks=3))


class SavingRps(Rps):
    """Rock, paper, scissors that saves itself; `steps` counts what anybody has played."""

    steps = 0

    def step(self, actions: dict[str, Any]) -> Any:
        SavingRps.steps += 1
        return super().step(actions)

    def save(self) -> bytes:
        return bytes([self.round, self.rounds])

    def load(self, content: bytes) -> None:
        self.round, self.rounds = content
        self.agents = list(self.possible_agents)


class NestedState(gymnasium.Env[Any, Any]):
    """An environment whose state no message can carry."""

    observation_space = gymnasium.spaces.Discrete(9)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.at = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.at += int(action)
        return self.at, 0.0, self.at == 8, False, {}

    def get_state(self) -> Any:
        return object()

    def set_state(self, state: Any) -> None:
        raise AssertionError


def same(found: list[Observation], expected: list[Observation]) -> bool:
    """Whether observations are the same bit for bit, but for spaces and the reward of the first."""
    return [_told(one, first=place == 0) for place, one in enumerate(found)] == [
        _told(one, first=place == 0) for place, one in enumerate(expected)
    ]


def _told(observation: Observation, *, first: bool) -> bytes:
    message = encode_observation(observation)
    for name in ("observation_space", "action_space", *(["reward"] if first else [])):
        message.ClearField(name)
    found: bytes = message.SerializeToString(deterministic=True)
    return found


@pytest.mark.parametrize("sockets", [False, True])
@pytest.mark.parametrize("hosting", HOSTINGS)
async def test_it_is_played_again_wherever_it_runs(hosting: Hosting, sockets: bool) -> None:
    served = environment("Pendulum-v1", hosting=hosting, arguments={"max_episode_steps": 12})
    async with open_table(served, sockets=sockets, store="memory:") as table:
        actions = [np.array([0.1 * number], np.float32) for number in range(12)]
        left = iter(actions)
        seen = (await table.play(ONE, lambda *_: next(left), config=config(seed=5)))["player_0"]
        for tick in (0, 1, 7, 11):
            left = iter(actions[tick:])
            found = (await table.play_branch("trial-0", tick, lambda *_: next(left)))["player_0"]  # noqa: B023  at once
            assert same(found, seen[tick:]), tick
            assert found[0].observation_space is not None, "whoever comes at this tick needs them"


@pytest.mark.parametrize("sockets", [False, True])
async def test_one_of_several_agents_saves_itself(sockets: bool) -> None:
    served = environment(SavingRps, arguments={"rounds": 8})
    async with open_table(served, sockets=sockets, store="memory:", config=SAVING) as table:

        def act(name: str, observation: Observation) -> int:
            return (int(observation.value) + int(name[-1])) % 3

        seen = await table.play(["player_0", "player_1"], act)
        for tick, made in ((2, 8), (3, 5), (4, 5), (7, 2)):
            before = SavingRps.steps
            found = await table.play_branch("trial-0", tick, act)
            for name in seen:
                assert same(found[name], seen[name][tick:]), (tick, name)
            assert SavingRps.steps - before == made


async def test_a_state_that_no_message_carries_is_not_saved(caplog: pytest.LogCaptureFixture) -> None:
    served = environment(NestedState)
    async with open_table(served, store="memory:", config=SAVING) as table:
        seen = (await table.play(ONE, lambda *_: 1))["player_0"]
        found = (await table.play_branch("trial-0", 5, lambda *_: 1))["player_0"]
        assert same(found, seen[5:])
    warnings = [record.message for record in caplog.records if "its state is not saved" in record.message]
    assert len(warnings) == 1
    assert "environment 'NestedState'" in warnings[0]


async def test_other_options_are_noticed_where_they_matter() -> None:
    async with open_table(environment(Rps), store="memory:") as table:
        await table.play(["player_0", "player_1"], lambda *_: 1, config=config(options={"level": 3}))
        (stored,) = await table.platform.datastore_client().trials()
        params = stored.params
        params.environment.config.content = config(options={"level": 4}).SerializeToString()
        for name in ("trial-x",):
            table._policies[name] = lambda *_: 1
            await table.platform.controller.start_branch("trial-0", 2, params=params, trial_id=name)
            with pytest.raises(TrialFailedError, match="tick 0, actor 'player_0': info: expected that of the stored"):
                await table.platform.controller.wait_trial(name)


def episode_of(target: Any, **arguments: Any) -> Episode:
    made = make_environment(target, **arguments)
    return Episode(made, made.agents)


def past_of(episode: Episode, steps: int, *, seed: int = 1) -> TakenUp:
    action = encode_action(np.int64(1)).SerializeToString()
    turn = episode.begin(seed)
    ticks = [PastTick(observations=map(bytes, turn.observations), actions=[action])]
    for _ in range(steps):
        turn = episode.advance([action])
        ticks.append(PastTick(observations=map(bytes, turn.observations), actions=[action]))
    return TakenUp(trial_id="t", tick_id=steps, past=ticks)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"reward": 2.0}, "reward: expected that of the stored trial, reward: 2; got reward: 1"),
        ({"terminated": True}, "terminated: expected that of the stored trial, terminated: true; got none"),
        ({"value": None}, "observation: expected that of the stored trial, none; got value"),
    ],
)
def test_the_first_field_that_differs_is_named(change: dict[str, Any], text: str) -> None:
    episode = episode_of("CartPole-v1")
    past = past_of(episode, 5)
    stored = pb.Observation.FromString(past.past[3].observations[0])
    for name, value in change.items():
        stored.ClearField(name) if value is None else setattr(stored, name, value)
    past.past[3].observations[0] = stored.SerializeToString()
    with pytest.raises(TakingUpError) as caught:
        episode.take_up(Past.of(past), 1)
    assert str(caught.value).startswith(f"environment 'CartPole-v1', tick 3, actor 'player_0': {text}")
    assert episode.over
    assert len(episode.begin(1).observations) == 1, "the next trial is not disturbed"


class Drifting(gymnasium.Env[Any, Any]):
    """An environment whose observation is another one from some step on, and which does not bear what follows."""

    observation_space = gymnasium.spaces.Box(-1000, 1000, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    drifts_at = raises_at = ends_at = 1000

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.at = 0
        self.seen = np.zeros(2)
        return self.seen, {}

    def step(self, action: Any) -> Any:
        self.at += 1
        if self.at >= self.raises_at:
            raise RuntimeError("broken")
        self.seen[:] = self.at, int(action) + 0.5 * (self.at >= self.drifts_at)  # always in the same array
        return self.seen, 1.0, self.at >= self.ends_at, False, {}


@pytest.mark.parametrize("drifts_at", [1, 2, 64, 65, 66, 130, 149, 150])
@pytest.mark.parametrize("after", ["nothing", "raises", "ends"])
def test_the_first_tick_that_differs_is_named(drifts_at: int, after: str) -> None:
    """Many ticks are compared at a time; what an environment does after the first one does not hide it."""
    inner = Drifting()
    episode = episode_of(lambda: inner)
    past = Past.of(past_of(episode, 150))
    assert bytes(episode.take_up(past, 1).observations[0]).startswith(past.observations[-1][0])
    inner.drifts_at = drifts_at
    if after == "raises":
        inner.raises_at = drifts_at + 3
    if after == "ends":
        inner.ends_at = drifts_at + 3
    with pytest.raises(TakingUpError, match=f"tick {drifts_at}, actor 'player_0': observation: expected that"):
        episode.take_up(past, 1)


def test_what_the_environment_raises_while_it_is_played_again_is_raised() -> None:
    inner = Drifting()
    episode = episode_of(lambda: inner)
    past = Past.of(past_of(episode, 150))
    inner.raises_at = 70
    with pytest.raises(RuntimeError, match="broken"):
        episode.take_up(past, 1)


def test_stored_frames_do_not_hide_a_difference() -> None:
    inner = Drifting()
    episode = episode_of(lambda: inner)
    past = Past.of(past_of(episode, 20))
    frame = pb.Observation(rendered_frame=b"picture").SerializeToString()
    past.observations = [(stored + frame,) for (stored,) in past.observations]
    episode.take_up(past, 1)
    inner.drifts_at = 10
    with pytest.raises(TakingUpError, match="tick 10"):
        episode.take_up(past, 1)


def test_frames_and_spaces_make_no_difference() -> None:
    one = Observation(np.int64(1))
    message = encode_observation(one)
    plain = message.SerializeToString()
    message.rendered_frame, message.frame_media_type = b"picture", "image/jpeg"
    message.observation_space.discrete.n = 3
    check_same("e", "a", 0, plain, message.SerializeToString())


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"garbage", b"\x0a\x02\x08\x01"], ids=["empty", "no message", "garbage", "other"]
)
def test_a_state_that_is_none_activates_nothing(content: bytes) -> None:
    episode = episode_of(SavingRps)
    turn = episode.begin()
    past = TakenUp(tick_id=3, checkpoint=Checkpoint(tick_id=3, content=content))
    past.past.add(observations=map(bytes, turn.observations))
    with pytest.raises(TakingUpError, match="tick 3, expected a state that was saved, got something else"):
        episode.take_up(Past.of(past))
    assert episode.over


def test_a_checkpoint_needs_an_environment_that_loads_it() -> None:
    episode = episode_of(Rps)
    turn = episode.begin()
    past = TakenUp(tick_id=3, checkpoint=Checkpoint(tick_id=3, content=b"x"))
    past.past.add(observations=map(bytes, turn.observations))
    with pytest.raises(TakingUpError, match="tick 3, expected it to load what it has saved, which it cannot"):
        episode.take_up(Past.of(past))


def test_wrappers_with_a_state_of_their_own_are_not_saved() -> None:
    made = make_environment(lambda: gymnasium.wrappers.TimeLimit(NestedState(), 5))
    assert Saver.of(made) is not None
    stacked = make_environment(lambda: gymnasium.wrappers.FrameStackObservation(NestedState(), 2))
    assert Saver.of(stacked) is None
    assert Saver.of(make_environment("CartPole-v1")) is None


def test_a_limit_of_steps_goes_on_from_where_it_was() -> None:
    class Counting(NestedState):
        def get_state(self) -> Any:
            return self.at

        def set_state(self, state: Any) -> None:
            self.at = int(state)

    def limited() -> Any:
        return gymnasium.wrappers.TimeLimit(Counting(), 4)

    # Wrappers that count nothing are nobody's business: a checkpoint of a view is loaded where it is served, too.
    one = make_environment(lambda: TypeMemory(limited()))
    one.reset(1, None)
    for _ in range(3):
        observations = one.step({"player_0": 0})
    saver = Saver.of(one)
    assert saver is not None
    other = make_environment(limited)
    again = Saver.of(other)
    assert again is not None
    again.load(saver.save(), observations)
    assert not other.over
    assert other.step({"player_0": 0})["player_0"].truncated
    bare = Saver.of(make_environment(Counting))
    assert bare is not None
    with pytest.raises(ValueError, match=r"around the environment, none; got gymnasium.TimeLimit._elapsed_steps"):
        bare.load(saver.save(), observations)
