"""The sharpest edges of the reference, as cases; where it misbehaves, what we do instead."""

from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.trial import ENVIRONMENT, TimerKind

from .harness import CLIENT, Play, actor, kind_of, make_params, play_ticks

S = TrialState


def test_case_05_one_optional_actor_that_never_comes() -> None:
    params = make_params(actor("a", optional=True, initial_connection_timeout=0.5, default=b"d"))
    play = Play(params).begin()
    assert play.connected == [0]
    play.pass_time(0.5)
    # The environment is started all the same, and the trial runs freely with the default action.
    assert play.connected == [0, ENVIRONMENT]
    play.environment_ready()
    play.clear()
    for tick in range(3):
        play.observe()
        action_set = play.take_set()
        assert (action_set.tick_id, list(action_set.actions), list(action_set.unavailable_actors)) == (tick, [b"d"], [])
    assert play.kinds(0) == []


def test_case_06_a_silent_environment() -> None:
    play = Play().begin().ready(0, 1)
    assert play.connected == [0, 1, ENVIRONMENT]
    play.soft()
    assert play.machine.state == S.PENDING
    play.hard()
    assert play.states == [S.INITIALIZING, S.PENDING, S.ENDED]
    (sample,) = play.samples
    assert (sample.info.tick_id, sample.info.state) == (0, S.ENDED)
    assert not sample.HasField("observations")
    assert [action.tick_id for action in sample.actions] == [-2, -2]


def test_case_07_one_step() -> None:
    play = Play(make_params(max_steps=1)).start()
    play.observe()
    play.act(0, 1)
    assert play.take_set().tick_id == 0
    play.reward(ENVIRONMENT, "a", (1, 1))
    play.observe()
    play.reward(ENVIRONMENT, "a", (1, 1))
    play.clear()
    play.act(0, 1)
    last, action_set = play.take(ENVIRONMENT)
    assert kind_of(last) == "LAST"
    assert action_set.action_set.tick_id == 1
    play.observe()
    reward, last, observation = play.take(0)
    assert [kind_of(m) for m in (reward, last, observation)] == ["NORMAL/reward", "LAST", "NORMAL/observation"]
    assert observation.observation.tick_id == 2
    play.ack(ENVIRONMENT, 0, 1)
    assert play.machine.tick_id == 2
    assert [sample.info.state for sample in play.samples] == [S.RUNNING, S.TERMINATING, S.ENDED]
    assert play.states == [1, 2, 3, 4, 5]
    assert play.end_details(ENVIRONMENT) is None
    assert play.end_details(0) is None


def test_case_08_soft_end_within_a_tick() -> None:
    play = Play().start()
    play.observe()
    play.soft()
    assert play.machine.state == S.RUNNING
    play.act(0)
    assert play.kinds(ENVIRONMENT) == []
    play.act(1)
    assert play.kinds(ENVIRONMENT) == ["LAST", "NORMAL/action_set"]
    assert play.machine.state == S.TERMINATING
    play.clear()
    play.observe()
    assert play.kinds(0) == ["LAST", "NORMAL/observation"]


def test_case_09_answers_to_the_final_observation() -> None:
    play = Play().start()
    play.observe()
    play.soft()
    play.act(0, 1)
    play.observe()
    play.clear()
    play.act(0, 1)
    assert play.kinds(ENVIRONMENT) == []
    assert play.machine.counters["action_out_of_season"] == 2
    play.ack(0, 1, ENVIRONMENT)
    assert play.is_over()


def test_case_10_a_set_after_the_final_one() -> None:
    play = Play().start()
    play_ticks(play, 1)
    play.say(ENVIRONMENT, 3)
    play.observe()
    play.clear()
    assert play.observe() == []
    assert play.machine.tick_id == 1
    play.ack(ENVIRONMENT, 0, 1)
    assert [play.end_details(index) for index in (ENVIRONMENT, 0, 1)] == [None, None, None]


def test_case_11_each_actor_has_its_own_response_timer() -> None:
    params = make_params(
        actor("a", optional=True, response_timeout=0.4, default=b"D"),
        actor("b", optional=True, response_timeout=1.0),
        actor("c"),
    )
    play = Play(params).start()
    play.observe()
    play.act(2)
    play.pass_time(0.6)
    play.act(0)
    play.pass_time(0.39)
    assert play.kinds(ENVIRONMENT) == []
    play.pass_time(0.01)
    action_set = play.take_set()
    assert list(action_set.actions) == [b"x0", b"", b"x2"]
    assert list(action_set.unavailable_actors) == [1]
    play.act(1)
    assert play.kinds(ENVIRONMENT) == []
    assert play.machine.counters["action_late"] == 1


def test_case_12_a_late_action_never_counts_for_somebody_else() -> None:
    play = Play(make_params(actor("a", optional=True, response_timeout=0.3), actor("b"))).start()
    play.observe()
    play.pass_time(0.6)
    play.act(0)
    assert play.kinds(ENVIRONMENT) == []
    assert play.machine.state == S.RUNNING
    play.act(1)
    action_set = play.take_set()
    assert list(action_set.actions) == [b"x0", b"x1"]
    assert list(action_set.unavailable_actors) == []


def test_case_13_one_who_acted_and_left_does_not_count_for_another() -> None:
    play = Play(make_params(actor("a", optional=True), actor("b"), actor("c"))).start()
    play.observe()
    play.act(0)
    play.lose(0)
    play.act(1)
    assert play.kinds(ENVIRONMENT) == []
    play.act(2)
    action_set = play.take_set()
    assert list(action_set.actions) == [b"", b"x1", b"x2"]
    assert list(action_set.unavailable_actors) == [0]
    play.observe()
    (sample,) = play.samples
    # What it wanted to do is kept, and marked as not done.
    assert [(a.tick_id, a.content) for a in sample.actions] == [(-2, b"x0"), (-1, b"x1"), (-1, b"x2")]


def test_case_14_rewards_for_other_ticks() -> None:
    play = play_ticks(Play().start(), 2)
    play.observe()
    play.act(0)
    assert [sample.info.tick_id for sample in play.samples] == [0, 1]
    for tick_id in (2, 1, 0, 3, -2):
        play.reward(ENVIRONMENT, "a", (tick_id, 1), tick_id=tick_id)
    first, second = play.samples[2:]
    for tick_id, sample in ((1, first), (0, second)):
        assert (sample.info.tick_id, sample.info.out_of_sync, sample.info.state) == (tick_id, True, 0)
        assert sample.info.timestamp == play.wall_ns
        assert [reward.tick_id for reward in sample.rewards] == [tick_id]
        assert not sample.actions
    play.act(1)
    play.clear()
    play.observe()
    reward, _ = play.take(0)
    assert (reward.reward.tick_id, reward.reward.value) == (2, 2)
    assert [reward.tick_id for reward in play.samples[4].rewards] == [2]
    assert play.machine.counters["reward_of_wrong_tick"] == 2


def test_case_15_a_reward_is_a_weighted_mean() -> None:
    play = Play(make_params(actor("x"), actor("y"))).start()
    play.observe()
    play.act(0, 1)
    play.clear()
    play.reward(ENVIRONMENT, "x", (1, 1), (8, 1), (10, 0))
    play.reward(1, "cls.x", (11, -1))
    assert play.kinds(0) == []
    play.observe()
    message, observation = play.take(0)
    assert kind_of(observation) == "NORMAL/observation"
    reward = message.reward
    assert (reward.tick_id, reward.receiver_name, reward.value) == (0, "x", 4.5)
    assert [(s.sender_name, s.value) for s in reward.sources] == [("env", 1), ("env", 8), ("env", 10), ("y", 11)]


@pytest.mark.parametrize(
    ("pattern", "receivers"),
    [
        ("*", {"a": 0, "b.c": 1, "d": 2}),
        ("one.*", {"a": 0, "b.c": 1}),
        ("one.a", {"a": 0}),
        ("one.b.c", {"b.c": 1}),
        ("b.c", {"b.c": 1}),
        ("two.a", {}),
        ("*.*", {}),
        ("*.a", {}),
        ("bogus", {}),
        ("", {}),
        ("env", {"env": ENVIRONMENT}),
    ],
)
def test_case_16_receivers(pattern: str, receivers: dict[str, int]) -> None:
    play = Play(make_params(actor("a", "one"), actor("b.c", "one"), actor("d", "two"))).start()
    play.observe()
    play.clear()
    play.tell(0, pattern)
    for name, index in {"env": ENVIRONMENT, "a": 0, "b.c": 1, "d": 2}.items():
        got = play.take(index)
        if name in receivers:
            (message,) = got
            assert message.state == 1
            assert (message.message.receiver_name, message.message.sender_name) == (name, "a")
            assert message.message.tick_id == 0
            assert message.message.payload.value == b"hello"
        else:
            assert got == []
    play.hard()
    (kept,) = play.samples[-1].messages
    assert (kept.tick_id, kept.sender_name, kept.receiver_name) == (-1, "a", pattern)


def test_case_17_a_message_to_one_who_has_not_joined() -> None:
    play = Play(make_params(actor("a"), actor("c", endpoint=CLIENT))).begin().ready(0)
    play.tell(0, "c", b"first")
    play.tell(0, "*", b"second")
    assert play.kinds(0) == ["NORMAL/init_input", "NORMAL/message"]
    play.join("c")
    init, first, second = play.take(1)
    assert kind_of(init) == "NORMAL/init_input"
    assert [m.message.payload.value for m in (first, second)] == [b"first", b"second"]
    assert {m.message.receiver_name for m in (first, second)} == {"c"}


@pytest.mark.parametrize("bad", [{"tick_id": 5}, {"tick_id": 0}, {"actors_map": [0]}, {"actors_map": [0, 2]}])
def test_case_18_a_bad_observation_set(bad: dict[str, Any]) -> None:
    play = play_ticks(Play().start(), 1)
    play.clear()
    (note,) = play.observe(**bad)
    assert note in play.notes
    assert play.observe(**bad) == []
    assert play.machine.tick_id == 0
    assert play.samples == []
    assert sum(play.machine.counters.values()) == 2
    play.observe(1)
    assert play.machine.tick_id == 1
    assert [sample.info.tick_id for sample in play.samples] == [0]
    assert play.kinds(0) == ["NORMAL/observation"]


def test_case_20_an_optional_actor_that_comes_too_late() -> None:
    params = make_params(actor("a"), actor("late", optional=True, initial_connection_timeout=0.25))
    play = Play(params).begin().ready(0)
    play.pass_time(0.3)
    play.environment_ready()
    play.clear()
    play.ready(1)
    play.observe()
    play.act(1)
    play.act(0)
    action_set = play.take_set()
    assert list(action_set.unavailable_actors) == [1]
    play.soft()
    play.observe()
    play.act(0)
    play.observe()
    assert not play.has_timer(TimerKind.ACK, 1)
    play.ack(ENVIRONMENT, 0)
    assert play.is_over()
    assert play.kinds(1) == ["END"]


def test_case_03_hard_end_while_waiting_for_an_actor() -> None:
    play = Play().begin().ready(0)
    play.hard("no more")
    assert play.states == [S.INITIALIZING, S.PENDING, S.ENDED]
    assert play.end_details(0) == "no more"
    assert play.end_details(1) == "no more"
    assert ENVIRONMENT not in play.connected


def test_case_04_each_actor_has_its_own_wait() -> None:
    params = make_params(actor("a", endpoint=CLIENT, initial_connection_timeout=0.25), actor("b", endpoint=CLIENT))
    play = Play(params).begin()
    play.pass_time(0.3)
    # Better than to wait for b indefinitely: a required actor that did not come ends the trial now.
    assert play.is_over()
    with pytest.raises(FailedPreconditionError):
        play.machine.slot_for(actor_name="b")
