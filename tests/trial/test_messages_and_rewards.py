from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import Reward, RewardSource
from trio_cogment.base.shared_message import SharedReward
from trio_cogment.trial import ENVIRONMENT, TrialRules
from trio_cogment.trial import _relayed as relayed
from trio_cogment.trial._relayed import Given

from .harness import CLIENT, LAST, Play, actor, kind_of, make_params, play_ticks


def test_the_environment_is_addressed_by_its_exact_name_alone() -> None:
    play = Play().start()
    play.tell(0, "*")
    play.tell(0, "cls.*")
    play.tell(0, "cls.env")
    assert play.kinds(ENVIRONMENT) == []
    play.tell(0, "env", b"you")
    (message,) = play.take(ENVIRONMENT)
    data = message.message
    assert (data.sender_name, data.receiver_name, data.payload.value) == ("a", "env", b"you")
    play.clear()
    play.tell(ENVIRONMENT, "*")
    (message,) = play.take(0)
    assert message.message.sender_name == "env"
    play.tell(ENVIRONMENT, "env")
    assert play.kinds(ENVIRONMENT) == ["NORMAL/message"]


def test_messages_carry_the_current_tick() -> None:
    play = play_ticks(Play().start(), 3)
    play.clear()
    play.tell(0, "b", tick_id=2)
    assert play.take(1)[0].message.tick_id == 2
    for tick_id in (1, 3, -2):
        play.tell(0, "b", tick_id=tick_id)
    assert play.kinds(1) == []
    assert play.machine.counters["message_of_wrong_tick"] == 3


def test_a_message_before_the_environment_is_there_is_held() -> None:
    play = Play(make_params(actor("a"), actor("c", endpoint=CLIENT))).begin().ready(0)
    play.tell(0, "env", b"early")
    play.join("c")
    play.tell(0, "env", b"still early")
    assert play.kinds(ENVIRONMENT) == ["NORMAL/init_input"]
    play.environment_ready()
    assert [m.message.payload.value for m in play.take(ENVIRONMENT)] == [b"early", b"still early"]


def test_held_messages_are_bounded_in_size_too() -> None:
    play = Play(make_params(actor("a"), actor("c", endpoint=CLIENT)), rules=TrialRules(max_held_bytes=1000))
    play.begin().ready(0)
    for size in (5000, 1, 1):
        play.tell(0, "c", bytes(size))
    play.tell(0, "env", bytes(400))
    play.tell(0, "env", bytes(400))
    play.tell(0, "env", bytes(400))
    assert play.machine.counters["message_not_held"] == 3
    play.join("c")
    # One of any size is kept.
    assert [len(m.message.payload.value) for m in play.take(1)[1:]] == [5000]
    play.environment_ready()
    assert [len(m.message.payload.value) for m in play.take(ENVIRONMENT)[-2:]] == [400, 400]


def test_held_messages_are_bounded() -> None:
    play = Play(make_params(actor("a"), actor("c", endpoint=CLIENT)), rules=TrialRules(max_held_messages=2))
    play.begin().ready(0)
    for number in range(5):
        play.tell(0, "c", b"%d" % number)
    assert play.machine.counters["message_not_held"] == 3
    assert len(play.notes) == 1
    play.join("c")
    assert [m.message.payload.value for m in play.take(1)[1:]] == [b"0", b"1"]


def test_a_message_to_the_lost_harms_nobody() -> None:
    play = Play(make_params(actor("a"), actor("b", optional=True))).start()
    play.observe()
    play.lose(1)
    play.clear()
    play.tell(0, "b")
    play.tell(0, "*")
    assert play.kinds(0) == ["NORMAL/message"]
    assert play.machine.counters["message_to_the_lost"] == 2
    assert not play.is_over()


def test_messages_are_passed_on_until_the_end() -> None:
    play = play_ticks(Play().start(), 1)
    play.say(ENVIRONMENT, LAST)
    play.observe()
    play.ack(0)
    play.clear()
    play.tell(0, "b")
    play.tell(ENVIRONMENT, "a")
    assert play.kinds(1) == ["NORMAL/message"]
    assert play.kinds(0) == ["NORMAL/message"]
    play.ack(1, ENVIRONMENT)
    play.clear()
    play.tell(0, "b")
    assert play.kinds(1) == []


def test_rewards_come_right_before_the_next_observation() -> None:
    play = Play().start()
    play.reward(ENVIRONMENT, "a", (1, 1))
    play.observe()
    reward, observation = play.take(0)
    assert [kind_of(m) for m in (reward, observation)] == ["NORMAL/reward", "NORMAL/observation"]
    assert reward.reward.tick_id == 0
    assert play.kinds(1) == ["NORMAL/observation"]
    play.reward(ENVIRONMENT, "*", (2, 1), tick_id=0)
    play.reward(1, "a", (math.nan, 1))
    assert play.kinds(0) == []
    play.observe()
    (reward, _), (other, _) = play.take(0), play.take(1)
    assert reward.reward.tick_id == other.reward.tick_id == 0
    assert math.isnan(reward.reward.value)
    assert [s.sender_name for s in reward.reward.sources] == ["env", "b"]
    assert other.reward.value == 2
    play.observe()
    assert play.kinds(0) == ["NORMAL/observation"]


def test_rewards_that_reach_nobody() -> None:
    play = Play(make_params(actor("a", optional=True), actor("b"))).start()
    play.observe()
    play.reward(ENVIRONMENT, "env", (1, 1))
    play.reward(ENVIRONMENT, "nobody", (1, 1))
    play.reward(ENVIRONMENT, "b")
    play.reward(ENVIRONMENT, "nobody")  # the first fault that is found is told, and no other
    play.lose(0)
    play.reward(ENVIRONMENT, "*", (1, 1))
    assert play.machine.counters["reward_to_nobody"] == 2
    assert play.machine.counters["reward_without_source"] == 2
    play.clear()
    play.observe()
    assert play.kinds(0) == []
    assert play.kinds(1) == ["NORMAL/reward", "NORMAL/observation"]


@pytest.mark.parametrize("collect_samples", [True, False])
def test_rewards_of_past_ticks_are_not_delivered(collect_samples: bool) -> None:
    play = play_ticks(Play(collect_samples=collect_samples).start(), 3)
    play.clear()
    play.reward(ENVIRONMENT, "a", (1, 1), tick_id=1)
    assert play.machine.counters["reward_of_past_tick"] == 1
    play.observe()
    assert play.kinds(0) == ["NORMAL/observation"]


def test_rewards_around_the_final_observation() -> None:
    play = play_ticks(Play().start(), 1)
    play.say(ENVIRONMENT, LAST)
    play.reward(ENVIRONMENT, "a", (1, 1))
    play.clear()
    play.observe()
    assert play.kinds(0) == ["NORMAL/reward", "LAST", "NORMAL/observation"]
    play.reward(ENVIRONMENT, "*", (5, 1))
    play.lose(1)
    play.ack(0)
    assert play.kinds(0) == []
    play.ack(ENVIRONMENT)
    reward, end = play.take(0)
    assert (reward.reward.tick_id, reward.reward.value, kind_of(end)) == (1, 5, "END")


def test_all_that_is_said_in_one_tick_is_bounded_in_size() -> None:
    play = Play(rules=TrialRules(max_said_bytes_per_tick=1000)).start()
    play.observe()
    play.clear()
    play.tell(0, "b", bytes(600))
    play.tell(1, "b", bytes(600))
    play.tell(0, "b", b"small")  # what is lost counts, too: who goes on is not rewarded
    assert play.machine.counters["too_much_said"] == 2
    assert [len(m.message.payload.value) for m in play.take(1)] == [600]
    play.act(0, 1)
    play.observe()
    play.clear()
    play.tell(1, "b", bytes(600))
    assert [len(m.message.payload.value) for m in play.take(1)] == [600]


def test_each_source_of_a_reward_is_something_said() -> None:
    play = Play(rules=TrialRules(max_said_per_tick=3)).start()
    play.observe()
    play.clear()
    play.reward(0, "b", (1, 1), (2, 1), (3, 1))
    play.tell(0, "b")
    assert play.machine.counters["too_much_said"] == 1
    play.observe()
    (reward, _) = play.take(1)
    assert [source.value for source in reward.reward.sources] == [1, 2, 3]
    play.reward(0, "b", (1, 1), (2, 1), (3, 1), (4, 1))
    play.observe()
    assert play.kinds(1) == ["NORMAL/observation"]
    assert play.machine.counters["too_much_said"] == 2


def test_who_says_too_much_in_one_tick_loses_the_rest() -> None:
    play = Play(rules=TrialRules(max_said_per_tick=3)).start()
    play.observe()
    play.clear()
    for _ in range(2):
        play.tell(0, "b")
        play.reward(0, "b", (1, 1))
    assert play.machine.counters["too_much_said"] == 1
    play.tell(1, "b")
    assert play.kinds(1) == ["NORMAL/message"] * 3
    play.observe()
    (reward, _) = play.take(1)
    assert len(reward.reward.sources) == 1
    play.tell(0, "b")
    play.reward(0, "b", (1, 1))
    play.tell(0, "b")
    play.tell(0, "b")
    assert play.machine.counters["too_much_said"] == 2
    assert play.kinds(1) == ["NORMAL/message"] * 2


def test_rewards_without_samples() -> None:
    play = Play(collect_samples=False).start()
    play.observe()
    play.clear()
    play.reward(0, "b", (1, 1))
    play.observe()
    assert play.kinds(1) == ["NORMAL/reward", "NORMAL/observation"]


@pytest.mark.parametrize(
    ("sources", "value"),
    [
        ([(1, 1), (8, 1), (10, 0), (11, -1)], 4.5),
        ([(1, 3), (5, 1)], 2),
        ([(7, 0)], 0),
        ([(7, -1)], 0),
        ([(math.nan, 1)], math.nan),
        ([(math.nan, 0), (2, 1)], 2),
        ([(2, math.nan)], 0),
        ([(math.inf, 1)], math.inf),
        ([(3e38, 3e38), (3e38, 3e38)], pytest.approx(3e38)),
    ],
)
def test_merged_rewards(sources: list[tuple[float, float]], value: float) -> None:
    reward = merged(sources)
    assert (reward.tick_id, reward.receiver_name, len(reward.sources)) == (3, "x", len(sources))
    assert reward.value == value or (math.isnan(value) and math.isnan(reward.value))


def merged(sources: list[tuple[float, float]]) -> Reward:
    given = Given([RewardSource(value=value, confidence=confidence) for value, confidence in sources], 0)
    effect = relayed.reward(0, "x", 3, [given])
    assert isinstance(effect.shared, SharedReward)
    shown, found = effect.shared.value, effect.message.reward
    assert shown == found.value or (math.isnan(shown) and math.isnan(found.value))
    assert isinstance(found, Reward)
    return found


FLOATS = st.floats(width=32)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=6))
def test_any_floats_are_merged(sources: list[tuple[float, float]]) -> None:
    assert len(merged(sources).sources) == len(sources)


def test_rewards_of_an_actor_that_is_gone_are_not_kept() -> None:
    play = Play(make_params(actor("a"), actor("b", optional=True))).start()
    play.observe()
    play.lose(1)
    for _ in range(3):
        play.reward(0, "*", (1.0, 1.0))
    assert [len(one.rewards) for one in play.machine.actors] == [3, 0]


def test_as_much_as_may_be_said_in_one_tick_is_passed_on() -> None:
    play = Play().start()
    play.tell(0, "b", bytes(600))
    size = play.machine.said_bytes
    for most, heard in ((size, 1), (size - 1, 0)):
        play = Play(rules=TrialRules(max_said_bytes_per_tick=most)).start()
        play.tell(0, "b", bytes(600))
        assert len(play.take(1)) == heard


def test_all_that_were_rewarded_after_the_final_observation_learn_of_it() -> None:
    play = play_ticks(Play(make_params(actor("a"), actor("b"), actor("c"))).start(), 1)
    play.say(ENVIRONMENT, LAST)
    play.observe()
    play.reward(ENVIRONMENT, "b", (2, 1))
    play.reward(ENVIRONMENT, "c", (3, 1))
    play.clear()
    play.ack(ENVIRONMENT, 0, 1, 2)
    assert [play.kinds(index) for index in range(3)] == [["END"], ["NORMAL/reward", "END"], ["NORMAL/reward", "END"]]


def test_rewards_of_an_actor_that_goes_are_given_up() -> None:
    play = Play(make_params(actor("a"), actor("b", optional=True))).start()
    play.observe()
    play.reward(0, "*", (1, 1))
    play.lose(1)
    assert [len(one.rewards) for one in play.machine.actors] == [1, 0]
