"""Steps of an actor, tick by tick."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trio_cogment.base.errors import DataLossError, RemoteProtocolError
from trio_cogment.base.stand_ins import StandIn
from trio_cogment.rl.datasets.payloads import payloads_of
from trio_cogment.rl.datasets.steps import Step, StepBuilder
from trio_cogment.rl.datasets.ticks import ActorTick, RewardFrom, Tick
from trio_cogment.spaces import Box, Discrete, Observation, SpaceError, encode_action, encode_observation

BOX, MOVES = Box(0, 100, (1,), np.float64), Discrete(5)


def told(value: float, **options: Any) -> bytes:
    if value == 0:
        options.update(observation_space=BOX, action_space=MOVES)
    return encode_observation(Observation(np.array([value]), **options)).SerializeToString()


def did(action: int | None) -> bytes:
    return b"" if action is None else encode_action(np.int64(action), MOVES).SerializeToString()


class Game:
    """Feeds ticks to a builder."""

    def __init__(self) -> None:
        self.builder = StepBuilder(lambda name, first: payloads_of(name, "player", first, None), "trial")
        self.steps: list[Step] = []
        self.tick = 0

    def feed(self, tick: int | None = None, **actors: ActorTick) -> None:
        self.tick = self.tick if tick is None else tick
        self.steps += self.builder.feed(Tick(self.tick, 1000 + self.tick, actors))
        self.tick += 1

    def finish(self, *, environment_ended: bool = False) -> list[Step]:
        return self.steps + self.builder.finish(environment_ended=environment_ended)


def rows(steps: list[Step]) -> list[tuple[Any, ...]]:
    """Return what matters: actor, tick, action, reward, terminated, truncated, and the letters of the flags."""
    found = []
    for step in steps:
        flags = "F" * step.is_first + "L" * step.is_last + "T" * step.is_terminal
        action = None if step.action is None else int(step.action)
        found.append((step.actor, step.tick, action, step.reward, step.terminated, step.truncated, flags))
    return found


def test_the_reward_is_that_of_the_next_observation() -> None:
    game = Game()
    game.feed(a=ActorTick(told(0), did(1)))
    game.feed(a=ActorTick(told(1, reward=0.1), did(2), reward=9.0, rewards=[RewardFrom("", 9.0, 1.0)]))
    game.feed(a=ActorTick(told(2, reward=0.2, terminated=True), None))
    steps = game.finish()
    assert rows(steps) == [
        ("a", 0, 1, 0.1, False, False, "F"),
        ("a", 1, 2, 0.2, True, False, ""),
        ("a", 2, None, None, False, False, "LT"),
    ]
    assert [list(step.other_rewards) for step in steps] == [[], [], []]


@pytest.mark.parametrize("how", [{"terminated": True}, {"truncated": True}, {"alive": False}], ids=repr)
def test_an_action_after_the_end_is_none(how: dict[str, bool]) -> None:
    """Some actors act to the last observation, too; nobody takes that."""
    game = Game()
    game.feed(a=ActorTick(told(0), did(1)))
    game.feed(a=ActorTick(told(1, **how), did(2), default_action=True))
    _, last = game.finish()
    assert (last.action, last.default_action, last.stand_in, last.is_last) == (None, False, False, True)


def test_without_the_environments_reward_it_is_the_mean_of_all() -> None:
    game = Game()
    game.feed(a=ActorTick(told(0), did(1), reward=0.5, rewards=[RewardFrom("b", 0.5, 1.0)]))
    game.feed(a=ActorTick(told(1), did(2)))
    game.feed(a=ActorTick(told(2, truncated=True), None))
    assert rows(game.finish()) == [
        ("a", 0, 1, 0.5, False, False, "F"),
        ("a", 1, 2, 0.0, False, True, ""),
        ("a", 2, None, None, False, False, "L"),
    ]


def test_rewards_of_others_are_kept_apart() -> None:
    game = Game()
    both = [RewardFrom("", 0.5, 1.0), RewardFrom("teacher", -1.0, 0.5)]
    game.feed(a=ActorTick(told(0), did(1), reward=0.0, rewards=both))
    game.feed(a=ActorTick(told(1, reward=0.5, terminated=True), None, reward=1.0, rewards=both[1:]))
    first, last = game.finish()
    assert (first.reward, first.other_rewards) == (0.5, both[1:])
    assert (last.reward, last.other_rewards) == (None, both[1:])


def test_they_are_kept_apart_from_a_reward_that_no_observation_tells() -> None:
    """As in a project of one's own."""
    game = Game()
    given = [RewardFrom("", 0.5, 1.0), RewardFrom("", 0.25, 1.0), RewardFrom("teacher", -1.0, 0.5)]
    game.feed(a=ActorTick(told(0), did(1), reward=0.1, rewards=given))
    game.feed(a=ActorTick(told(1, terminated=True), None))
    first, _ = game.finish()
    assert (first.reward, first.other_rewards) == (0.375, given[2:])


def test_what_acted_for_a_person_is_known() -> None:
    game = Game()
    for stand_in in (None, StandIn.BOT, StandIn.DEFAULT, StandIn.BOT):
        game.feed(a=ActorTick(told(0), did(1), stand_in=stand_in))
    steps = game.finish()
    assert [step.stand_in for step in steps] == [False, True, True, False]  # the last one is not a step of it
    assert [step.default_action for step in steps] == [False, False, True, False]


@pytest.mark.parametrize("action", [None, 3])
def test_a_trial_that_is_broken_off_is_truncated(action: int | None) -> None:
    game = Game()
    game.feed(a=ActorTick(told(0), did(1)))
    game.feed(a=ActorTick(told(1, reward=1.0), did(2)))
    game.feed(a=ActorTick(told(2, reward=2.0), None if action is None else did(action)))
    assert rows(game.finish(environment_ended=True)) == [
        ("a", 0, 1, 1.0, False, False, "F"),
        ("a", 1, 2, 2.0, False, True, ""),
        ("a", 2, None, None, False, False, "L"),
    ]


def test_an_actor_that_is_out_has_no_more_steps_and_ticks_stay_in_order() -> None:
    game = Game()
    game.feed(a=ActorTick(told(0), did(1)), b=ActorTick(told(0), did(2)))
    game.feed(a=ActorTick(told(1, reward=1.0), did(1)), b=ActorTick(told(1, reward=5.0, terminated=True), b""))
    gone = ActorTick(told(1, active=False, alive=False), b"")
    game.feed(a=ActorTick(told(2, reward=2.0), did(1)), b=gone)
    game.feed(a=ActorTick(told(3, reward=3.0, truncated=True), None), b=gone)
    assert rows(game.finish()) == [
        ("a", 0, 1, 1.0, False, False, "F"),
        ("b", 0, 2, 5.0, True, False, "F"),
        ("a", 1, 1, 2.0, False, False, ""),
        ("b", 1, None, None, False, False, "LT"),
        ("a", 2, 1, 3.0, False, True, ""),
        ("a", 3, None, None, False, False, "L"),
    ]


def test_one_that_is_out_without_a_word_was_cut_off() -> None:
    game = Game()
    game.feed(a=ActorTick(told(0), did(1)))
    game.feed(a=ActorTick(told(1, active=False, alive=False), None))
    assert rows(game.finish()) == [("a", 0, 1, 0.0, False, True, "F"), ("a", 1, None, None, False, False, "L")]


def test_turns_and_late_comers() -> None:
    game = Game()
    before = ActorTick(told(0, active=False, alive=False), b"")
    game.feed(a=ActorTick(told(0), did(1)), b=before)
    game.feed(a=ActorTick(told(1, active=False), b""), b=ActorTick(told(1), did(4)))
    game.feed(a=ActorTick(told(2, reward=7.0), None), b=ActorTick(told(2, reward=8.0, active=False), b""))
    assert rows(game.finish()) == [
        ("a", 0, 1, 0.0, False, False, "F"),
        ("a", 1, None, 7.0, False, True, ""),
        ("b", 1, 4, 8.0, False, True, "F"),
        ("a", 2, None, None, False, False, "L"),
        ("b", 2, None, None, False, False, "L"),
    ]


def test_where_ticks_are_missing_another_part_begins() -> None:
    game = Game()
    for tick in (0, 1, 5, 6):
        game.feed(tick, a=ActorTick(told(float(tick), reward=float(tick)), did(1)))
    assert rows(game.finish()) == [
        ("a", 0, 1, 1.0, False, True, "F"),
        ("a", 1, None, None, False, False, "L"),
        ("a", 5, 1, 6.0, False, True, "F"),
        ("a", 6, None, None, False, False, "L"),
    ]


def test_payloads_of_other_projects_are_bytes_and_the_environment_ends_them() -> None:
    builder = StepBuilder(lambda name, first: payloads_of(name, "robot", first, None), "trial")
    steps = builder.feed(Tick(0, 0, {"a": ActorTick(b"o0", b"a0", reward=1.0)}))
    steps += builder.feed(Tick(1, 0, {"a": ActorTick(b"o1", None)}))
    steps += builder.finish(environment_ended=True)
    assert [(step.observation.value, step.action, step.reward) for step in steps] == [
        (b"o0", b"a0", 1.0),
        (b"o1", None, None),
    ]
    assert [(step.terminated, step.is_terminal) for step in steps] == [(True, False), (False, True)]


def test_unavailable_actors_and_default_actions() -> None:
    game = Game()
    game.feed(a=ActorTick(told(0), None), b=ActorTick(told(0), did(3), default_action=True))
    game.feed(a=ActorTick(told(1), None), b=ActorTick(told(1), None))
    steps = game.finish()
    assert rows(steps)[:2] == [("a", 0, None, 0.0, False, True, "F"), ("b", 0, 3, 0.0, False, True, "F")]
    assert [step.default_action for step in steps] == [False, True, False, False]


def test_errors_name_trial_tick_and_actor() -> None:
    game = Game()
    game.feed(a=ActorTick(told(0), did(1)))
    with pytest.raises(RemoteProtocolError, match="trial 'trial', tick 1: observation of 'a': 1 bytes"):
        game.feed(a=ActorTick(b"\xff", did(1)))
    with pytest.raises(SpaceError, match="trial 'trial', tick 2, actor 'a': observation: expected it in the field"):
        game.feed(2, a=ActorTick(b"", did(1)))
    with pytest.raises(DataLossError, match="trial 'trial', tick 3, actor 'a': expected an observation"):
        game.feed(3, a=ActorTick(None, did(1)))


def test_no_more_than_two_ticks_are_held() -> None:
    game = Game()
    for tick in range(50):
        game.feed(a=ActorTick(told(float(tick)), did(1)))
        assert len(game.steps) == max(0, tick - 1)
