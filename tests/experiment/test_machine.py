"""The machine of an experiment: the cases of people who come, go, return and dawdle; and many of them at random."""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.experiment.plans import plan
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trio_cogment.experiment.definition import Experiment
from trio_cogment.experiment.machine import (
    RESUME_SECONDS,
    Effect,
    EndTrial,
    ExperimentMachine,
    Forget,
    GiveUpSeat,
    GiveUpTrial,
    Group,
    Happened,
    Participant,
    Show,
    StartTrial,
)
from trio_cogment.experiment.participant_table import Step

ANSWERS: dict[str, dict[str, Any]] = {"check": {"rule": "a"}, "end": {"age": 30}}


def turn(machine: ExperimentMachine, who: str, now: float, **answers: Any) -> list[Effect]:
    """Have somebody be done with the page that is shown."""
    page = machine.page_of(machine.people[who])
    assert page is not None
    return machine.answer(who, page.name, answers or ANSWERS.get(page.name, {}), True, now)


def waiting(machine: ExperimentMachine, *ids: str, now: float = 0.0) -> list[Effect]:
    """Have people come, and read the pages before the waiting room."""
    effects = []
    for who in ids:
        effects += machine.come(who, now)
        while machine.people[who].step is Step.READING:
            effects += turn(machine, who, now)
    return effects


def of(effects: list[Effect], kind: type[Any]) -> list[Any]:
    return [each for each in effects if isinstance(each, kind)]


def steps(machine: ExperimentMachine) -> dict[str, str]:
    return {who: each.end or each.step.value for who, each in machine.people.items()}


def test_two_people_go_all_the_way() -> None:
    machine = ExperimentMachine(plan(trials=2))
    effects = waiting(machine, "ann", "bob")
    assert of(effects, StartTrial) == [StartTrial(1, 0, ("ann", "bob"))]
    effects = machine.trial_over(1, 0, [], 10)
    assert steps(machine) == {"ann": "preparing", "bob": "preparing"}  # the second trial has a page before it
    turn(machine, "ann", 11)
    assert steps(machine)["ann"] == "ready"
    effects = turn(machine, "bob", 12)
    assert of(effects, StartTrial) == [StartTrial(1, 1, ("ann", "bob"))]
    assert [machine.place_in_trial(1, place) for place in (0, 1)] == [1, 0]  # roles are swapped
    machine.trial_over(1, 1, [], 20)
    assert machine.groups[1].over
    for who in ("ann", "bob"):
        turn(machine, who, 21)
    assert steps(machine) == {"ann": "complete", "bob": "complete"}


def test_a_no_to_the_consent_ends_it() -> None:
    machine = ExperimentMachine(plan())
    machine.come("ann", 0)
    effects = machine.answer("ann", "consent", {}, False, 1)
    assert steps(machine) == {"ann": "declined"}
    assert Show("ann") in effects


def test_a_comprehension_check_may_be_failed_once_and_not_twice() -> None:
    machine = ExperimentMachine(plan())
    machine.come("ann", 0)
    turn(machine, "ann", 0)
    effects = turn(machine, "ann", 1, rule="b")
    assert steps(machine) == {"ann": "reading"}
    assert [each.detail["wrong"] for each in of(effects, Happened)] == [["rule"]]
    with pytest.raises(InvalidArgumentError, match=r"Which one\?: expected one of the options"):
        turn(machine, "ann", 2, rule="c")
    turn(machine, "ann", 2, rule="b")
    assert steps(machine) == {"ann": "screened"}


def test_a_check_that_is_only_noted_lets_go_on() -> None:
    experiment = plan()
    page = replace(experiment.before[1], failed="on", attempts=1)
    machine = ExperimentMachine(replace(experiment, before=[page]))
    machine.come("ann", 0)
    effects = turn(machine, "ann", 1, rule="b")
    assert [each.what for each in of(effects, Happened)][:2] == ["check failed", "answered"]
    assert steps(machine) == {"ann": "waiting"}


def test_who_tires_of_waiting_gets_a_way_out() -> None:
    machine = ExperimentMachine(plan())
    waiting(machine, "ann")
    with pytest.raises(FailedPreconditionError, match="wait a little longer"):
        machine.way_out("ann", 19)
    machine.way_out("ann", 20)
    assert steps(machine) == {"ann": "unmatched"}


def test_whose_page_is_closed_counts_no_more_at_once() -> None:
    machine = ExperimentMachine(plan())
    waiting(machine, "ann")
    machine.detach("ann", 1)
    assert machine.waiting() == []
    effects = waiting(machine, "bob", now=2)
    assert not of(effects, StartTrial)
    effects = machine.attach("ann", 3)
    assert of(effects, StartTrial) == [StartTrial(1, 0, ("ann", "bob"))]  # and in the order in which they came


def test_who_is_idle_in_the_instructions_is_let_go_and_holds_up_nobody() -> None:
    machine = ExperimentMachine(plan())
    machine.come("slow", 0)
    turn(machine, "slow", 0)
    effects = waiting(machine, "ann", "bob", now=30)
    assert of(effects, StartTrial)
    assert machine.next_deadline() == 60
    machine.pass_time(60)
    assert steps(machine)["slow"] == "idle"


def test_nobody_waits_beyond_the_limit() -> None:
    machine = ExperimentMachine(plan())
    waiting(machine, "ann")
    waiting(machine, "away", now=1)
    assert machine.groups  # the two of them
    waiting(machine, "bob", now=2)
    machine.detach("bob", 3)
    waiting(machine, "cem", now=4)
    assert machine.next_deadline() == 102
    machine.pass_time(102)
    machine.pass_time(104)
    assert steps(machine)["bob"] == "gone"
    assert steps(machine)["cem"] == "unmatched"


def test_bots_take_the_places_that_are_left() -> None:
    machine = ExperimentMachine(plan(size=3, waiting={"shortage": "bots"}))
    waiting(machine, "ann", "bob")
    effects = machine.pass_time(100)
    assert of(effects, StartTrial) == [StartTrial(1, 0, ("ann", "bob", None))]


def test_more_people_than_places_see_what_happened() -> None:
    machine = ExperimentMachine(plan(waiting={"groups": 1}))
    machine.come("reading", 0)
    effects = waiting(machine, "ann", "bob")
    assert steps(machine)["reading"] == "full"
    assert Show("reading") in effects
    machine.come("late", 5)
    assert steps(machine)["late"] == "full"


def test_who_is_over_the_places_of_a_group_is_in_the_next_one() -> None:
    machine = ExperimentMachine(plan(conditions=2, waiting={"groups": 2}))
    waiting(machine, "ann", "bob", "cem", "dan")
    assert machine.counts() == {"condition-0": 1, "condition-1": 1}
    assert [group.members for group in machine.groups.values()] == [["ann", "bob"], ["cem", "dan"]]


def test_a_limit_of_people() -> None:
    machine = ExperimentMachine(plan(), max_participants=1)
    machine.come("ann", 0)
    machine.come("bob", 0)
    assert steps(machine) == {"ann": "reading", "bob": "full"}
    # Who found no place and has gone is not kept: however many come, the file does not grow.
    machine.detach("bob", 1)
    assert Forget("bob") in machine.come("cem", 2)
    assert steps(machine) == {"ann": "reading", "cem": "full"}
    machine.detach("cem", 3)
    machine.detach("ann", 3)
    assert Forget("ann") in machine.come("dan", 4)


def test_who_was_taken_out_or_has_declined_is_known_also_if_the_room_is_needed() -> None:
    machine = ExperimentMachine(plan(), max_participants=1)
    machine.come("ann", 0)
    machine.take_out("ann", 1)
    machine.detach("ann", 2)
    machine.come("bob", 3)
    assert steps(machine) == {"ann": "removed", "bob": "full"}
    assert not machine.people["ann"].here


def test_who_comes_takes_the_room_of_who_has_only_passed_by() -> None:
    machine = ExperimentMachine(plan(), max_participants=2)
    machine.come("ann", 0)
    turn(machine, "ann", 0)
    machine.detach("ann", 1)
    machine.come("passer-by", 2)
    machine.detach("passer-by", 3)
    assert Forget("passer-by") in machine.come("bob", 4)
    assert steps(machine) == {"ann": "reading", "bob": "reading"}
    machine.come("cem", 5)
    assert steps(machine)["cem"] == "full"  # both of the others have done something, or are here


def test_taking_somebody_out_is_shown_at_once_also_in_a_check() -> None:
    machine = ExperimentMachine(plan())
    machine.come("ann", 0)
    turn(machine, "ann", 0)
    assert Show("ann") in machine.take_out("ann", 1)
    assert steps(machine) == {"ann": "removed"}
    assert machine.answer("ann", "check", {"rule": "a"}, True, 2) == []  # what was on its way changes nothing


def test_a_page_that_is_loaded_again_is_the_same_person() -> None:
    machine = ExperimentMachine(plan())
    machine.come("ann", 0)
    machine.detach("ann", 1)
    machine.attach("ann", 2)
    assert list(machine.people) == ["ann"]
    with pytest.raises(InvalidArgumentError, match="already"):
        machine.come("ann", 3)


def test_who_has_been_out_sees_the_end_again() -> None:
    machine = ExperimentMachine(plan())
    machine.come("ann", 0)
    machine.leave("ann", 1)
    assert machine.attach("ann", 500) == [Show("ann")]
    assert steps(machine) == {"ann": "left"}


@pytest.mark.parametrize("then", ["bot", "default"])
def test_when_one_leaves_the_group_goes_on(then: str) -> None:
    machine = ExperimentMachine(plan(trials=2, then=then))
    waiting(machine, "ann", "bob")
    effects = machine.leave("ann", 5)
    assert GiveUpSeat(1, "ann") in effects
    assert not of(effects, EndTrial)
    machine.trial_over(1, 0, [], 10)
    effects = turn(machine, "bob", 11)  # nobody waits for who has gone
    assert of(effects, StartTrial) == [StartTrial(1, 1, (None, "bob"))]


def test_when_one_leaves_the_group_ends_and_the_others_are_paid() -> None:
    machine = ExperimentMachine(plan(trials=2))
    waiting(machine, "ann", "bob")
    effects = machine.leave("ann", 5)
    assert EndTrial(1) in effects
    assert machine.people["bob"].step is Step.FINISHING
    turn(machine, "bob", 6)
    assert steps(machine) == {"ann": "left", "bob": "partial"}


def test_when_one_leaves_the_group_goes_on_with_fewer() -> None:
    """The trial is played again, from its beginning, without who has gone; later trials are without them, too."""
    machine = ExperimentMachine(plan(size=3, trials=2, then="fewer"))
    waiting(machine, "ann", "bob", "cem")
    assert GiveUpSeat(1, "bob") in machine.leave("bob", 5)
    effects = machine.trial_over(1, 0, ["bob"], 6)  # an environment cannot go on without an agent of its own
    assert of(effects, StartTrial) == [StartTrial(1, 0, ("ann", None, "cem"), gone=(1,))]
    machine.trial_over(1, 0, [], 50)
    turn(machine, "ann", 51)
    assert of(turn(machine, "cem", 52), StartTrial) == [StartTrial(1, 1, ("ann", None, "cem"), gone=(1,))]
    machine.trial_over(1, 1, ["ann"], 60)  # whose page is gone for longer than the grace
    assert machine.people["ann"].end == "gone"
    machine.trial_over(1, 1, [], 90)
    turn(machine, "cem", 91)
    assert steps(machine) == {"ann": "gone", "bob": "left", "cem": "complete"}


def test_the_trial_goes_on_to_its_end_and_the_next_one_is_with_fewer() -> None:
    machine = ExperimentMachine(plan(size=3, trials=3, then="fewer", meanwhile="bot"))
    waiting(machine, "ann", "bob", "cem")
    assert GiveUpSeat(1, "bob") in machine.leave("bob", 5)
    assert of(machine.trial_over(1, 0, ["bob", "cem"], 6), StartTrial) == []  # it has ended by itself
    assert machine.people["cem"].end == "gone"
    assert of(turn(machine, "ann", 7), StartTrial) == [StartTrial(1, 1, ("ann", None, None), gone=(1, 2))]
    machine.trial_over(1, 1, [], 8)
    machine.trial_over(1, 2, ["ann"], 9)  # who stays away from the last one may still come to the pages after it
    assert machine.people["ann"].step is Step.FINISHING


def test_too_few_for_the_file_end_the_group() -> None:
    experiment = plan(size=3, then="fewer")
    machine = ExperimentMachine(replace(experiment, dropout=replace(experiment.dropout, least=2)))
    waiting(machine, "ann", "bob", "cem")
    machine.trial_over(1, 0, ["ann"], 5)
    effects = machine.leave("bob", 6)
    assert EndTrial(1) in effects
    assert (machine.people["cem"].step, machine.people["cem"].end) == (Step.FINISHING, "partial")


def test_a_seat_that_was_lost_ends_the_group_too() -> None:
    machine = ExperimentMachine(plan())
    waiting(machine, "ann", "bob")
    machine.trial_over(1, 0, ["ann"], 50)
    assert machine.people["ann"].end == "gone"
    assert machine.people["bob"].end == "partial"
    assert machine.people["bob"].step is Step.FINISHING


def test_who_stays_away_from_the_last_trial_may_come_to_the_pages_after_it() -> None:
    machine = ExperimentMachine(plan(trials=1, then="bot"))
    waiting(machine, "ann", "bob")
    machine.detach("ann", 1)
    machine.trial_over(1, 0, ["ann"], 50)
    assert machine.people["ann"].step is Step.FINISHING
    machine.pass_time(math.nextafter(650, 0))
    machine.attach("ann", 649)
    turn(machine, "ann", 649.5)
    assert machine.people["ann"].end == "complete"


def test_who_dropped_out_is_not_waited_for_in_the_next_trial() -> None:
    machine = ExperimentMachine(plan(trials=2, then="bot"))
    waiting(machine, "ann", "bob")
    machine.detach("ann", 1)
    machine.trial_over(1, 0, ["ann"], 50)
    assert machine.people["ann"].end == "gone"
    assert of(turn(machine, "bob", 51), StartTrial) == [StartTrial(1, 1, (None, "bob"))]


def test_a_member_who_is_slow_between_trials_holds_up_the_others_for_the_pages_time() -> None:
    machine = ExperimentMachine(plan(trials=2, then="bot"))
    waiting(machine, "ann", "bob")
    machine.trial_over(1, 0, [], 50)
    turn(machine, "bob", 51)
    effects = machine.pass_time(80)
    assert machine.people["ann"].end == "idle"
    assert of(effects, StartTrial) == [StartTrial(1, 1, (None, "bob"))]


def test_a_trial_begins_only_with_people_who_are_here() -> None:
    machine = ExperimentMachine(plan(trials=2, then="bot"))
    waiting(machine, "ann", "bob")
    machine.trial_over(1, 0, [], 50)
    turn(machine, "ann", 51)
    machine.detach("ann", 52)
    assert not of(turn(machine, "bob", 53), StartTrial)
    assert machine.next_deadline() == 82  # the grace
    assert of(machine.attach("ann", 60), StartTrial) == [StartTrial(1, 1, ("ann", "bob"))]


def test_who_is_away_between_trials_is_waited_for_as_in_a_trial() -> None:
    """Not for as long as the page may be read, which is for who is here; who comes back has that again."""
    experiment = plan(trials=2, then="bot")
    first, second = experiment.trials
    long = replace(second, pages=[replace(second.pages[0], seconds=600)])
    machine = ExperimentMachine(replace(experiment, trials=[first, long]))
    waiting(machine, "ann", "bob")
    machine.trial_over(1, 0, [], 50)
    machine.detach("ann", 60)
    assert machine.people["ann"].deadline == 90
    machine.attach("ann", 80)
    assert machine.people["ann"].deadline == 650
    turn(machine, "bob", 81)
    machine.detach("ann", 100)
    again = copy(machine)
    again.resume(1000, stopped_at=110)
    assert again.people["ann"].deadline == 1060  # after a restart all have to come back
    effects = machine.pass_time(130)
    assert machine.people["ann"].end == "gone"
    assert of(effects, StartTrial) == [StartTrial(1, 1, (None, "bob"))]


def test_who_was_away_at_the_end_of_a_trial_is_waited_for_as_long() -> None:
    experiment = plan(trials=2, then="bot")
    first, second = experiment.trials
    long = replace(second, pages=[replace(second.pages[0], seconds=600)])
    machine = ExperimentMachine(replace(experiment, trials=[first, long]))
    waiting(machine, "ann", "bob")
    machine.detach("ann", 49)
    machine.trial_over(1, 0, [], 50)
    assert machine.people["ann"].deadline == 80


def test_who_is_alone_has_the_time_of_the_page() -> None:
    experiment = plan(size=1, trials=2)
    first, second = experiment.trials
    long = replace(second, pages=[replace(second.pages[0], seconds=600)])
    machine = ExperimentMachine(replace(experiment, trials=[first, long]))
    waiting(machine, "ann")
    machine.trial_over(1, 0, [], 50)
    machine.detach("ann", 60)
    assert machine.people["ann"].deadline == 650


def test_a_researcher_ends_a_group_and_closes_the_waiting_room() -> None:
    machine = ExperimentMachine(plan())
    waiting(machine, "ann", "bob", "cem")
    effects = machine.take_group_out(1, 5)
    assert EndTrial(1) in effects
    assert {machine.people[who].step for who in ("ann", "bob")} == {Step.FINISHING}
    machine.close(6)
    assert steps(machine)["cem"] == "unmatched"
    machine.come("dan", 7)
    assert steps(machine)["dan"] == "unmatched"  # as those who were there: it is closed, not full
    machine.reopen()
    machine.come("eve", 8)
    assert steps(machine)["eve"] == "reading"
    with pytest.raises(NotFoundError):
        machine.take_group_out(7, 9)


def test_a_trial_that_cannot_start_ends_the_group() -> None:
    machine = ExperimentMachine(plan())
    waiting(machine, "ann", "bob")
    machine.trial_over(1, 0, [], 1, failed=True)
    assert {each.end for each in machine.people.values()} == {"partial"}
    assert machine.trial_over(1, 0, [], 2) == []  # it is told once


def test_seeded_conditions_are_balanced_and_drawn() -> None:
    drawn = set()
    for seed in range(20):
        machine = ExperimentMachine(plan(size=1, conditions=3, assignment="seeded", seed=seed))
        order = []
        for number in range(9):
            waiting(machine, f"p{number}")
            order.append(machine.groups[number + 1].condition)
            counts = machine.counts().values()
            assert max(counts) - min(counts) <= 1
        drawn.add(tuple(order))
        again = ExperimentMachine(plan(size=1, conditions=3, assignment="seeded", seed=seed))
        waiting(again, *(f"p{number}" for number in range(9)))
        assert [group.condition for group in again.groups.values()] == order
    assert len(drawn) > 10


def copy(machine: ExperimentMachine) -> ExperimentMachine:
    """Return what a server that was stopped reads of its file."""
    again = ExperimentMachine(machine.experiment, max_participants=machine._max_participants)
    for person in machine.people.values():
        again.add(Participant.from_data(json.loads(json.dumps(person.to_data()))))
    for group in machine.groups.values():
        again.groups[group.number] = Group.from_data(json.loads(json.dumps(group.to_data())))
    again.closed = machine.closed
    return again


def test_a_trial_goes_on_when_everybody_is_back() -> None:
    machine = ExperimentMachine(plan(trials=2, then="bot"))
    waiting(machine, "ann", "bob")
    machine.trial_started(1, 0, "t")
    again = copy(machine)
    effects = again.resume(1000, stopped_at=10, going_on={"t"})
    assert [(each.what, each.detail) for each in of(effects, Happened)][1] == (
        "trial interrupted",
        {"trial": 0, "trial_id": "t"},
    )
    # And once more, before anybody is back: it is the same interruption.
    again = copy(again)
    effects = again.resume(2000, stopped_at=1001, going_on={"t"})
    assert "trial interrupted" not in [each.what for each in of(effects, Happened)]
    assert of(again.attach("ann", 2001), StartTrial) == []
    assert of(again.attach("bob", 2002), StartTrial) == [StartTrial(1, 0, ("ann", "bob"), goes_on="t")]
    # What cannot be taken up is played again by those who are there.
    effects = again.trial_not_resumed(1, 0, "another environment", 2003)
    assert of(effects, StartTrial) == [StartTrial(1, 0, ("ann", "bob"))]
    assert again.trial_not_resumed(1, 1, "late", 2004) == []


def test_a_trial_goes_on_without_those_who_have_gone_where_others_act_for_them() -> None:
    for then, least in (("bot", ("ann", "bob")), ("fewer", ("ann", None))):
        machine = ExperimentMachine(plan(trials=2, then=then))
        waiting(machine, "ann", "bob")
        machine.trial_started(1, 0, "t")
        again = copy(machine)
        again.resume(1000, stopped_at=1000, going_on={"t"})
        again.attach("ann", 1001)
        effects = again.pass_time(1060)
        assert again.people["bob"].end == "gone"
        if then == "bot":
            assert of(effects, StartTrial) == [StartTrial(1, 0, least, goes_on="t")]
        else:
            assert of(effects, GiveUpTrial) == [GiveUpTrial("t")]
            assert of(effects, StartTrial) == [StartTrial(1, 0, least, (1,))]


def test_nobody_waits_for_those_in_whose_places_others_act() -> None:
    machine = ExperimentMachine(plan(trials=2, then="bot"))
    waiting(machine, "ann", "bob")
    machine.trial_started(1, 0, "t")
    machine.note_absent(1, 0, "bob", True)
    machine.note_absent(1, 1, "ann", True)  # of another trial
    again = copy(machine)
    again.resume(1000, stopped_at=1000, going_on={"t"})
    assert of(again.attach("ann", 1001), StartTrial) == [StartTrial(1, 0, ("ann", "bob"), goes_on="t")]
    assert again.people["bob"].step is Step.PLAYING
    again.note_absent(1, 0, "bob", False)
    assert again.groups[1].absent == []
    # If it was so for all of them, the first one who is back is waited for, and the others as well.
    for who in ("ann", "bob"):
        again.note_absent(1, 0, who, True)
    again = copy(again)
    again.resume(2000, stopped_at=2000, going_on={"t"})
    again.attach("ann", 2001)
    assert of(again.attach("bob", 2002), StartTrial)
    # And if those who were there stay away, it is over.
    again.note_absent(1, 0, "bob", True)
    again = copy(again)
    again.resume(3000, stopped_at=3000, going_on={"t"})
    effects = again.pass_time(3060)
    assert of(effects, GiveUpTrial) == [GiveUpTrial("t")]
    assert again.people["bob"].step is Step.FINISHING


def test_a_server_that_starts_again_goes_on_where_it_was() -> None:
    machine = ExperimentMachine(plan(trials=2))
    machine.come("reading", 0)
    waiting(machine, "ann", "bob", "cem")
    again = copy(machine)
    effects = again.resume(1000, stopped_at=10)
    assert not of(effects, StartTrial)
    assert [each.what for each in of(effects, Happened)][:2] == ["server started", "trial lost"]
    assert again.people["reading"].deadline == 600 + 990  # nobody's time has run
    assert of(again.attach("ann", 1001), StartTrial) == []
    assert of(again.attach("bob", 1002), StartTrial) == [StartTrial(1, 0, ("ann", "bob"))]
    again.pass_time(1000 + 90)
    assert again.people["cem"].end == "gone"


class Simulation:
    """People who come, go, return and dawdle, at random; checks what must hold after each step."""

    def __init__(self, experiment: Experiment, seed: int) -> None:
        self.random = random.Random(seed)
        self.machine = ExperimentMachine(experiment, max_participants=self.random.choice([12, 10_000]))
        self.now = 0.0
        self.playing: dict[int, tuple[int, tuple[str | None, ...]]] = {}
        self.events: list[Happened] = []
        self.came = 0
        self.seen: dict[str, float] = {}  # when the pages of those who are away were closed
        self.restarted = -math.inf
        self.started: set[int] = set()  # groups that have played
        self.forgotten: set[str] = set()
        self.going_on: set[str] = set()  # trials that a server has claimed, and that wait for their people
        self.names = itertools.count(1)

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Happened):
                self.events.append(effect)
            elif isinstance(effect, StartTrial):
                assert effect.group not in self.playing
                group = self.machine.groups[effect.group]
                players = [who for who in effect.places if who is not None and who not in group.absent]
                if effect.goes_on:
                    self.check_goes_on(group, effect)
                    players = [who for who in players if self.machine.people[who].step is not Step.OUT]
                else:
                    assert not group.absent
                assert players
                assert all(
                    self.machine.people[who].here and self.machine.people[who].step is Step.PLAYING for who in players
                )
                # Who is in none of the places has gone, and the others have been told.
                with_fewer = self.machine.experiment.dropout.then == "fewer"
                assert all(effect.places[place] is None for place in effect.gone)
                assert with_fewer or not effect.gone
                if with_fewer:
                    assert sum(who is not None for who in effect.places) + len(effect.gone) == group.people
                # Nobody's place is empty when a group begins; and never, where one who has gone ends it.
                people = effect.places[: group.people]
                if effect.group not in self.started or self.machine.experiment.dropout.then == "end":
                    assert None not in people
                if self.machine.experiment.waiting.shortage == "let_go":
                    assert group.people == self.machine.experiment.waiting.size
                self.started.add(effect.group)
                self.playing[effect.group] = (effect.trial, effect.places)
                if not effect.goes_on and self.random.random() < 0.9:
                    self.machine.trial_started(effect.group, effect.trial, f"trial-{next(self.names)}")
            elif isinstance(effect, EndTrial):
                del self.playing[effect.group]
            elif isinstance(effect, GiveUpTrial):
                self.going_on.remove(effect.trial_id)
            elif isinstance(effect, Forget):
                assert effect.id not in self.machine.people
                assert not [group for group in self.machine.groups.values() if effect.id in group.members]
                self.forgotten.add(effect.id)
        self.check()

    def check_goes_on(self, group: Group, effect: StartTrial) -> None:
        """See that a trial goes on once, with those who were in it."""
        self.going_on.remove(effect.goes_on)
        assert list(effect.places) == group.places
        assert group.trial_id == effect.goes_on
        if self.machine.experiment.dropout.in_the_trial == "end":
            # Nobody can act for who has gone.
            assert all(self.machine.people[who].step is Step.PLAYING for who in effect.places if who is not None)

    def check(self) -> None:
        assert {each.trial_id for each in self.machine.groups.values() if each.interrupted} <= self.going_on
        machine, limit = self.machine, self.machine.experiment.waiting.seconds
        counts = machine.counts().values()
        assert max(counts) - min(counts) <= 1
        for person in machine.people.values():
            if person.step is Step.WAITING:
                assert self.now <= person.since + limit + 1e-6
            assert person.end if person.step is Step.OUT else person.end in ("", "partial")
            if person.step in (Step.PREPARING, Step.READY, Step.PLAYING):
                assert person.group is not None
                assert not machine.groups[person.group].over
            assert not machine.closed or person.step not in (Step.READING, Step.WAITING)
            if person.step is Step.READY and person.here:
                self.check_is_waited_for(machine.groups[person.group or 0])
        places = [who for group in machine.groups.values() for who in group.members if who is not None]
        assert len(places) == len(set(places))  # nobody is in two places
        for number, group in machine.groups.items():
            assert group.playing == (number in self.playing)
        # Who waits and is here is never as many as a group.
        if not machine.is_full and not machine.closed:
            assert len(machine.waiting()) < machine.experiment.waiting.size

    def check_is_waited_for(self, group: Group) -> None:
        """See that a group between trials waits for somebody, and for none of them too long."""
        machine = self.machine
        there = [machine.people[who] for who in group.members if who in machine.people]
        members = [each for each in there if each.step in (Step.PREPARING, Step.READY) and each.id not in group.absent]
        late = [each for each in members if each.step is Step.PREPARING or not each.here]
        assert late
        for person in late:
            page = machine.page_of(person)
            read = math.inf if page is None else person.since + (page.seconds or machine.experiment.page_seconds)
            grace = machine.experiment.dropout.grace_seconds
            # From when they were seen last, or came to this step; after a restart there is more time for everybody.
            back = math.inf
            if not person.here:
                away = max(self.seen.get(person.id, 0.0), person.since)
                back = max(away + grace, self.restarted + max(grace, RESUME_SECONDS))
            assert self.now - 1e-6 <= person.deadline <= min(read, back) + 1e-6

    def one(self) -> None:
        machine, draw = self.machine, self.random
        live = [each for each in machine.people.values() if each.step is not Step.OUT]
        pick = draw.choice(live) if live else None
        what = draw.random()
        if pick is None or what < 0.15:
            self.came += 1
            self.take(machine.come(f"p{self.came}", self.now))
        elif what < 0.55:
            page = machine.page_of(pick)
            if page is not None and pick.here:
                answers = ANSWERS.get(page.name, {})
                if page.name == "check" and draw.random() < 0.2:
                    answers = {"rule": "b"}
                self.take(machine.answer(pick.id, page.name, answers, draw.random() > 0.05, self.now))
        elif what < 0.65:
            if pick.here:
                self.seen[pick.id] = self.now
                self.take(machine.detach(pick.id, self.now))
            else:
                self.take(machine.attach(pick.id, self.now))
        elif what < 0.67:
            self.take(machine.leave(pick.id, self.now))
        elif what < 0.68:
            self.take(machine.take_out(pick.id, self.now))
        elif what < 0.70:
            try:
                self.take(machine.way_out(pick.id, self.now))
            except FailedPreconditionError:
                pass
        elif what < 0.80 and self.playing:
            number = draw.choice(list(self.playing))
            trial, places = self.playing.pop(number)
            left = [who for who in places if who is not None and machine.people[who].step is not Step.PLAYING]
            away = [who for who in places if who is not None and (not machine.people[who].here or who in left)]
            if draw.random() < 0.05:
                self.take(machine.trial_not_resumed(number, trial, "its environment is another one", self.now))
            else:
                self.take(machine.trial_over(number, trial, away, self.now, failed=draw.random() < 0.03))
        elif what < 0.803 and self.playing:
            number = draw.choice(list(self.playing))
            trial, places = self.playing[number]
            who = draw.choice([each for each in places if each is not None])
            machine.note_absent(number, trial, who, not machine.people[who].here)
        elif what < 0.815:
            self.restart()
        elif what < 0.82 or (machine.closed and what < 0.85):
            self.take(machine.reopen() if machine.closed else machine.close(self.now))
        elif what < 0.825 and machine.groups:
            self.take(machine.take_group_out(draw.choice(list(machine.groups)), self.now))
        else:
            self.wait(draw.expovariate(1 / 8))

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self.machine.next_deadline() <= until:
            self.now = max(self.now, self.machine.next_deadline())
            self.take(self.machine.pass_time(self.now))
        self.now = until

    def restart(self) -> None:
        stopped, self.now = self.now, self.now + self.random.uniform(0, 300)
        self.machine = copy(self.machine)
        self.playing.clear()
        self.restarted = self.now
        known = {each.trial_id for each in self.machine.groups.values() if each.trial_id}
        self.going_on = {each for each in sorted(known) if self.random.random() < 0.8}
        self.take(self.machine.resume(self.now, stopped_at=stopped, going_on=frozenset(self.going_on)))
        for person in list(self.machine.people.values()):
            if self.random.random() < 0.9:
                self.take(self.machine.attach(person.id, self.now))

    def finish(self) -> None:
        """Have everybody do nothing any more: all come to an end by time alone."""
        for _ in range(1000):
            if self.machine.next_deadline() == math.inf and not self.playing:
                break
            if self.playing:
                number, (trial, places) = next(iter(self.playing.items()))
                del self.playing[number]
                self.take(self.machine.trial_over(number, trial, [who for who in places if who], self.now))
            if self.machine.next_deadline() < math.inf:
                self.wait(self.machine.next_deadline() - self.now)
        assert {each.step for each in self.machine.people.values()} <= {Step.OUT}
        assert all(group.over for group in self.machine.groups.values())
        assert not self.going_on
        ends = [each.id for each in self.events if each.what == "out" and each.id not in self.forgotten]
        assert sorted(ends) == sorted(self.machine.people)  # each is told once


def simulated(seed: int) -> Simulation:
    draw = random.Random(seed)
    then = draw.choice(["end", "bot", "default", "fewer"])
    grace_seconds, page_seconds = draw.choice([5, 30, 120]), draw.choice([30, 300])
    experiment = plan(
        size=draw.randint(1, 4),
        trials=draw.randint(1, 3),
        conditions=draw.randint(1, 3),
        then=then,
        meanwhile=draw.choice(["again", "bot", "default"]) if then == "fewer" else "again",
        assignment=draw.choice(["balanced", "seeded"]),
        seed=seed,
        waiting={"shortage": draw.choice(["bots", "let_go"]), "groups": draw.choice([None, 3])},
    )
    trials = [
        replace(trial, pages=[replace(page, seconds=page_seconds) for page in trial.pages])
        for trial in experiment.trials
    ]
    dropout = replace(experiment.dropout, grace_seconds=grace_seconds)
    return Simulation(replace(experiment, trials=trials, dropout=dropout), seed)


@pytest.mark.parametrize("seeds", range(30))
def test_simulated_experiments(seeds: int) -> None:
    for seed in range(10 * seeds, 10 * seeds + 10):
        simulation = simulated(seed)
        for _ in range(250):
            simulation.one()
        simulation.finish()


@settings(max_examples=50, deadline=None)
@given(st.integers(min_value=1000), st.integers(0, 400))
def test_simulated_experiments_of_any_length(seed: int, length: int) -> None:
    simulation = simulated(seed)
    for _ in range(length):
        simulation.one()
    simulation.finish()
