"""Ticks at a rate, actors that are observed every n-th tick, and actions that are taken again."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.environment_pb2 import EnvRunTrialOutput, ObservationSet
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.outcome import EndCause
from trio_cogment.trial import ENVIRONMENT, ArmTimer, Received, Timer, TimerFired, TimerKind, validate_params
from trio_cogment.trial._events import NO_PARTICIPANT
from trio_cogment.trial._trial_table import Phase

from .harness import LAST, NORMAL, Play, actor, make_params

HZ = 4.0
PERIOD = 1 / HZ
TICK = Timer(TimerKind.TICK, NO_PARTICIPANT)


def at_rate(*actors: object, hz: float = HZ, **more: object) -> Play:
    """Return a trial at a rate that has had its first observations."""
    params = make_params(*actors, **more)  # type: ignore[arg-type]  # actors are parameters of actors
    params.environment.tick_hz = hz
    play = Play(params).start()
    play.clear()
    play.observe()
    return play


def sets(play: Play) -> list[tuple[int, list[bytes], list[int]]]:
    """Return the action sets that the environment has got, and forget them."""
    found = [message.action_set for message in play.sent[ENVIRONMENT] if message.HasField("action_set")]
    play.sent[ENVIRONMENT].clear()
    return [(one.tick_id, list(one.actions), list(one.unavailable_actors)) for one in found]


def observed(play: Play, index: int) -> list[int]:
    """Return the ticks that an actor has been shown, and forget them."""
    found = [message.observation.tick_id for message in play.sent[index] if message.HasField("observation")]
    play.sent[index].clear()
    return found


def counts(play: Play) -> tuple[int, int, int]:
    machine = play.machine
    return machine.missed_ticks, machine.late_actions, machine.absent_actions


def test_a_tick_ends_at_its_time_and_not_before() -> None:
    play = at_rate(actor("a"), actor("b"))
    play.act(0, 1)
    play.pass_time(PERIOD - 0.001)
    assert sets(play) == []
    play.pass_time(0.001)
    assert sets(play) == [(0, [b"x0", b"x1"], [])]
    assert counts(play) == (0, 0, 0)


def test_who_has_not_acted_takes_part_with_the_default_action_or_none() -> None:
    play = at_rate(actor("a", default=b"D"), actor("b"), actor("c"))
    play.act(2)
    play.pass_time(PERIOD)
    assert sets(play) == [(0, [b"D", b"", b"x2"], [1])]
    assert play.phase() is Phase.RUNNING, "a required actor that is late does not end the trial"
    assert counts(play) == (0, 0, 2)


def test_or_with_its_last_action() -> None:
    play = at_rate(actor("a", default=b"D", hold_action=True))
    play.pass_time(PERIOD)
    play.observe()
    play.act(0, content=b"first")
    play.pass_time(PERIOD)
    for _ in range(2):
        play.observe()
        play.pass_time(PERIOD)
    play.hard()
    assert [actions for _, actions, _ in sets(play)] == [[b"D"], [b"first"], [b"first"], [b"first"]]
    assert [list(sample.held_actors) for sample in play.samples] == [[], [], [0], [0]]
    assert [list(sample.default_actors) for sample in play.samples] == [[0], [], [], []]
    assert [(one.actions[0].tick_id, one.actions[0].content) for one in play.samples] == [
        (-2, b""), (-1, b"first"), (1, b"first"), (1, b"first")
    ]  # fmt: skip
    assert counts(play) == (0, 0, 3)


def test_the_clock_does_not_drift() -> None:
    hz = 60.0
    play = at_rate(actor("a", default=b""), hz=hz)
    began = play.now
    for tick in range(1, 601):
        assert play.timers[TICK] == began + tick / hz
        play.pass_time(play.timers[TICK] - play.now)
        play.now += 0.004  # the environment computes
        play.observe()
    assert play.machine.tick_id == 600
    assert counts(play)[0] == 0


def test_a_late_environment_misses_ticks_which_are_not_bunched_up() -> None:
    play = at_rate(actor("a", default=b""))
    began = play.now
    play.pass_time(PERIOD)
    play.pass_time(2.5 * PERIOD)
    assert [tick for tick, _, _ in sets(play)] == [0], "no tick has anything to end with"
    play.observe()
    assert play.timers[TICK] == began + 4 * PERIOD
    assert counts(play)[0] == 2
    play.pass_time(0.5 * PERIOD)
    assert [tick for tick, _, _ in sets(play)] == [1]
    play.observe()
    assert play.timers[TICK] == began + 5 * PERIOD
    play.hard()
    assert "ticks missed, because the observations came late: 2" in play.samples[0].info.special_events
    assert play.samples[-1].info.special_events[-1] == (
        "at 4 Hz: ticks missed: 2; late actions, dropped: 0; actions made up: 2"
    )


def test_a_timer_that_fires_late_costs_no_tick_that_is_still_to_come() -> None:
    play = at_rate(actor("a", default=b""))
    began, machine = play.now, play.machine
    late = began + 1.75 * PERIOD
    # Not by the account, which holds that clocks are right.
    machine.handle(TimerFired(TICK), late, play.wall_ns)
    shown = ObservationSet(tick_id=-1, observations=[b"o"], actors_map=[0])
    effects = machine.handle(Received(ENVIRONMENT, EnvRunTrialOutput(state=NORMAL, observation_set=shown)), late, 0)
    assert [effect.deadline for effect in effects if isinstance(effect, ArmTimer)] == [began + 2 * PERIOD]
    assert counts(play)[0] == 0


def test_a_late_action_is_counted_once_and_never_taken_for_a_later_tick() -> None:
    play = at_rate(actor("a", default=b"D"), actor("b"))
    play.act(1)
    play.pass_time(PERIOD)
    play.act(0, tick_id=0)
    play.act(0, tick_id=0)
    play.observe()
    play.act(0, tick_id=0)
    assert counts(play) == (0, 1, 1)
    assert play.machine.counters["action_late"] == 1
    play.act(0, tick_id=1, content=b"in time")
    play.act(1)
    play.pass_time(PERIOD)
    assert sets(play) == [(0, [b"D", b"x1"], []), (1, [b"in time", b"x1"], [])]


def test_a_late_action_that_comes_in_the_next_tick() -> None:
    play = at_rate(actor("a", default=b"D"))
    play.pass_time(PERIOD)
    play.observe()
    play.act(0, tick_id=0)
    play.pass_time(PERIOD)
    assert [actions for _, actions, _ in sets(play)] == [[b"D"], [b"D"]]
    assert counts(play) == (0, 1, 2)


@pytest.mark.parametrize("tick_id", [-2, 1, 7])
def test_an_action_for_a_tick_that_is_none_is_not_late(tick_id: int) -> None:
    play = at_rate(actor("a"))
    play.act(0, tick_id=tick_id)
    assert counts(play) == (0, 0, 0)
    assert play.machine.counters["action_of_wrong_tick"] == 1


def test_every_nth_tick_an_actor_is_shown_and_its_action_goes_on() -> None:
    play = Play(make_params(actor("fast"), actor("slow", observe_every=3))).start()
    play.clear()
    for tick in range(7):
        play.observe()
        play.act(0)
        if tick % 3 == 0:
            play.act(1, content=b"s%d" % tick)
    assert observed(play, 0) == list(range(7))
    assert observed(play, 1) == [0, 3, 6]
    assert [actions[1] for _, actions, _ in sets(play)] == [b"s0", b"s0", b"s0", b"s3", b"s3", b"s3", b"s6"]
    play.hard()
    assert [list(sample.held_actors) for sample in play.samples] == [[], [1], [1], [], [1], [1], []]
    assert counts(play) == (0, 0, 0)


def test_a_slow_actor_at_a_rate_may_answer_in_any_of_its_ticks() -> None:
    play = at_rate(actor("slow", observe_every=3, default=b"D"))
    play.pass_time(PERIOD)
    play.observe()
    play.act(0, tick_id=0, content=b"s")
    for _ in range(2):
        play.pass_time(PERIOD)
        play.observe()
    play.pass_time(PERIOD)
    assert [actions[0] for _, actions, _ in sets(play)] == [b"D", b"s", b"s", b"D"]
    assert counts(play) == (0, 0, 2)
    for _ in range(3):
        play.observe()
        play.pass_time(PERIOD)
    assert play.machine.tick_id == 6
    play.act(0, tick_id=3)
    assert counts(play) == (0, 1, 5)
    play.act(0, tick_id=6, content=b"t")
    play.observe()
    play.pass_time(PERIOD)
    assert [actions[0] for _, actions, _ in sets(play)][-1] == b"t", "it was kept for the ticks that follow"


def test_the_last_observation_is_for_everybody_and_brings_the_rewards() -> None:
    play = Play(make_params(actor("slow", observe_every=5))).start()
    play.clear()
    play.observe()
    play.act(0)
    play.reward(ENVIRONMENT, "slow", (2.0, 1.0))
    play.observe()
    assert observed(play, 0) == [0], "the reward waits"
    play.say(ENVIRONMENT, LAST)
    play.observe()
    kinds = [message.WhichOneof("data") for message in play.sent[0]]
    assert kinds == ["reward", None, "observation"]


def test_the_end_comes_with_the_tick() -> None:
    play = at_rate(actor("a"), max_steps=1)
    play.act(0)
    play.pass_time(PERIOD)
    play.observe()
    play.act(0)
    assert play.phase() is Phase.RUNNING
    play.pass_time(PERIOD)
    assert play.phase() is Phase.WAIT_FINAL
    play.observe()
    assert TICK not in play.timers
    play.ack(0, ENVIRONMENT)
    assert play.is_over()
    assert play.machine.outcome is not None
    assert play.machine.outcome.cause is EndCause.STEP_LIMIT


def test_a_trial_at_a_rate_goes_on_without_anybody() -> None:
    play = at_rate(actor("a", optional=True, default=b"D", hold_action=True))
    play.act(0)
    play.lose(0)
    play.pass_time(PERIOD)
    assert sets(play) == [(0, [b"D"], [])], "who is gone holds nothing"
    play.observe()
    play.pass_time(PERIOD)
    assert [tick for tick, _, _ in sets(play)] == [1]
    assert counts(play) == (0, 0, 0)


def test_participants_are_told_the_rate() -> None:
    params = make_params(actor("a", observe_every=5))
    params.environment.tick_hz = 60
    play = Play(params).begin()
    assert (play.sent[0][0].init_input.tick_hz, play.sent[0][0].init_input.observe_every) == (60, 5)
    play.ready(0)
    assert play.sent[ENVIRONMENT][0].init_input.tick_hz == 60


def test_without_a_rate_nothing_of_it_is_on_the_wire() -> None:
    play = Play(make_params(actor("a"))).start()
    for messages in play.sent.values():
        for message in messages:
            assert not message.init_input.tick_hz
    play.observe()
    assert TICK not in play.timers


@pytest.mark.parametrize("hz", [-1, 1001, float("inf"), float("nan")])
def test_a_rate_that_no_clock_keeps_is_refused(hz: float) -> None:
    params = make_params()
    params.environment.tick_hz = hz
    with pytest.raises(InvalidArgumentError, match=r"environment\.tick_hz: expected ticks a second"):
        validate_params(params)


@given(
    hz=st.sampled_from([0.3, 1, 7, 59.94, 60, 240]),
    waits=st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=40),
)
def test_ticks_end_on_the_grid_one_at_a_time(hz: float, waits: list[tuple[float, bool]]) -> None:
    """Whatever the environment takes: at most one tick ends at a time, and each time is one that was given out."""
    play = at_rate(actor("a", default=b""), hz=hz)
    began = play.now
    ended: list[int] = []
    for periods, acts in waits:
        if acts:
            play.act(0)
        play.pass_time(play.timers[TICK] - play.now)
        assert len(sets(play)) == 1
        ended.append(round((play.now - began) * hz))
        assert play.now == pytest.approx(began + ended[-1] / hz)
        play.now += periods / hz
        play.observe()
        assert play.timers[TICK] >= play.now
    assert ended == sorted(set(ended)), "no two at one time"
    # Every time up to now was used or is counted.
    now = round((play.timers[TICK] - began) * hz) - 1
    assert len(ended) + counts(play)[0] == now
    assert play.machine.state == TrialState.RUNNING
