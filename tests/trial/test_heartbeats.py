"""Heartbeats: answered always, sent to the silent who are not expected to write, and no activity; and inactivity."""

from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.trial import ENVIRONMENT, NO_PARTICIPANT, Timer, TimerKind, TrialRules
from trio_cogment.trial._stream_table import ENVIRONMENT_STREAM, StreamInput, StreamState, Verdict

from .harness import CLIENT, HEARTBEAT, LAST, Play, actor, make_params, play_ticks

BEATING = TrialRules(heartbeat_seconds=20)
S = TrialState
STALE = Timer(TimerKind.INACTIVITY, NO_PARTICIPANT)
EVERYBODY = (ENVIRONMENT, 0, 1)
ACTORS = (0, 1)


def started(**options: Any) -> Play:
    return Play(make_params(**options), rules=BEATING).start()


def test_a_silent_participant_is_sent_one_and_again_at_that_pace() -> None:
    play = started()
    play.pass_time(19.9)
    assert not any(play.kinds(index) for index in EVERYBODY)
    play.pass_time(0.2)
    assert [play.kinds(index) for index in ACTORS] == [["HEARTBEAT"]] * 2
    play.pass_time(59.8)
    assert [play.kinds(index) for index in ACTORS] == [["HEARTBEAT"] * 2] * 2
    play.pass_time(0.2)
    assert [play.kinds(index) for index in ACTORS] == [["HEARTBEAT"]] * 2


def test_who_owes_something_is_left_in_peace() -> None:
    """The published SDK loses its stream when it answers a heartbeat and sends what it owes at the same time."""
    play = started()
    play.pass_time(40)
    # Its first observation set.
    assert play.kinds(ENVIRONMENT) == []
    play.observe()
    play.act(1)
    play.clear()
    play.pass_time(40)
    # An action is owed; the two others wait.
    assert [play.kinds(index) for index in EVERYBODY] == [["HEARTBEAT"] * 2, [], ["HEARTBEAT"] * 2]
    play.act(0)
    play.clear()
    play.pass_time(40)
    # The next observation set is.
    assert [play.kinds(index) for index in EVERYBODY] == [[], ["HEARTBEAT"] * 2, ["HEARTBEAT"] * 2]
    play.soft()
    play.observe()
    play.act(0)
    play.act(1)
    play.clear()
    play.pass_time(40)
    # The final one is.
    assert [play.kinds(index) for index in EVERYBODY] == [[], ["HEARTBEAT"] * 2, ["HEARTBEAT"] * 2]


def test_one_that_let_its_time_pass_still_owes_its_action() -> None:
    play = Play(make_params(actor("a", optional=True, response_timeout=5), actor("b")), rules=BEATING).start()
    play.observe()
    play.clear()
    play.pass_time(50)
    assert [play.kinds(index) for index in EVERYBODY] == [["HEARTBEAT"] * 2, [], []]


def test_who_speaks_is_sent_none() -> None:
    play = started()
    for _ in range(20):
        play.pass_time(10)
        play.observe()
        play.act(0)
        play.act(1)
    assert all("HEARTBEAT" not in play.kinds(index) for index in EVERYBODY)
    # Counted from the last word of each.
    play.pass_time(15)
    play.tell(0, "bogus")
    play.pass_time(5)
    assert [play.kinds(index) for index in ACTORS] == [[], ["HEARTBEAT"]]
    play.pass_time(15)
    assert [play.kinds(index) for index in ACTORS] == [["HEARTBEAT"], []]


def test_none_before_the_participant_has_begun() -> None:
    params = make_params(actor("a"), actor("c", endpoint=CLIENT))
    play = Play(params, rules=BEATING).begin()
    play.pass_time(100)
    assert play.kinds(0) == ["NORMAL/init_input"]
    assert play.kinds(1) == []
    play.ready(0)
    play.join("c")
    play.pass_time(40)
    assert play.kinds(0) == ["HEARTBEAT"] * 2
    assert play.kinds(1) == ["NORMAL/init_input", "HEARTBEAT", "HEARTBEAT"]
    # The environment was contacted, and has not answered.
    assert play.kinds(ENVIRONMENT) == ["NORMAL/init_input"]


def test_one_that_was_left_out_is_sent_none() -> None:
    params = make_params(actor("a"), actor("b", optional=True, initial_connection_timeout=1))
    play = Play(params, rules=BEATING).begin().ready(0)
    play.pass_time(1)
    play.ready(1)
    play.clear()
    play.pass_time(50)
    assert play.kinds(1) == []


def test_an_answer_is_not_answered() -> None:
    """Both ends answer what they get: each answer answered, they would never stop."""
    play = started()
    play.pass_time(60)
    play.clear()
    for index in ACTORS:
        # Three of ours were not answered; late answers are answers too.
        for _ in range(3):
            assert play.say(index, HEARTBEAT) == []
        play.say(index, HEARTBEAT)
        assert play.kinds(index) == ["HEARTBEAT"]


def test_an_answer_is_a_sign_of_life() -> None:
    play = started()
    for _ in range(5):
        play.pass_time(20)
        assert play.kinds(0) == ["HEARTBEAT"]
        play.pass_time(5)
        play.say(0, HEARTBEAT)
        play.pass_time(0)
        assert play.kinds(0) == []


def test_neither_theirs_nor_ours_is_activity() -> None:
    play = started(max_inactivity=30)
    for _ in range(2):
        play.pass_time(14)
        for index in EVERYBODY:
            play.say(index, HEARTBEAT)
    assert not play.is_over()
    play.pass_time(2)
    assert play.is_over()
    assert play.end_details(0) == "nothing happened for 30 s: the environment 'env' sent no observations"


def test_during_the_end() -> None:
    play = play_ticks(started(), 1)
    play.say(ENVIRONMENT, LAST)
    play.observe()
    play.clear()
    play.pass_time(15)
    play.ack(0)
    play.clear()
    play.pass_time(10)
    # Two owe their LAST_ACKs.
    assert not any(play.kinds(index) for index in EVERYBODY)
    play.ack(1)
    play.pass_time(10)
    assert [play.kinds(index) for index in EVERYBODY] == [[], ["HEARTBEAT"], []]
    play.say(1, HEARTBEAT)
    assert play.kinds(1) == ["HEARTBEAT"]
    assert not play.is_over()
    play.clear()
    play.ack(ENVIRONMENT)
    assert play.is_over()
    assert not play.timers
    for index in EVERYBODY:
        assert play.kinds(index) == ["END"]
        assert play.say(index, HEARTBEAT) == []


@pytest.mark.parametrize("index", EVERYBODY)
def test_who_is_lost_is_sent_none(index: int) -> None:
    play = Play(make_params(actor("a", optional=True), actor("b", optional=True)), rules=BEATING).start()
    play.lose(index)
    assert not play.has_timer(TimerKind.HEARTBEAT, index)
    play.pass_time(50)


def test_zero_is_never() -> None:
    play = Play(rules=TrialRules(heartbeat_seconds=0)).start()
    play.pass_time(1000)
    assert not any(play.kinds(index) for index in EVERYBODY)


def test_the_table_lets_them_go_where_a_stream_is_in_use() -> None:
    allowed = {state for state, symbol in ENVIRONMENT_STREAM if symbol is StreamInput.SEND_HEARTBEAT}
    assert allowed == {StreamState.ACTIVE, StreamState.ENDING, StreamState.ACKED}
    for state in allowed:
        assert ENVIRONMENT_STREAM[state, StreamInput.SEND_HEARTBEAT] == (state, Verdict.PROCEED)


def test_heartbeats_at_any_time() -> None:
    play = Play().start()
    for _ in range(2):
        play.clear()
        for index in (ENVIRONMENT, 0, 1):
            play.say(index, HEARTBEAT)
            assert play.kinds(index) == ["HEARTBEAT"]
        play_ticks(play, 1)
    play.soft()
    play.observe()
    play.act(0, 1)
    play.observe()
    play.ack(0)
    play.clear()
    play.say(0, HEARTBEAT)
    assert play.kinds(0) == ["HEARTBEAT"]
    play.hard()
    play.clear()
    play.say(0, HEARTBEAT)
    assert play.kinds(0) == []


def test_staleness() -> None:
    play = Play(make_params(max_inactivity=10)).start()
    assert play.timers == {STALE: 110.0}
    play.pass_time(9)
    play.observe()
    # Activity does not touch the timer: it is looked at when the timer fires.
    assert play.timers == {STALE: 110.0}
    play.pass_time(2)
    assert play.timers == {STALE: 119.0}
    for _ in range(7):
        play.pass_time(1)
        play.say(0, HEARTBEAT)
        play.say(ENVIRONMENT, HEARTBEAT)
    assert not play.is_over()
    play.pass_time(1)
    assert play.is_over()
    assert play.end_details(0) == "nothing happened for 10 s"
    assert any("nothing happened" in text for text in play.samples[-1].info.special_events)


@pytest.mark.parametrize("began", [0.0, 100.0])
def test_staleness_while_waiting_for_a_client(began: float) -> None:
    play = Play(make_params(max_inactivity=10))
    play.now = began
    play.begin()
    play.pass_time(10)
    assert play.states == [S.INITIALIZING, S.PENDING, S.ENDED]


def test_who_kept_a_trial_from_beginning_is_named_when_nothing_happens() -> None:
    def reason(play: Play) -> str:
        play.pass_time(10)
        assert play.states == [S.INITIALIZING, S.PENDING, S.ENDED]
        outcome = play.machine.outcome
        assert outcome is not None
        return outcome.reason

    names = ["a", "b", "c", "d", "e"]
    crowd = make_params(*[actor(name) for name in names], max_inactivity=10)
    nobody = "nothing happened for 10 s: actor 'a', actor 'b', actor 'c' and 2 more did not come"
    assert reason(Play(crowd).begin()) == nobody
    two = Play(make_params(max_inactivity=10)).begin().ready(0)
    assert reason(two) == "nothing happened for 10 s: actor 'b' did not come"
    alone = Play(make_params(max_inactivity=10)).begin().ready(0, 1)
    assert reason(alone) == "nothing happened for 10 s: the environment 'env' did not come"
    silent = Play(make_params(max_inactivity=10)).start()
    assert reason(silent) == "nothing happened for 10 s: the environment 'env' sent no observations"


def test_no_staleness_unless_asked_for() -> None:
    play = Play().start()
    play.observe()
    play.pass_time(1e6)
    assert play.machine.state == S.RUNNING


def test_it_is_known_when_the_last_one_was_sent() -> None:
    play = started()
    began = play.now
    play.pass_time(45)
    assert [play.machine.participants[index].heartbeat_sent_at for index in ACTORS] == [began + 40] * 2
