from __future__ import annotations

import pytest

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.trial import ENVIRONMENT, TrialRules
from trio_cogment.trial._samples import END_ASKED, FINAL_OBSERVATION, OUT_OF_SYNC, STEPS_USED_UP

from .harness import LAST, Play, actor, make_params, play_ticks

S = TrialState


def finish(play: Play) -> Play:
    play.ack(ENVIRONMENT, *range(len(play.params.actors)))
    assert play.is_over()
    return play


def test_a_whole_trial() -> None:
    play = Play().start()
    stamps = []
    for _ in range(3):
        play.now += 1
        stamps.append(play.wall_ns)
        play.observe()
        play.now += 1
        play.act(0)
        play.act(1, tick_id=play.machine.tick_id)
    play.say(ENVIRONMENT, LAST)
    play.observe()
    finish(play)
    assert [sample.info.tick_id for sample in play.samples] == [0, 1, 2, 3]
    assert [sample.info.state for sample in play.samples] == [S.RUNNING, S.RUNNING, S.RUNNING, S.ENDED]
    assert [sample.info.timestamp for sample in play.samples[:3]] == stamps
    assert not any(sample.info.out_of_sync for sample in play.samples)
    second = play.samples[1]
    assert list(second.observations.observations) == [b"o0", b"o1"]
    assert second.observations.tick_id == -1
    assert [(a.tick_id, a.timestamp, a.content) for a in second.actions] == [(-1, 7, b"x0"), (1, 7, b"x1")]
    last = play.samples[-1]
    assert [a.tick_id for a in last.actions] == [-2, -2]
    assert list(last.unavailable_actors) == []
    assert list(last.info.special_events) == [FINAL_OBSERVATION]


def test_special_events() -> None:
    play = Play().start()
    play.observe()
    play.soft()
    play.act(0, 1)
    play.observe()
    finish(play)
    assert [list(s.info.special_events) for s in play.samples] == [[END_ASKED], [FINAL_OBSERVATION]]
    assert [s.info.state for s in play.samples] == [S.TERMINATING, S.ENDED]

    play = play_ticks(Play(make_params(max_steps=1)).start(), 2)
    play.hard("by hand")
    assert list(play.samples[-1].info.special_events) == [STEPS_USED_UP, "the trial was broken off: by hand"]


def test_one_observation_only() -> None:
    play = Play().start()
    play.say(ENVIRONMENT, LAST)
    play.observe()
    finish(play)
    (sample,) = play.samples
    assert (sample.info.tick_id, sample.info.state) == (0, S.ENDED)
    assert play.states == [1, 2, 3, 4, 5]


def test_absences() -> None:
    params = make_params(
        actor("a"),
        actor("b", optional=True, response_timeout=1),
        actor("c", optional=True, response_timeout=1, default=b""),
    )
    play = Play(params).start()
    play.observe()
    play.act(0)
    play.pass_time(1)
    play.observe()
    (sample,) = play.samples
    assert list(sample.default_actors) == [2]
    assert list(sample.unavailable_actors) == [1]
    assert [a.tick_id for a in sample.actions] == [-1, -2, -2]


def test_a_required_actor_that_is_missing_is_listed() -> None:
    play = Play(make_params(actor("a", response_timeout=1), actor("b"))).start()
    play.observe()
    play.act(1)
    play.pass_time(1)
    assert play.is_over()
    (sample,) = play.samples
    assert list(sample.unavailable_actors) == [0]
    assert sample.info.state == S.ENDED


def test_one_tick_more_held_back() -> None:
    play = play_ticks(Play(make_params(nb_buffered_ticks=3)).start(), 3)
    assert [sample.info.tick_id for sample in play.samples] == [0]
    play.reward(ENVIRONMENT, "a", (1, 1), tick_id=1)
    assert len(play.samples) == 1
    play.reward(ENVIRONMENT, "a", (1, 1), tick_id=0)
    assert play.samples[1].info.out_of_sync
    assert list(play.samples[1].info.special_events) == [OUT_OF_SYNC]
    play.hard()
    assert [sample.info.tick_id for sample in play.samples] == [0, 0, 1, 2]
    assert [len(sample.rewards) for sample in play.samples] == [0, 1, 1, 0]


def test_samples_that_are_held_back_leave_early_when_they_are_large() -> None:
    rules = TrialRules(max_held_back_bytes=3000)
    play = Play(make_params(nb_buffered_ticks=100), rules=rules).start()
    for tick_id in range(6):
        play.observe(observations=[b"x" * 1000, b""])
        play.act(0, 1)
        # Two of about 1000 bytes, and the one under way.
        assert [sample.info.tick_id for sample in play.samples] == list(range(max(0, tick_id - 2)))
    play.hard()
    assert [sample.info.tick_id for sample in play.samples] == list(range(6))


def test_late_rewards_count_among_what_is_held_back() -> None:
    rules = TrialRules(max_held_back_bytes=3000)
    play = play_ticks(Play(make_params(nb_buffered_ticks=100), rules=rules).start(), 3)
    for tick_id in (0, 1, 1):
        play.reward(ENVIRONMENT, "x" * 1000, (1, 1), tick_id=tick_id)
    play.observe()
    # Without the first there is less than the limit.
    assert [sample.info.tick_id for sample in play.samples] == [0]
    play.hard()
    assert [len(sample.rewards) for sample in play.samples] == [1, 2, 0, 0]


def test_small_samples_are_held_back_as_long_as_was_asked() -> None:
    play = play_ticks(Play(make_params(nb_buffered_ticks=100)).start(), 50)
    assert not play.samples


@pytest.mark.parametrize(("asked", "warned"), [(0, False), (1, True), (-3, True), (2, False)])
def test_fewer_than_two_buffered_ticks_are_two(asked: int, warned: bool) -> None:
    play = Play(make_params(nb_buffered_ticks=asked)).begin()
    assert [("nb_buffered_ticks" in note.text) for note in play.notes] == [True] * warned
    play.ready(0, 1).environment_ready()
    play.observe()
    assert not play.samples
    play.act(0, 1)
    play.observe()
    assert [sample.info.tick_id for sample in play.samples] == [0]


def test_an_out_of_sync_sample_goes_before_older_buffered_ones() -> None:
    play = play_ticks(Play(make_params(nb_buffered_ticks=4)).start(), 5)
    assert [sample.info.tick_id for sample in play.samples] == [0, 1]
    play.reward(ENVIRONMENT, "a", (1, 1), tick_id=1)
    out_of_sync = play.samples[-1]
    assert (out_of_sync.info.tick_id, out_of_sync.info.out_of_sync, out_of_sync.info.state) == (1, True, 0)
    assert out_of_sync.info.timestamp == play.wall_ns
    play.hard()
    assert [sample.info.tick_id for sample in play.samples] == [0, 1, 1, 2, 3, 4]


def test_abandoned_tick_has_no_listed_absences() -> None:
    """The environment goes on before the actions are complete: no set was built, so nobody is listed."""
    play = Play(make_params(actor("a", optional=True, response_timeout=9), actor("b"))).start()
    play.observe()
    play.act(1)
    play.observe()
    (sample,) = play.samples
    assert [a.tick_id for a in sample.actions] == [-2, -1]
    assert not sample.default_actors
    assert not sample.unavailable_actors


def test_the_first_sample_is_stamped_anew_by_the_first_observation() -> None:
    play = Play().start()
    play.now += 5
    stamp = play.wall_ns
    play.observe()
    play.now += 1
    play.hard()
    assert play.samples[0].info.timestamp == stamp


def test_a_stale_trial_says_so_in_its_last_sample() -> None:
    play = Play(make_params(max_inactivity=30)).start()
    play.pass_time(30)
    assert play.is_over()
    (event,) = play.samples[-1].info.special_events
    assert "nothing happened for 30 s" in event


def test_every_field_can_be_excluded_in_any_case_and_unknown_ones_are_told_once() -> None:
    names = ["OBSERVATIONS", "Actions", "rewards", "MESSAGES", "default_Actors", "Unavailable_actors", "x", "X", "y"]
    play = Play(make_params(actor("a", optional=True), actor("b", optional=True, default=b"d"), exclude=names)).begin()
    assert len(play.notes) == 2
    play.ready(0, 1).environment_ready()
    play.observe()
    play.tell(0, "*")
    play.reward(0, "*", (1, 1))
    play.lose(0)
    play.lose(1)
    play.hard()
    for sample in play.samples:
        assert [field.name for field, _ in sample.ListFields()] == ["info"]


def test_a_reward_for_the_tick_before_the_final_one_finds_its_sample() -> None:
    play = play_ticks(Play().start(), 1)
    play.say(ENVIRONMENT, LAST)
    play.observe()
    play.reward(ENVIRONMENT, "a", (1, 1), tick_id=0)
    finish(play)
    assert [len(sample.rewards) for sample in play.samples] == [1, 0]


def test_excluded_fields() -> None:
    params = make_params(exclude=["Observations", " ACTIONS ", "info", "bogus"])
    play = Play(params).begin()
    (note,) = play.notes
    assert "'bogus'" in note.text
    play.ready(0, 1).environment_ready()
    play_ticks(play, 2)
    play.reward(ENVIRONMENT, "a", (1, 1), tick_id=0)
    play.hard()
    assert len(play.samples) == 3
    for sample in play.samples:
        assert not sample.HasField("info")
        assert not sample.HasField("observations")
        assert not sample.actions
    assert len(play.samples[1].rewards) == 1


def test_raw_copies() -> None:
    play = Play().start()
    play.observe()
    play.reward(0, "*", (3, 1), value=42)
    play.reward(ENVIRONMENT, "bogus", (3, 1), tick_id=0)
    play.reward(ENVIRONMENT, "a")
    play.tell(1, "bogus")
    play.tell(1, "a", tick_id=3)
    play.hard()
    (sample,) = play.samples
    first, second, third = sample.rewards
    assert (first.tick_id, first.receiver_name, first.value, first.sources[0].sender_name) == (-1, "*", 42, "a")
    assert (second.tick_id, second.receiver_name, second.sources[0].sender_name) == (0, "bogus", "env")
    assert not third.sources
    (message,) = sample.messages
    assert (message.sender_name, message.receiver_name) == ("b", "bogus")


def test_no_samples_when_nobody_wants_them() -> None:
    play = Play(make_params(actor("a", optional=True, response_timeout=1), actor("b")), collect_samples=False).start()
    play.observe()
    play.act(1)
    play.pass_time(1)
    play.observe()
    observation = play.machine.latest_observation
    assert observation is not None
    assert list(observation.observations) == [b"o0", b"o1"]
    play.reward(ENVIRONMENT, "a", (1, 1), tick_id=0)
    play.tell(0, "b")
    play.act(0)
    play.lose(0)
    play.hard()
    assert play.samples == []
    assert play.machine.latest_observation is None


def test_the_last_sample_says_who_had_not_acted_when_a_required_actor_was_lost() -> None:
    params = make_params(actor("a"), actor("b"), actor("c", default=b"d"), actor("d", optional=True))
    play = Play(params).start()
    play.observe()
    play.act(1)
    play.lose(0)
    assert play.is_over()
    (sample,) = play.samples
    assert [action.content for action in sample.actions] == [b"", b"x1", b"", b""]
    assert (list(sample.default_actors), list(sample.unavailable_actors)) == ([2], [0, 3])


def test_a_required_actor_lost_after_its_tick_was_answered_changes_no_sample() -> None:
    play = Play(make_params(actor("a"), actor("b", optional=True, response_timeout=1))).start()
    play.observe()
    play.act(0)
    play.pass_time(1)
    play.lose(0)
    assert play.is_over()
    (sample,) = play.samples
    assert (list(sample.default_actors), list(sample.unavailable_actors)) == ([], [1])


def test_an_action_that_answers_the_final_observation_is_dropped() -> None:
    play = play_ticks(Play().start(), 1)
    play.say(ENVIRONMENT, LAST)
    play.observe()
    play.clear()
    play.act(0)
    assert play.kinds(0) == []
    finish(play)
    assert [action.tick_id for action in play.samples[-1].actions] == [-2, -2]


def test_fields_that_no_sample_has_are_told_in_the_order_of_their_names() -> None:
    names = ["zebra", "yak", "wolf", "vole", "toad", "seal", "rook", "quail"]
    params = make_params(actor("a"))
    params.datalog.exclude_fields.extend(names)
    play = Play(params).begin()
    log = play.machine.log
    assert log is not None
    assert log.unknown_fields == sorted(names)


def test_samples_of_just_as_many_bytes_as_may_be_held_back_stay() -> None:
    def played(most: int) -> Play:
        rules = TrialRules(max_held_back_bytes=most)
        play = play_ticks(Play(make_params(nb_buffered_ticks=100), rules=rules).start(), 2)
        play.observe()
        return play

    whole = played(1 << 20)
    whole.hard()
    size = sum(sample.ByteSize() for sample in whole.samples[:2])
    for most, left in ((size, []), (size - 1, [0]), (0, [0, 1])):
        assert [sample.info.tick_id for sample in played(most).samples] == left
