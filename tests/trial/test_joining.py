from __future__ import annotations

import pytest

from trio_cogment.api.common_pb2 import SerializedMessage, TrialState
from trio_cogment.base.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    LocalProtocolError,
    NotFoundError,
    RemoteProtocolError,
)
from trio_cogment.trial import (
    ENVIRONMENT,
    Announce,
    ArmTimer,
    Begin,
    Connect,
    Joined,
    ParametersComplete,
    Send,
    Timer,
    TimerKind,
    TrialMachine,
    TrialRules,
)

from .harness import CLIENT, END, HEARTBEAT, NORMAL, Play, actor, kind_of, make_params

S = TrialState


def test_effects_of_the_beginning() -> None:
    machine = TrialMachine("t")
    assert (machine.state, machine.environment_name, machine.is_over, machine.params) == (S.UNKNOWN, "", False, None)
    assert machine.handle(Begin(), 0.0, 1) == [Announce(S.INITIALIZING)]
    params = make_params(actor("a", initial_connection_timeout=2), actor("c", endpoint=CLIENT), max_inactivity=5)
    effects = machine.handle(ParametersComplete(params), 10.0, 1)
    announce, inactivity, connect, send, init = effects
    assert announce == Announce(S.PENDING)
    assert inactivity == ArmTimer(Timer(TimerKind.INACTIVITY, -2), 15.0)
    assert connect == Connect(0)
    assert isinstance(send, Send)
    assert init == ArmTimer(Timer(TimerKind.INIT, 0), 12.0)
    assert [a.name for a in machine.actors] == ["a", "c"]
    assert [a.actor_class for a in machine.actors] == ["cls", "cls"]
    assert machine.environment_name == "env"
    assert machine.trial_id == "t"
    assert machine.params == params


def test_initial_inputs() -> None:
    params = make_params(actor("a"), actor("b", config=SerializedMessage()))
    params.environment.config.content = b"e"
    play = Play(params).begin()
    (first,), (second,) = play.take(0), play.take(1)
    assert (first.state, first.init_input.actor_name, first.init_input.actor_class) == (NORMAL, "a", "cls")
    assert (first.init_input.impl_name, first.init_input.env_name) == ("impl", "env")
    # Absent stays absent, empty but present stays present.
    assert not first.init_input.HasField("config")
    assert second.init_input.HasField("config")
    play.ready(0)
    assert ENVIRONMENT not in play.connected
    play.ready(1)
    (message,) = play.take(ENVIRONMENT)
    data = message.init_input
    assert (data.name, data.impl_name, data.tick_id, data.config.content) == ("env", "envimpl", 0, b"e")
    assert [(a.name, a.actor_class) for a in data.actors_in_trial] == [("a", "cls"), ("b", "cls")]
    assert play.has_timer(TimerKind.INIT, ENVIRONMENT)
    play.environment_ready()
    assert not play.timers
    assert play.machine.state == S.PENDING


def test_a_client_gets_its_init_input_at_once() -> None:
    play = Play(make_params(actor("c", endpoint=CLIENT))).begin()
    assert play.connected == []
    assert play.join("c") == 0
    assert play.kinds(0) == ["NORMAL/init_input"]
    assert play.connected == [ENVIRONMENT]
    # A second init_output says nothing new.
    play.ready(0)
    assert not play.closed
    assert play.machine.counters == {"init_in_vain": 1}


def test_heartbeats_are_answered_before_init() -> None:
    play = Play().begin()
    play.clear()
    play.say(0, HEARTBEAT)
    assert play.kinds(0) == ["HEARTBEAT"]
    play.ready(0, 1)
    play.clear()
    play.say(ENVIRONMENT, HEARTBEAT)
    assert play.kinds(ENVIRONMENT) == ["HEARTBEAT"]


def test_a_required_actor_that_does_not_come_ends_the_trial_at_once() -> None:
    params = make_params(actor("a", initial_connection_timeout=1), actor("b"), actor("c"))
    play = Play(params).begin().ready(1)
    play.pass_time(1)
    assert play.states == [S.INITIALIZING, S.PENDING, S.ENDED]
    assert ENVIRONMENT not in play.connected
    details = [play.end_details(index) for index in range(3)]
    assert details == ["actor 'a' was lost: it did not come in time"] * 3


def test_an_actor_in_time_is_not_timed_out() -> None:
    play = Play(make_params(actor("a", initial_connection_timeout=1), actor("b"))).begin()
    play.pass_time(0.9)
    play.ready(0)
    play.pass_time(1000)
    assert play.machine.state == S.PENDING


def test_who_says_nothing_at_first_may_still_begin() -> None:
    play = Play().begin()
    for state in (0, 1, 9):
        play.say(0, state, details="one moment")
    play.ready(0, 1)
    assert not play.closed
    assert play.machine.counters == {"bad_state_in_vain": 2, "empty_in_vain": 1}
    assert play.connected[-1] == ENVIRONMENT


@pytest.mark.parametrize("state", [3, 4, END])
def test_an_actor_that_begins_wrongly_is_lost(state: int) -> None:
    play = Play(make_params(actor("a", optional=True), actor("b"))).begin().ready(1)
    play.say(0, state)
    assert isinstance(play.closed[0], RemoteProtocolError)
    assert play.connected[-1] == ENVIRONMENT


def test_an_optional_actor_lost_after_it_was_ready() -> None:
    play = Play(make_params(actor("a", optional=True), actor("b"))).begin().ready(0)
    play.lose(0)
    assert ENVIRONMENT not in play.connected
    play.ready(1)
    play.environment_ready()
    play.lose(0)
    play.observe()
    play.act(1)
    assert list(play.take(ENVIRONMENT)[-1].action_set.unavailable_actors) == [0]


def test_a_left_out_actor_whose_stream_ends_later() -> None:
    params = make_params(actor("a", optional=True, initial_connection_timeout=1), actor("b"))
    play = Play(params).begin().ready(1)
    play.pass_time(1)
    assert len(play.notes) == 1
    play.half_close(0)
    assert play.kinds(0) == ["NORMAL/init_input", "END/details"]
    assert len(play.notes) == 1
    assert play.machine.state == S.PENDING


def test_the_environment_has_its_time_to_begin() -> None:
    play = Play(rules=TrialRules(environment_init_timeout_seconds=5)).begin().ready(0, 1)
    play.pass_time(4)
    assert play.machine.state == S.PENDING
    play.pass_time(1)
    assert play.is_over()
    forever = Play(rules=TrialRules(environment_init_timeout_seconds=0)).begin().ready(0, 1)
    forever.pass_time(1e6)
    assert forever.machine.state == S.PENDING


@pytest.mark.parametrize("how", ["closed", "wrong"])
def test_an_environment_that_fails_ends_the_trial(how: str) -> None:
    play = Play().begin().ready(0, 1)
    if how == "closed":
        play.lose(ENVIRONMENT, "refused")
        assert ENVIRONMENT not in play.closed
    else:
        play.observe()
        assert isinstance(play.closed[ENVIRONMENT], RemoteProtocolError)
    assert play.states == [S.INITIALIZING, S.PENDING, S.ENDED]
    assert "the environment 'env' was lost" in str(play.end_details(0))


def test_slots() -> None:
    params = make_params(
        actor("svc", "k"), actor("c1", "k", CLIENT), actor("c2", "k", CLIENT), actor("only", "svc-only")
    )
    play = Play(params)
    with pytest.raises(FailedPreconditionError, match="UNKNOWN"):
        play.machine.slot_for(actor_name="c1")
    play.feed(Begin())
    with pytest.raises(FailedPreconditionError, match="INITIALIZING"):
        play.machine.slot_for(actor_name="c1")
    play.feed(ParametersComplete(play.params))
    slot = play.machine.slot_for
    assert slot(actor_class="k") == 1
    assert slot(actor_name="c2") == 2
    with pytest.raises(InvalidArgumentError):
        slot()
    with pytest.raises(NotFoundError, match="'nobody'"):
        slot(actor_name="nobody")
    with pytest.raises(NotFoundError, match="class 'zzz'"):
        slot(actor_class="zzz")
    with pytest.raises(FailedPreconditionError, match="not a client"):
        slot(actor_name="svc")
    with pytest.raises(FailedPreconditionError, match="not a client"):
        slot(actor_class="svc-only")
    play.join("c1")
    with pytest.raises(FailedPreconditionError, match="not free"):
        slot(actor_name="c1")
    assert slot(actor_class="k") == 2
    play.join("c2")
    with pytest.raises(FailedPreconditionError, match="not free"):
        slot(actor_class="k")
    for index in (0, 1, 7, ENVIRONMENT):
        with pytest.raises(LocalProtocolError):
            play.feed(Joined(index))


def test_a_slot_whose_time_is_over_is_not_free() -> None:
    params = make_params(actor("c", endpoint=CLIENT, optional=True, initial_connection_timeout=1), actor("b"))
    play = Play(params).begin()
    play.pass_time(1)
    with pytest.raises(FailedPreconditionError, match="not free"):
        play.machine.slot_for(actor_name="c")
    play.hard()
    assert 0 not in play.closed
    assert kind_of(play.take(1)[-1]) == "END/details"


def test_a_lost_actors_wait_is_over() -> None:
    play = Play(make_params(actor("a", optional=True, initial_connection_timeout=5), actor("b"))).begin()
    play.lose(0)
    assert not play.timers
    play.pass_time(10)
    assert len(play.notes) == 1


def test_nothing_is_kept_for_the_lost() -> None:
    params = make_params(
        actor("a"),
        actor("c", endpoint=CLIENT, optional=True, initial_connection_timeout=5),
        actor("d", endpoint=CLIENT, optional=True),
    )
    play = Play(params).begin().ready(0)
    play.tell(0, "c")
    play.tell(0, "d")
    play.tell(0, "env")
    participants = play.machine.participants
    assert [len(participants[index].held) for index in (ENVIRONMENT, 1, 2)] == [1, 1, 1]
    play.pass_time(5)
    assert [len(participants[index].held) for index in (ENVIRONMENT, 1, 2)] == [1, 0, 1]
    play.hard()
    assert [len(participants[index].held) for index in (ENVIRONMENT, 1, 2)] == [0, 0, 0]


def test_joining_is_activity() -> None:
    params = make_params(actor("c", endpoint=CLIENT), actor("d", endpoint=CLIENT), max_inactivity=10)
    play = Play(params).begin()
    play.pass_time(9)
    play.join("c")
    play.pass_time(9)
    assert not play.is_over()
    play.pass_time(1)
    assert play.is_over()
