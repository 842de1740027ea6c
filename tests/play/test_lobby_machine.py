"""The lobby as a machine: the cases that lobbies of others got wrong, every state and input, and any order of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.play.lobby_machine import (
    MOST_ON_THE_WAY,
    ArmAway,
    ArmWait,
    Counts,
    DisarmWait,
    LobbyMachine,
    LobbyRules,
    Shortage,
    StartTrial,
    Tell,
    TurnAway,
    Vacate,
)
from trio_cogment.play.lobby_table import MEMBER_TABLE, MemberInput, MemberState

PAIR = LobbyRules(seats=2, wait_seconds=60, away_seconds=10)


def ready(lobby: LobbyMachine, *members: str) -> list[Any]:
    """Have members come and be ready; return the effects of the last step."""
    effects: list[Any] = []
    for member in members:
        lobby.come(member)
        effects = list(lobby.ready(member))
    return effects


def of(kind: type[Any], effects: list[Any]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def test_the_table_has_every_pair() -> None:
    assert MEMBER_TABLE.keys() == set(itertools.product(MemberState, MemberInput))


def test_only_who_is_ready_is_seated() -> None:
    for (state, happened), (then, _) in MEMBER_TABLE.items():
        assert (then is MemberState.SEATED) == (
            (
                state is MemberState.SEATED
                and happened not in (MemberInput.TRIAL_OVER, MemberInput.START_FAILED, MemberInput.LEAVE)
            )
            or (state is MemberState.READY and happened is MemberInput.SEAT)
        )


def test_a_group_that_is_complete_starts() -> None:
    lobby = LobbyMachine(PAIR)
    assert lobby.come("ann") == [Tell("ann", MemberState.READING), Counts(0, 1, 0, 0, 2)]
    assert lobby.ready("ann") == [
        Tell("ann", MemberState.READY),
        ArmWait(60, 1),
        Counts(1, 0, 0, 0, 2),
    ]
    assert ready(lobby, "bob") == [
        Tell("bob", MemberState.READY),
        StartTrial(("ann", "bob"), 0),
        Tell("ann", MemberState.SEATED),
        Tell("bob", MemberState.SEATED),
        DisarmWait(),
        Counts(0, 0, 0, 0, 2),
    ]


def test_who_waits_for_a_trial_is_counted() -> None:
    lobby = LobbyMachine(PAIR)
    assert lobby.waiting == 0
    lobby.come("a")
    assert lobby.waiting == 1
    lobby.ready("a")
    lobby.detach("a")
    assert lobby.waiting == 1  # the page may come back
    ready(lobby, "b")
    lobby.come("c")
    lobby.leave("c")
    assert lobby.waiting == 2
    lobby.attach("a")
    assert lobby.waiting == 0  # both have got seats


def test_presence_counts_who_is_there_and_not_who_has_gone() -> None:
    lobby = LobbyMachine(LobbyRules(seats=3))
    ready(lobby, "ann", "bob")
    lobby.come("eve")
    assert lobby.detach("bob")[-1] == Counts(1, 1, 1, 0, 3)
    assert lobby.detach("eve")[-1] == Counts(1, 0, 2, 0, 3)  # who was reading is away, too
    lobby.attach("eve")
    assert lobby.attach("bob")[-1] == Counts(2, 1, 0, 0, 3)


def test_who_has_gone_does_not_fill_a_seat() -> None:
    lobby = LobbyMachine(PAIR)
    ready(lobby, "ann")
    lobby.detach("ann")
    assert of(StartTrial, ready(lobby, "bob")) == []
    assert of(StartTrial, ready(lobby, "eve")) == [StartTrial(("bob", "eve"), 0)]


def test_an_idle_person_who_never_says_ready_fills_no_seat() -> None:
    lobby = LobbyMachine(PAIR)
    lobby.come("idle")
    ready(lobby, "ann")
    assert of(StartTrial, ready(lobby, "bob")) == [StartTrial(("ann", "bob"), 0)]
    assert lobby.state_of("idle") is MemberState.READING


def test_the_time_is_over_while_somebody_reads() -> None:
    """The group's end is told to who waits; who reads is not caught in it, and waits with the next group."""
    lobby = LobbyMachine(PAIR)
    lobby.come("reader")
    ready(lobby, "ann")
    effects = lobby.wait_over(1)
    assert of(Tell, effects) == [Tell("ann", MemberState.TIMED_OUT)]
    assert lobby.state_of("reader") is MemberState.READING
    assert of(ArmWait, lobby.ready("reader")) == [ArmWait(60, 2)]
    assert of(StartTrial, ready(lobby, "bob")) == [StartTrial(("reader", "bob"), 0)]


def test_who_has_timed_out_is_never_assigned() -> None:
    lobby = LobbyMachine(PAIR)
    ready(lobby, "ann")
    lobby.wait_over(1)
    assert lobby.ready("ann") == [Tell("ann", MemberState.TIMED_OUT)]
    assert of(StartTrial, ready(lobby, "bob")) == []
    assert lobby.attach("ann")[0] == Tell("ann", MemberState.TIMED_OUT)
    assert of(StartTrial, ready(lobby, "eve")) == [StartTrial(("bob", "eve"), 0)]


def test_bots_begin_no_time_and_no_trial() -> None:
    lobby = LobbyMachine(PAIR)
    for name in ("bot 1", "bot 2", "bot 3"):
        effects = lobby.come(name, automated=True)
        assert of(ArmWait, effects) == of(StartTrial, effects) == []
    assert of(StartTrial, ready(lobby, "ann")) == [StartTrial(("ann", "bot 1"), 0)]


def test_people_come_before_bots() -> None:
    lobby = LobbyMachine(LobbyRules(seats=3))
    lobby.come("bot", automated=True)
    ready(lobby, "ann")
    assert of(StartTrial, ready(lobby, "bob")) == [StartTrial(("ann", "bob", "bot"), 0)]


def test_who_comes_back_to_a_trial_gets_the_seat_again() -> None:
    lobby = LobbyMachine(PAIR)
    ready(lobby, "ann", "bob")
    assert lobby.detach("ann") == [ArmAway("ann", 5, 1)]
    assert lobby.attach("ann")[0] == Tell("ann", MemberState.SEATED)
    assert lobby.away_over("ann", 1) == []  # the timer of before


def test_a_seat_that_nobody_takes_is_given_up() -> None:
    """That of whoever has gone from the lobby, by the way out or for too long."""
    lobby = LobbyMachine(PAIR)
    ready(lobby, "ann", "bob")
    lobby.detach("ann")
    assert lobby.away_over("ann", 1) == [Vacate("ann"), Tell("ann", MemberState.SEATED)]
    assert lobby.leave("bob")[:2] == [Vacate("bob"), Tell("bob", MemberState.LEFT)]
    assert lobby.trial_over(("ann", "bob"))[0] == Tell("ann", MemberState.PLAYED)
    assert lobby.state_of("bob") is MemberState.LEFT


@pytest.mark.parametrize("how", ["taken", "attach", "leave", "away_over", "trial_over"])
def test_so_many_may_be_on_the_way_to_their_seats(how: str) -> None:
    lobby = LobbyMachine(LobbyRules(seats=1))
    for number in range(MOST_ON_THE_WAY):
        assert of(StartTrial, ready(lobby, str(number))) != []
        lobby.detach(str(number))
    assert of(StartTrial, ready(lobby, "ann")) == []
    arguments: dict[str, Any] = {"away_over": ("0", 1), "trial_over": (("0",),)}
    assert of(StartTrial, getattr(lobby, how)(*arguments.get(how, ("0",)))) == [StartTrial(("ann",), 0)]
    assert of(StartTrial, ready(lobby, "bob")) != []  # ann's page is here
    lobby.detach("ann")
    assert of(StartTrial, ready(lobby, "eve")) == []
    lobby.taken("ann")
    assert lobby.detach("ann") == [ArmAway("ann", 5, 2)]  # who is there is on the way no more
    assert lobby._on_the_way < MOST_ON_THE_WAY
    assert lobby.taken("nobody") == []


@pytest.mark.parametrize("ends", ["trial_over", "start_failed"])
def test_there_are_so_many_trials_at_a_time(ends: str) -> None:
    lobby = LobbyMachine(LobbyRules(seats=1, most_trials=2))
    for member in ("ann", "bob"):
        assert of(StartTrial, ready(lobby, member)) == [StartTrial((member,), 0)]
    waiting = ready(lobby, "eve")
    assert of(StartTrial, waiting) == []
    assert of(Tell, waiting) == [Tell("eve", MemberState.READY)]
    [armed] = of(ArmWait, waiting)
    waiting = lobby.wait_over(armed.number)  # nobody is sent away for it
    assert of(Tell, waiting) == []
    assert len(of(ArmWait, waiting)) == 1
    assert of(StartTrial, getattr(lobby, ends)(("ann",))) == [StartTrial(("eve",), 0)]


def test_who_comes_back_after_the_group_has_gone_waits_with_the_next() -> None:
    lobby = LobbyMachine(PAIR)
    ready(lobby, "ann")
    lobby.detach("ann")
    ready(lobby, "bob", "eve")
    assert lobby.attach("ann")[:2] == [Tell("ann", MemberState.READY), ArmWait(60, 3)]


def test_who_has_played_can_play_again() -> None:
    lobby = LobbyMachine(PAIR)
    ready(lobby, "ann", "bob")
    lobby.trial_over(("ann", "bob"))
    assert lobby.attach("ann")[0] == Tell("ann", MemberState.PLAYED)
    lobby.ready("ann")
    assert of(StartTrial, ready(lobby, "eve")) == [StartTrial(("ann", "eve"), 0)]


def test_the_way_out() -> None:
    lobby = LobbyMachine(PAIR)
    ready(lobby, "ann")
    assert lobby.leave("ann") == [Tell("ann", MemberState.LEFT), DisarmWait(), Counts(0, 0, 0, 0, 2)]
    assert of(StartTrial, ready(lobby, "bob")) == []


def test_a_place_is_kept_for_a_while() -> None:
    lobby = LobbyMachine(PAIR)
    ready(lobby, "ann")
    assert of(ArmAway, lobby.detach("ann")) == [ArmAway("ann", 10, 1)]
    lobby.attach("ann")
    assert lobby.away_over("ann", 1) == []  # it was on its way
    assert of(ArmAway, lobby.detach("ann")) == [ArmAway("ann", 10, 3)]
    lobby.away_over("ann", 3)
    assert lobby.state_of("ann") is MemberState.LEFT


def test_nobody_is_left_when_the_time_would_be_over() -> None:
    lobby = LobbyMachine(PAIR)
    ready(lobby, "ann")
    assert of(DisarmWait, lobby.detach("ann")) == [DisarmWait()]
    assert lobby.wait_over(1) == []
    assert of(ArmWait, lobby.attach("ann")) == [ArmWait(60, 2)]


def too_few(shortage: Shortage, *, fewest: int = 2, people: int = 2) -> list[Any]:
    lobby = LobbyMachine(LobbyRules(seats=4, fewest=fewest, shortage=shortage))
    ready(lobby, *"abc"[:people])
    return lobby.wait_over(1)


def test_too_few_people_go_on_with_bots() -> None:
    assert of(StartTrial, too_few(Shortage.BOTS)) == [StartTrial(("a", "b"), 2)]


def test_too_few_people_go_on_as_they_are() -> None:
    assert of(StartTrial, too_few(Shortage.FEWER)) == [StartTrial(("a", "b"), 0)]
    assert of(StartTrial, too_few(Shortage.FEWER, people=1)) == []


def test_too_few_people_give_up() -> None:
    effects = too_few(Shortage.GIVE_UP)
    assert of(StartTrial, effects) == []
    assert of(Tell, effects) == [Tell("a", MemberState.TIMED_OUT), Tell("b", MemberState.TIMED_OUT)]


def test_a_trial_that_does_not_start() -> None:
    lobby = LobbyMachine(PAIR)
    ready(lobby, "ann", "bob")
    assert of(Tell, lobby.start_failed(("ann", "bob"))) == [
        Tell("ann", MemberState.FAILED),
        Tell("bob", MemberState.FAILED),
    ]


def test_there_is_no_room() -> None:
    lobby = LobbyMachine(LobbyRules(seats=2, most=2))
    lobby.come("ann")
    lobby.come("bob")
    assert lobby.come("eve") == [TurnAway("eve")]
    assert lobby.state_of("eve") is None
    lobby.leave("ann")
    assert lobby.come("eve")[0] == Tell("eve", MemberState.READING)


def test_nobody_who_is_away_keeps_others_out() -> None:
    lobby = LobbyMachine(LobbyRules(seats=2, most=2))
    for member in ("ann", "bob"):
        lobby.come(member)
    lobby.detach("bob")
    assert lobby.come("eve")[0] == Tell("eve", MemberState.READING)
    assert lobby.state_of("bob") is MemberState.LEFT
    assert lobby.come("joe") == [TurnAway("joe")]


def test_those_long_gone_are_forgotten() -> None:
    lobby = LobbyMachine(LobbyRules(seats=1, most=3))
    for number in range(10):
        lobby.come(number)
        lobby.leave(number)
    assert [number for number in range(10) if lobby.state_of(number)] == [7, 8, 9]


@pytest.mark.parametrize(
    "wrong",
    [
        {"seats": 0},
        {"seats": 1, "fewest": 2},
        {"seats": 5, "most": 4},
        {"wait_seconds": 0},
        {"away_seconds": -1},
        {"take_up_seconds": 0},
        {"most_trials": 0},
    ],
)
def test_rules_have_to_make_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        LobbyRules(**wrong)


_NAMES = st.integers(0, 5)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), _NAMES, st.booleans()),
        st.tuples(st.sampled_from(["ready", "attach", "detach", "leave", "away_over"]), _NAMES),
        st.tuples(st.sampled_from(["wait_over", "trial_over", "start_failed"])),
    ),
    max_size=60,
)


@given(steps=_STEPS, seats=st.integers(1, 3), shortage=st.sampled_from(Shortage), trials=st.integers(1, 3))
def test_any_order_of_inputs(steps: list[tuple[Any, ...]], seats: int, shortage: Shortage, trials: int) -> None:
    lobby = LobbyMachine(LobbyRules(seats=seats, shortage=shortage, most_trials=trials))
    known: set[int] = set()
    bots: set[int] = set()
    away: dict[int, int] = {}
    waits: int | None = None
    running: list[tuple[Any, ...]] = []
    final = {MemberState.TIMED_OUT, MemberState.LEFT, MemberState.FAILED}
    for what, *arguments in steps:
        before = {member: lobby.state_of(member) for member in known}
        if what == "come":
            if arguments[0] in known:
                continue
            known.add(arguments[0])
            bots |= {arguments[0]} if arguments[1] else set()
            effects = lobby.come(arguments[0], automated=arguments[1])
        elif what == "away_over":
            effects = lobby.away_over(arguments[0], away.get(arguments[0], 0))
        elif what == "wait_over":
            if waits is None:
                continue
            number, waits = waits, None
            effects = lobby.wait_over(number)
        elif what in ("trial_over", "start_failed"):
            if not running:
                continue
            effects = getattr(lobby, what)(running.pop(0))
        else:
            effects = getattr(lobby, what)(arguments[0])
        for effect in effects:
            if isinstance(effect, StartTrial):
                running.append(effect.members)
                assert 1 <= len(effect.members) <= seats
                assert set(effect.members) - bots  # never bots alone
                assert len(effect.members) + effect.bots <= seats
                assert not any(before.get(int(str(member))) in final for member in effect.members)
            elif isinstance(effect, ArmWait):
                waits = effect.number
            elif isinstance(effect, DisarmWait):
                waits = None
            elif isinstance(effect, ArmAway):
                away[int(str(effect.member))] = effect.number
        waiting = [each for each in known - bots if lobby.state_of(each) is MemberState.READY]
        assert (waits is not None) == bool(waiting)  # nobody waits indefinitely, and nobody's time runs for nothing
        assert len(running) <= trials
        assert len(waiting) < seats or len(running) == trials
        seated = [member for members in running for member in members]
        assert len(seated) == len(set(seated))
