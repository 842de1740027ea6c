"""Trials that go on with a stored one: where they begin, what their environments are told, and who is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trial.harness import NORMAL, Play, actor, make_params
from trio_cogment.api.common_pb2 import Checkpoint, PastTick, TakenUp
from trio_cogment.base.outcome import EndCause
from trio_cogment.trial import ENVIRONMENT, TrialRules

TAKEN_UP = TakenUp(
    trial_id="other",
    tick_id=4,
    checkpoint=Checkpoint(tick_id=3, content=b"state"),
    past=[PastTick(observations=[b"o", b"p"], actions=[b"a", b"b"]), PastTick(observations=[b"q", b"r"])],
)


def test_its_environment_is_told_with_what_it_goes_on() -> None:
    play = Play(taken_up=TAKEN_UP).begin().ready(0, 1)
    init = play.sent[ENVIRONMENT][0].init_input
    assert (init.tick_id, init.taken_up) == (4, TAKEN_UP)
    assert play.machine.taken_up is None, "what is large is kept no longer than it is needed"
    ordinary = Play().begin().ready(0, 1).sent[ENVIRONMENT][0].init_input
    assert not ordinary.HasField("taken_up")
    assert not ordinary.HasField("checkpoints")


def test_it_begins_at_its_tick_and_so_do_its_samples() -> None:
    play = Play(make_params(actor("a")), taken_up=TAKEN_UP).start()
    assert play.machine.tick_id == 4
    play.observe(4)
    assert [message.observation.tick_id for message in play.sent[0]] == [4]
    play.act(0, tick_id=4)
    play.observe()
    play.act(0)
    play.hard()
    assert [sample.info.tick_id for sample in play.samples] == [4, 5]
    assert play.machine.outcome is not None
    assert play.machine.outcome.ticks == 2


@pytest.mark.parametrize("tick_id", [0, 3, 5])
def test_an_observation_set_for_another_tick_than_its_first_is_refused(tick_id: int) -> None:
    play = Play(make_params(actor("a")), taken_up=TAKEN_UP).start()
    play.observe(tick_id)
    assert play.sent.get(0, []) == []
    assert play.machine.counters == {"observation_set_of_wrong_tick": 1}


def test_another_attempt_counts_the_ticks_before_as_its_own() -> None:
    play = Play(make_params(actor("a")), taken_up=TakenUp(trial_id="t", tick_id=4)).start()
    play.observe()
    play.reward(ENVIRONMENT, "a", (1.0, 1.0), tick_id=2)
    play.hard()
    assert play.machine.outcome is not None
    assert play.machine.outcome.ticks == 5
    assert [(sample.info.tick_id, sample.info.out_of_sync) for sample in play.samples] == [(2, True), (4, False)]


def test_a_branch_takes_no_rewards_for_the_ticks_of_the_other_trial() -> None:
    play = Play(make_params(actor("a")), taken_up=TAKEN_UP).start()
    play.observe()
    play.reward(ENVIRONMENT, "a", (1.0, 1.0), tick_id=3)
    assert play.machine.counters == {"reward_of_wrong_tick": 1}


def test_an_environment_that_does_not_say_that_it_can_ends_the_trial() -> None:
    play = Play(make_params(actor("a")), taken_up=TAKEN_UP).begin().ready(0)
    play.environment_ready(takes_up=False)
    outcome = play.machine.outcome
    assert outcome is not None
    assert (outcome.cause, outcome.participant) == (EndCause.PARTICIPANT_REFUSED, "env")
    expected = "the environment 'env' cannot be taken up at a tick: it neither saves itself nor is it played again"
    assert outcome.reason == expected
    assert play.sent[ENVIRONMENT][-1].details == expected
    assert play.sent[0][-1].details == expected


def test_an_ordinary_trial_takes_any_environment_and_remembers_what_it_can() -> None:
    for takes_up in (True, False):
        play = Play(make_params(actor("a"))).begin().ready(0).environment_ready(takes_up=takes_up)
        play.observe()
        assert play.machine.environment.takes_up is takes_up
        # A second word is too late.
        play.say(ENVIRONMENT, NORMAL, init_output={"takes_up": not takes_up})
        assert play.machine.environment.takes_up is takes_up


@pytest.mark.parametrize("rules", [{"checkpoint_ticks": 3}, {"checkpoint_seconds": 0.5}])
def test_an_environment_is_told_how_often_to_save_itself(rules: dict[str, Any]) -> None:
    play = Play(rules=TrialRules(heartbeat_seconds=0, **rules)).begin().ready(0, 1)
    checkpoints = play.sent[ENVIRONMENT][0].init_input.checkpoints
    assert (checkpoints.ticks, checkpoints.seconds) == (
        rules.get("checkpoint_ticks", 0),
        rules.get("checkpoint_seconds", 0),
    )
