"""Samples that are shared with a data log of this process say what messages would."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.trial.harness import actor, make_params
from trio_cogment.api.common_pb2 import ActorRunTrialOutput, EndOfTrial, Message, Reward, RewardSource, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import EnvRunTrialOutput, ObservationSet
from trio_cogment.base.shared_message import SharedAction, SharedObservationSet, SharedReward, SharedSample
from trio_cogment.trial._samples import SampleLog

ACTORS = 2
PARAMS = make_params(*(actor(f"a{index}") for index in range(ACTORS)))

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.booleans()),
        st.tuples(st.just("action"), st.integers(0, ACTORS - 1), st.binary(max_size=3), st.booleans()),
        st.tuples(st.just("reward"), st.floats(width=32, allow_nan=False), st.booleans()),
        st.tuples(st.just("past reward"), st.integers(0, 4)),
        st.tuples(st.just("void"), st.integers(0, ACTORS - 1)),
        st.tuples(st.just("absence"), st.integers(0, ACTORS - 1)),
        st.tuples(st.just("message")),
        st.tuples(st.just("event")),
    ),
    max_size=30,
)


def reward_of(value: float, tick_id: int = -1) -> SharedReward:
    source = RewardSource(sender_name="env", value=value, confidence=1)
    return SharedReward(EnvRunTrialOutput, tick_id, "a0", source.value, [source])


def play(steps: Any, *, shares: bool, ends: bool) -> tuple[list[DatalogSample], int]:
    """Return all samples as messages, and how many of them were shared."""
    log = SampleLog(PARAMS, 5, shares=shares)
    found: list[DatalogSample | SharedSample] = []
    tick = 0

    def begin() -> None:
        observations = SharedObservationSet(-1, 10 * tick, [b"o%d" % tick, b"p"], [0, 1])
        log.begin_tick(tick, 7 + tick, observations, TrialState.RUNNING)
        found.extend(log.leaving())

    begin()
    for kind, *given_ in steps:
        if kind == "tick":
            tick += 1
            if given_[0]:
                begin()
            else:
                log.begin_tick(tick, 7, ObservationSet(observations=[b"m"], actors_map=[0, 0]), TrialState.RUNNING)
                found.extend(log.leaving())
        elif kind == "action":
            index, content, shared = given_
            action: Any = SharedAction(tick, 3, content)
            if not shared:
                message: Any = ActorRunTrialOutput()
                action.fill(message.action)
                action = message.action
            log.take_action(index, action)
        elif kind == "reward":
            value, shared = given_
            reward: Any = reward_of(value)
            if not shared:
                filled = Reward()
                reward.fill(filled)
                reward = filled
            log.take_reward(reward)
        elif kind == "past reward":
            out_of_sync = log.take_past_reward(reward_of(2, max(0, tick - given_[0])), 9)
            found += [] if out_of_sync is None else [out_of_sync]
        elif kind == "void":
            log.void_action(given_[0])
        elif kind == "absence":
            log.take_absences([given_[0]], [])
        elif kind == "message":
            log.take_message(Message(sender_name="env", receiver_name="a0"))
        else:
            log.note_event("something")
    found.extend(log.flush(EndOfTrial() if ends else None))
    shared_ones = sum(isinstance(sample, SharedSample) for sample in found)
    return [sample.whole() if isinstance(sample, SharedSample) else sample for sample in found], shared_ones


@given(STEPS, st.booleans())
def test_shared_samples_say_what_messages_say(steps: Any, ends: bool) -> None:
    plain, none = play(steps, shares=False, ends=ends)
    shared, _ = play(steps, shares=True, ends=ends)
    assert none == 0
    assert shared == plain


def test_a_usual_tick_is_shared() -> None:
    steps = [("action", 0, b"x", True), ("action", 1, b"y", True), ("reward", 1.0, True), ("tick", True)] * 4
    _, shared = play(steps, shares=True, ends=True)
    assert shared == 4


def test_nothing_is_shared_where_fields_are_excluded_or_more_ticks_are_held_back() -> None:
    for params in (
        make_params(actor("a0"), actor("a1"), exclude=["rewards"]),
        make_params(actor("a0"), actor("a1"), nb_buffered_ticks=5),
    ):
        log = SampleLog(params, 5, shares=True)
        log.begin_tick(0, 5, SharedObservationSet(-1, 0, [b"o"], [0, 0]), TrialState.RUNNING)
        for index in range(ACTORS):
            log.take_action(index, SharedAction(0, 3, b"x"))
        assert all(type(sample) is DatalogSample for sample in log.flush(None))
