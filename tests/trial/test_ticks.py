from __future__ import annotations

from collections.abc import Iterable

import pytest

from trio_cogment.api.common_pb2 import Action, ActorRunTrialOutput, Reward, RewardSource, TrialState
from trio_cogment.api.environment_pb2 import EnvRunTrialOutput, ObservationSet
from trio_cogment.trial import ENVIRONMENT, Effect, Received, SendBatch, SendShared, TimerKind

from .harness import LAST, NORMAL, Play, actor, kind_of, make_params, play_ticks

S = TrialState


def bytes_held(effects: Iterable[Effect]) -> int:
    """Return how many bytes of content all that is sent holds, each object counted once."""
    pieces = {id(tail): tail for effect in effects if isinstance(effect, SendShared) for tail in effect.shared.tails}
    assert pieces
    return sum(map(len, pieces.values()))


def test_what_all_are_shown_is_one_effect_with_each_ones_rewards_before_what_it_sees() -> None:
    play = Play().start()
    play.observe(0)
    play.act(0)
    play.act(1)
    sources = [RewardSource(value=1, confidence=1)]
    play.feed(
        Received(
            ENVIRONMENT, EnvRunTrialOutput(state=NORMAL, reward=Reward(tick_id=-1, receiver_name="b", sources=sources))
        )
    )
    observed = ObservationSet(tick_id=1, timestamp=1, observations=[b"seen"], actors_map=[0, 0])
    event = Received(ENVIRONMENT, EnvRunTrialOutput(state=NORMAL, observation_set=observed))
    effects = play.beside.handle(event, play.now, play.wall_ns)
    (batch,) = [effect for effect in effects if isinstance(effect, SendBatch)]
    assert batch.participants == [0, 1, 1]
    kinds = [kind_of(message.whole()) for message in batch.messages]
    assert kinds == ["NORMAL/observation", "NORMAL/reward", "NORMAL/observation"]
    assert batch.messages[0] is batch.messages[2]
    assert not any(isinstance(effect, SendShared) for effect in effects)


def test_ticks_are_numbered_and_stamped() -> None:
    play = Play().start()
    for tick in range(3):
        play.now += 1
        play.observe(tick if tick % 2 else -1)
        observed = play.wall_ns
        for index in (0, 1):
            (message,) = play.take(index)
            seen = message.observation
            assert (seen.tick_id, seen.timestamp, seen.content) == (tick, observed, b"o%d" % index)
        play.now += 1
        play.act(0, tick_id=tick)
        play.act(1)
        action_set = play.take_set()
        assert (action_set.tick_id, action_set.timestamp) == (tick, play.wall_ns)
        assert list(action_set.actions) == [b"x0", b"x1"]
        assert not action_set.unavailable_actors
        assert play.machine.tick_id == tick


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (
            1_764_316_800_000_000,
            1_764_316_800_000_000_000,
        ),  # `Date.now() * 1000` of the JavaScript SDK
        (10**14, 10**17),
        (10**16 - 1, 10**19 - 1000),
        (10**14 - 1, 10**14 - 1),
        (10**16, 10**16),
        (1_764_316_800_123_456_789, 1_764_316_800_123_456_789),
        (0, 0),
    ],
)
def test_microseconds_become_nanoseconds(sent: int, kept: int) -> None:
    """Where the orchestrator takes them, so whoever sees them sees the same."""
    play = Play(make_params(actor("a"))).start()
    data = ObservationSet(tick_id=-1, timestamp=sent, observations=[b"o"], actors_map=[0])
    play.feed(Received(ENVIRONMENT, EnvRunTrialOutput(state=NORMAL, observation_set=data)))
    (message,) = play.take(0)
    assert message.observation.timestamp == kept
    play.feed(Received(0, ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=-1, timestamp=sent))))
    play.observe()
    play.act(0)
    play.observe()
    sample = play.samples[0]
    assert (sample.observations.timestamp, sample.actions[0].timestamp) == (kept, kept)


def test_actors_may_share_an_observation_and_the_map_may_be_too_long() -> None:
    play = Play().start()
    play.observe(observations=[b"no", b"yes"], actors_map=[1, 1, 99])
    assert [play.take(index)[0].observation.content for index in (0, 1)] == [b"yes", b"yes"]


def test_each_set_is_held_to_its_own_map() -> None:
    """The map of the set before is only where to look first."""
    sets = [
        ([b"a", b"b"], [0, 1], [b"a", b"b"]),
        ([b"a", b"b"], [1, 0], [b"b", b"a"]),
        ([b"a", b"b"], [1], None),
        ([b"a"], [1, 0], None),
        ([b"a", b"b"], [2, 0], None),
        ([b"a", b"b"], [], None),
        ([b"a", b"b", b"c"], [1, 0, 7], [b"b", b"a"]),
        ([b"a"], [0, 0], [b"a", b"a"]),
        ([], [0, 0], None),
        ([b"c", b"d"], [0, 0], [b"c", b"c"]),
        ([b"c", b"d"], [0, 1], [b"c", b"d"]),
    ]
    play = Play().start()
    refused = 0
    for contents, indexes, expected in sets:
        play.observe(observations=contents, actors_map=indexes)
        if expected is None:
            refused += 1
            assert [*play.take(0), *play.take(1)] == []
        else:
            assert [play.take(index)[0].observation.content for index in (0, 1)] == expected
            play.act(0)
            play.act(1)
        assert play.machine.counters.get("observation_set_with_bad_map", 0) == refused


def test_the_first_map_may_not_be_empty() -> None:
    play = Play().start()
    play.observe(observations=[b"o"], actors_map=[])
    assert play.machine.state == S.PENDING
    assert play.machine.counters["observation_set_with_bad_map"] == 1


def test_negative_indexes_are_refused() -> None:
    play = Play().start()
    play.observe(actors_map=[0, -1])
    assert play.machine.state == S.PENDING
    assert play.machine.counters["observation_set_with_bad_map"] == 1


def test_the_first_set_may_not_claim_another_tick() -> None:
    play = Play().start()
    play.observe(1)
    assert play.machine.state == S.PENDING
    play.observe(0)
    assert play.machine.state == S.RUNNING


def test_actions_nobody_waits_for() -> None:
    play = Play().start()
    play.act(0)
    assert play.machine.counters["action_out_of_season"] == 1
    play.observe()
    for tick_id in (1, -2, 7):
        play.act(0, tick_id=tick_id)
    assert play.machine.counters["action_of_wrong_tick"] == 3
    play.act(0, content=b"first")
    play.act(0, content=b"second")
    assert play.machine.counters["action_repeated"] == 1
    play.act(1)
    assert list(play.take_set().actions) == [b"first", b"x1"]
    play.act(1)
    assert play.machine.counters["action_repeated"] == 2
    play.observe()
    play.act(0, tick_id=0)
    assert play.machine.counters["action_of_wrong_tick"] == 4
    # Each of these was told once per participant.
    assert len(play.notes) == 4


def test_a_set_before_the_actions_abandons_them() -> None:
    play = Play(make_params(actor("a", response_timeout=5), actor("b"))).start()
    play.observe()
    play.act(0, 1)
    play.observe()
    play.act(1)
    play.take(ENVIRONMENT)
    play.pass_time(3)
    play.observe()
    assert play.machine.tick_id == 2
    play.act(0)
    assert play.kinds(ENVIRONMENT) == []
    play.act(1)
    assert play.take_set().tick_id == 2


def test_response_timers_are_per_tick() -> None:
    play = Play(make_params(actor("a", optional=True, response_timeout=1), actor("b", response_timeout=2))).start()
    play.observe()
    play.pass_time(1)
    play.act(1)
    assert list(play.take_set().unavailable_actors) == [0]
    assert not play.timers
    play.observe()
    assert play.has_timer(TimerKind.RESPONSE, 0)
    play.act(0, 1)
    assert list(play.take_set().unavailable_actors) == []
    play.observe()
    play.act(0)
    play.pass_time(2)
    assert play.is_over()
    assert "'b'" in str(play.end_details(0))


@pytest.mark.parametrize("seconds", [0.25, 1, 9])
def test_an_action_disarms_the_timer_of_its_actor(seconds: float) -> None:
    play = Play(make_params(actor("a", response_timeout=seconds), actor("b", response_timeout=seconds))).start()
    play.observe()
    play.act(0)
    assert [play.has_timer(TimerKind.RESPONSE, index) for index in (0, 1)] == [False, True]


def test_a_required_actor_has_its_default_action_in_vain() -> None:
    play = Play(make_params(actor("a", response_timeout=1, default=b"d"), actor("b"))).start()
    play.observe()
    play.act(1)
    play.pass_time(1)
    assert play.is_over()
    assert play.states[-2:] == [S.TERMINATING, S.ENDED]


def test_a_required_actors_late_action_saves_it() -> None:
    play = Play(make_params(actor("a", response_timeout=1), actor("b"))).start()
    play.observe()
    play.pass_time(1)
    play.act(0, 1)
    assert list(play.take_set().actions) == [b"x0", b"x1"]


def test_a_required_actor_lost_in_a_tick_ends_the_trial_at_once() -> None:
    play = Play().start()
    play.observe()
    play.clear()
    play.lose(0, "reset by peer")
    assert play.is_over()
    assert play.end_details(1) == "actor 'a' was lost: reset by peer"
    assert play.kinds(0) == []


def test_an_optional_actor_lost_in_a_tick() -> None:
    play = Play(make_params(actor("a", optional=True, response_timeout=9, default=b"d"), actor("b"))).start()
    play.observe()
    play.act(1)
    play.half_close(0)
    assert play.end_details(0) == "it closed its side of the stream"
    assert list(play.take_set().actions) == [b"d", b"x1"]
    assert not play.timers
    play.observe()
    play.act(1)
    assert list(play.take_set().actions) == [b"d", b"x1"]
    assert play.kinds(0) == []


def test_an_optional_actor_lost_between_ticks() -> None:
    play = Play(make_params(actor("a", optional=True), actor("b"))).start()
    play_ticks(play, 1)
    play.clear()
    (note,) = play.lose(0)
    assert note in play.notes
    play.observe()
    play.act(1)
    assert list(play.take_set().unavailable_actors) == [0]


def test_everybody_gone_the_trial_runs_freely() -> None:
    play = Play(make_params(actor("a", optional=True), max_steps=2)).start()
    play.observe()
    play.lose(0)
    assert play.take_set().tick_id == 0
    play.observe()
    assert play.take_set().tick_id == 1
    play.observe()
    assert [kind_of(m) for m in play.take(ENVIRONMENT)] == ["LAST", "NORMAL/action_set"]
    play.observe()
    play.ack(ENVIRONMENT)
    assert play.is_over()
    assert play.end_details(ENVIRONMENT) is None


def test_no_actions_for_an_environment_that_said_last() -> None:
    play = Play(make_params(actor("a", response_timeout=1), actor("b"))).start()
    play.observe()
    play.say(ENVIRONMENT, LAST)
    play.act(1)
    play.pass_time(1)
    assert play.kinds(ENVIRONMENT) == []
    # Not even a required actor's silence matters now.
    assert play.machine.state == S.RUNNING
    play.observe()
    assert play.machine.state == S.TERMINATING


@pytest.mark.parametrize("logged", [False, True])
def test_a_tick_begins_with_nothing_but_its_observations(logged: bool) -> None:
    play = Play(collect_samples=logged).start()
    play.tell(0, "b", bytes(100))  # before the first tick, which it belongs to
    said = play.machine.tick_bytes
    assert said > 100
    for tick in range(3):
        play.observe()
        shown = play.machine.observed_bytes if logged else 0
        assert play.machine.tick_bytes == shown + (0 if tick else said)
        play.act(0, content=bytes(100))
        assert play.machine.tick_bytes == shown + (0 if tick else said) + (200 if logged else 100)
        play.act(1)


@pytest.mark.parametrize("size", [64, 1_000_000])
def test_what_many_actors_see_or_are_given_is_kept_once(size: int) -> None:
    count = 50
    play = Play(make_params(*(actor(f"a{index}") for index in range(count)))).start()

    def observe() -> list[Effect]:
        return play.observe(observations=[bytes(size), b"another"], actors_map=[0] * (count - 1) + [1])

    assert size <= bytes_held(observe()) < size + 200
    play.act(*range(count))
    reward = Reward(tick_id=-1, receiver_name="*", sources=[RewardSource(value=1, confidence=1)])
    reward.sources[0].user_data.value = bytes(20_000)
    play.feed(Received(ENVIRONMENT, EnvRunTrialOutput(state=NORMAL, reward=reward)))
    effects = observe()
    assert len(effects) >= 2 * count
    assert size + 20_000 <= bytes_held(effects) < size + 20_300
    play.act(*range(count))
    play.say(ENVIRONMENT, LAST)
    assert size <= bytes_held(observe()) < size + 200
