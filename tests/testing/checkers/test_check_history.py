"""Each checker finds its kind of violation, in a history made up for it, and nothing in an honest one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from trio_cogment.testing import CHECKERS, History, InvariantError, World, check_history, simulate

Line = tuple[str, str, dict[str, Any]]

ACTORS: list[dict[str, Any]] = [
    {"name": "ann", "optional": False, "default": None},
    {"name": "bob", "optional": True, "default": "stay"},
    {"name": "cat", "optional": True, "default": None},
]
ACTED = {"ann": "ann:0", "bob": "stay", "cat": ""}

GREETING = {"sender": "env", "receiver": "dot", "text": "env greets dot at 2"}
TOLD = {"observations": 1, "actions": ["ann:0", "stay"], "rewards": ["ann did well at 0"], "messages": []}

HONEST: list[Line] = [
    ("near", "state", {"state": 1}),
    ("near", "state", {"state": 2}),
    ("environment env", "opened", {}),
    ("actor ann", "opened", {}),
    ("environment env", "showed", {"tick": 0}),
    ("near", "state", {"state": 3}),
    ("actor ann", "observation", {"tick": 0, "content": "ann sees 0"}),
    ("environment env", "actions", {"tick": 0, "contents": ACTED, "unavailable": [2]}),
    ("environment env", "ends by itself", {}),
    ("environment env", "showed", {"tick": 1}),
    ("environment env", "acknowledged", {}),
    ("near", "state", {"state": 4}),
    ("actor ann", "reward", {"tick": 0, "values": [1.0, 2.0], "notes": ["ann did well at 0", "x"]}),
    ("actor ann", "last", {}),
    ("actor ann", "observation", {"tick": 1, "content": "everybody sees 1"}),
    ("actor ann", "acknowledged", {}),
    ("near", "state", {"state": 5}),
    ("actor ann", "end", {"details": ""}),
    ("actor ann", "closed", {"outcome": "left"}),
    ("environment env", "end", {"details": ""}),
    ("environment env", "closed", {"outcome": "left"}),
    ("datalog datalog", "opened", {}),
    ("datalog datalog", "sample", {"tick": 0, "state": 3, "lost": 0, **TOLD}),
    ("datalog datalog", "sample", {"tick": 1, "state": 5}),
    ("datalog datalog", "complete", {}),
    ("datalog datalog", "closed", {"outcome": "left"}),
    ("control", "started", {}),
    ("orchestrator", "known", {"trial_ids": ["t", "unheard of"]}),
    ("desk", "call", {"number": 1, "method": "Start", "trial": ""}),
    ("desk", "status", {"number": 1, "code": "OK"}),
    ("desk", "call left", {"number": 1, "consumed": True}),
    ("desk", "call", {"number": 2, "method": "Watch", "trial": ""}),
    ("desk", "call left", {"number": 2, "consumed": False}),
    ("datalog datalog", "stored", {"tick": 0}),
    ("datalog datalog", "stored", {"tick": 1}),
    ("datalog datalog", "kept", {"ticks": [0, 1]}),
    ("probe", "queues", {"messages": 2, "most_messages": 2, "samples": 1, "most_samples": 4}),
    ("probe", "tasks", {"names": ["trial t: ann"], "seconds": 1.0, "patience": 3.5}),
    ("probe", "tasks", {"names": [], "seconds": 4.0, "patience": 3.5}),
    ("probe", "shield", {"task": "t", "deadline": 3.0}),
    ("t", "cancelled", {"within": 1.0}),
    ("t", "gone", {}),
    ("world", "params", {"actors": ACTORS, "max_steps": 1, "excluded": ["messages"]}),
    ("actor dot", "message", GREETING),
    ("actor dot", "message", {**GREETING, "text": "env greets dot at 5"}),
    ("ends", "watching", {"states": [5]}),
    ("ends", "state", {"state": 5}),
    ("desk", "terminated", {}),
    ("ends", "outcome", {"cause": "environment", "participant": "env", "ticks": 2, "losses": []}),
]


#: Instead of an event: time that passes.
WAIT = "(time passes)"
#: Beside an event's details: whose it is, if not of trial "t".
OF_TRIAL = "(trial)"


def history_of(lines: list[Line]) -> History:
    async def scenario(world: World) -> None:
        for who, what, details in lines:
            await trio.sleep(details["seconds"] if what == WAIT else 0.01)
            if what != WAIT:
                trial_id = details.get(OF_TRIAL, "t")
                told = {name: value for name, value in details.items() if name != OF_TRIAL}
                world.history.record(who, what, trial_id, **told)

    return simulate(0, scenario).history


def after(index: int, *lines: Line) -> list[Line]:
    return [*HONEST[: index + 1], *lines, *HONEST[index + 1 :]]


def without(*indexes: int) -> list[Line]:
    return [line for number, line in enumerate(HONEST) if number not in indexes]


def at(who: str, what: str) -> int:
    return next(number for number, line in enumerate(HONEST) if line[:2] == (who, what))


ACTIONS = at("environment env", "actions")
KNOWN = at("orchestrator", "known")
SAMPLE = at("datalog datalog", "sample")


QUEUES = at("probe", "queues")
KEPT = at("datalog datalog", "kept")


def called(*whats: str) -> list[Line]:
    """A call with a consumer, and what is noted about it."""
    details: dict[str, Any] = {"number": 9, "method": "Start", "trial": "", "consumed": True, "code": "OK"}
    return [("t", what, details) for what in ("call", *whats)]


def acting(*ticks: int, told: bool = False) -> list[Line]:
    """Another environment of the trial, and the ticks of which it got the actions."""
    actions = [{**HONEST[ACTIONS][2], "tick": tick, "contents": {**ACTED, "ann": f"ann:{tick}"}} for tick in ticks]
    who = "environment two"
    lines: list[Line] = [(who, "opened", {}), *([(who, "last", {})] if told else []), (who, "closed", {"outcome": "x"})]
    return [*lines[:-1], *((who, "actions", details) for details in actions), lines[-1]]


def ended(cause: str, participant: str = "", ticks: int = 2, losses: Sequence[Sequence[str]] = ()) -> list[Line]:
    """The trial was broken off, and that is its outcome; whoever is lost raised nothing."""
    told = {"cause": cause, "participant": participant, "ticks": ticks, "losses": [list(loss) for loss in losses]}
    orderly = cause in ("environment", "step_limit", "soft_termination")
    lines = [(who, what, dict(details)) for who, what, details in HONEST[:-1]]
    lines[at("environment env", "end")][2]["details"] = "" if orderly else "why"
    return [*lines, ("ends", "outcome", told)]


LOST = "participant_lost"
ASKED: list[Line] = [("desk", "asked to end", {"hard": hard}) for hard in (False, True)]
STOPPING: Line = ("orchestrator", "stopping", {})
FAILED: list[Line] = [("near", "state", {"state": state}) for state in (1, 5)]
#: Another data log of the trial, whose stream has broken; it has got something, or nothing.
BROKEN_LOG: list[Line] = [("datalog datalog", "opened", {}), ("datalog datalog", "closed", {"outcome": "UNAVAILABLE"})]
ANSWERS: Line = ("datalog datalog", "answers", {})
ANSWERED: list[Line] = [ANSWERS, *(("datalog datalog", "sample", {"tick": n, "state": 3, "lost": 0}) for n in (1, 2))]
OTHERS_KEPT: Line = ("datalog datalog", "kept", {"ticks": [], OF_TRIAL: "other"})
OVERDUE: Line = ("probe", "overdue", {"waits_for": "LAST_ACKs", "seconds": 63.0, "patience": 60.0})


def instead(index: int, **details: Any) -> list[Line]:
    who, what, before = HONEST[index]
    return [*HONEST[:index], (who, what, {**before, **details}), *HONEST[index + 1 :]]


def reading_slowly(seconds: float) -> list[Line]:
    """The last observation was sent when it was shown; it is seen much later, and END comes soon after."""
    return [*HONEST[:14], ("", WAIT, {"seconds": seconds}), HONEST[14], *HONEST[16:]]


def test_honest_history_passes() -> None:
    check_history(history_of(HONEST))


def test_steps_within_the_limit_are_honest() -> None:
    check_history(history_of([*HONEST, *acting(1, told=True)]))


def test_what_others_than_the_fakes_send_is_not_judged() -> None:
    foreign = {"tick": 1, "content": "a field with 7 trees"}
    lines: list[Line] = [("actor bob", "opened", {}), ("actor bob", "observation", foreign)]
    lines += [("actor bob", "reward", {"tick": 0, "values": [3.0], "notes": ["well done"]})]
    check_history(history_of([*HONEST, *lines, ("actor bob", "closed", {"outcome": "cancelled"})]))


def test_who_reads_slowly_has_no_more_time_to_acknowledge() -> None:
    check_history(history_of(reading_slowly(25.0)))


def test_what_was_under_way_to_a_log_that_never_answers_is_lost() -> None:
    check_history(history_of([*BROKEN_LOG, *without(22)]), ["samples-come-once"])
    call: Line = ("orchestrator", "call", {"number": 7, "method": "RunTrialDatalog", "trial": "t"})
    check_history(history_of([call, call, ANSWERS, *without(22)]), ["samples-come-once"])
    # What came before its first answer does not show that the answer has arrived.
    check_history(history_of([call, *ANSWERED[1:], ANSWERS, call, *without(22)]), ["samples-come-once"])
    with pytest.raises(InvariantError):
        check_history(history_of([call, *ANSWERED, call, *without(22)]), ["samples-come-once"])


@pytest.mark.parametrize("lost", [1, 0])
def test_a_late_sample_may_tell_how_many_are_lost(lost: int) -> None:
    late: list[Line] = [("datalog datalog", "late sample", {"tick": 0, "lost": told}) for told in (lost, 0)]
    lines = [*HONEST[:22], *late, *HONEST[23:]]
    if lost:
        check_history(history_of(lines), ["samples-come-once"])
    else:
        with pytest.raises(InvariantError, match="got only"):
            check_history(history_of(lines), ["samples-come-once"])


def test_id_of_a_failed_start_may_come_again() -> None:
    check_history(history_of([*FAILED, *FAILED, *HONEST]))
    check_history(history_of([*FAILED, *FAILED]))


OUTCOME_CHECKERS = ["causes-have-happened", "blame-is-right", "ticks-are-counted"]


@pytest.mark.parametrize(
    "lines",
    [
        [ASKED[0], *ended("soft_termination")],
        [ASKED[1], *ended("hard_termination")],
        [STOPPING, *ended("server_stopped")],
        ended(LOST, "env", 3, [("env", LOST)]),
        ended("participant_left", "ann", 2, [("bob", LOST), ("ann", "participant_left")]),
        ended("action_missing", "ann"),
        [*ended("internal"), *HONEST[-1:]],  # two trials of that id: not judged
    ],
)
def test_honest_outcomes_pass(lines: list[Line]) -> None:
    check_history(history_of(lines), OUTCOME_CHECKERS)


def test_the_ticks_of_a_step_limit() -> None:
    shown: Line = ("environment env", "showed", {"tick": 2})
    check_history(history_of([shown, *ended("step_limit", ticks=3)]), OUTCOME_CHECKERS)


def test_who_raised_may_be_said_to_have() -> None:
    raised: Line = ("actor ann", "closed", {"outcome": "CrashError"})
    check_history(
        history_of([raised, *ended("participant_failed", "ann", 2, [("ann", "participant_failed")])]), OUTCOME_CHECKERS
    )


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("causes-have-happened", ended("internal")),
        ("causes-have-happened", ended("unknown")),
        ("causes-have-happened", without(at("environment env", "ends by itself"))),
        ("causes-have-happened", ended("step_limit")),
        ("causes-have-happened", [ASKED[1], *ended("soft_termination")]),
        ("causes-have-happened", [ASKED[0], *ended("hard_termination")]),
        ("causes-have-happened", ended("not_started")),
        ("causes-have-happened", ended("server_stopped")),
        ("causes-have-happened", [*ended("server_stopped"), STOPPING]),
        ("causes-have-happened", [*HONEST[:-1], *ended(LOST, "env", 2, [("env", LOST)])[-1:]]),
        ("blame-is-right", ended(LOST, "", 2, [("env", LOST)])),
        ("blame-is-right", ended("inactivity", "env")),
        ("blame-is-right", ended(LOST, "bob", 2, [("bob", LOST)])),
        ("blame-is-right", ended(LOST, "ann", 2, [("env", LOST)])),
        ("blame-is-right", ended("participant_failed", "ann", 2, [("ann", "participant_failed")])),
        ("blame-is-right", ended("participant_left", "bob", 2, [("bob", "participant_left")])),
        ("ticks-are-counted", ended("inactivity", ticks=1)),
        ("ticks-are-counted", ended("environment", "env", 3)),
        ("states-go-forward", after(1, ("near", "state", {"state": 2}))),
        ("states-go-forward", after(16, ("near", "state", {"state": 3}))),
        ("watchers-see-all", after(0, *(("far", "state", {"state": state}) for state in (1, 2, 3, 5)))),
        ("watchers-see-all", without(11)),
        ("watchers-see-all", without(1)),
        ("every-trial-ends", without(16, at("ends", "state"))),
        ("every-trial-ends", [*FAILED, *without(16, at("ends", "state"))]),
        ("nothing-after-end", after(17, ("actor ann", "reward", {"tick": 0, "values": []}))),
        ("nothing-after-end", after(17, ("actor ann", "end", {"details": "again"}))),
        ("sessions-close-once", without(18)),
        ("sessions-close-once", after(18, ("actor ann", "closed", {"outcome": "left"}))),
        ("ticks-grow-by-one", instead(14, tick=2, content="ann sees 2")),
        ("ticks-grow-by-one", after(ACTIONS, HONEST[ACTIONS])),
        ("actions-belong-to-their-tick", instead(ACTIONS, contents={**ACTED, "ann": "ann:1"})),
        ("actions-belong-to-their-tick", instead(ACTIONS, contents={**ACTED, "ann": "wrong"})),
        ("environments-may-end", after(8, ("environment env", "actions", {**HONEST[ACTIONS][2], "tick": 1}))),
        ("absent-once", instead(ACTIONS, unavailable=[0, 0])),
        ("wrong-observations-are-refused", instead(6, content="wrong")),
        ("wrong-observations-are-refused", instead(6, content="ann sees 5")),
        ("observations-reach-their-actors", instead(6, content="bob sees 0")),
        ("rewards-reach-their-actors", instead(12, notes=["bob did well at 0"])),
        ("rewards-reach-their-actors", instead(12, tick=1)),
        ("rewards-come-in-time", without(12)),
        ("rewards-come-in-time", instead(12, notes=["ann did well at 3"])),
        ("absences-follow-the-params", instead(ACTIONS, contents={**ACTED, "ann": ""}, unavailable=[0, 2])),
        ("absences-follow-the-params", instead(ACTIONS, contents={**ACTED, "bob": ""}, unavailable=[1, 2])),
        ("absences-follow-the-params", instead(ACTIONS, contents={**ACTED, "bob": ""})),
        ("absences-follow-the-params", instead(ACTIONS, unavailable=[1, 2])),
        ("absences-follow-the-params", instead(ACTIONS, unavailable=[0, 2])),
        ("absences-follow-the-params", instead(ACTIONS, contents={**ACTED, "cat": "stay"})),
        ("absences-follow-the-params", instead(ACTIONS, contents={"ann": "ann:0", "bob": "stay"})),
        ("absences-follow-the-params", instead(ACTIONS, unavailable=[])),
        ("watchers-see-one-sequence", [*HONEST, ("ends", "state", {"state": 3})]),
        ("watchers-see-one-sequence", [*HONEST, *(("far", "state", {"state": state}) for state in (1, 2, 4, 5))]),
        ("terminated-trials-have-ended", [*HONEST[:16], ("desk", "terminated", {}), *HONEST[16:]]),
        ("terminated-trials-have-ended", [*FAILED, *HONEST[:16], ("desk", "terminated", {}), *HONEST[16:]]),
        ("messages-reach-their-receivers", [*HONEST, ("actor bob", "message", GREETING)]),
        ("messages-reach-their-receivers", [*HONEST, ("actor dot", "message", {**GREETING, "sender": "liar"})]),
        ("messages-reach-their-receivers", [*HONEST, ("actor dot", "message", {**GREETING, "receiver": "bob"})]),
        ("messages-come-once", [*HONEST, ("actor dot", "message", GREETING)]),
        ("samples-tell-what-happened", instead(SAMPLE, actions=["stay"])),
        ("samples-tell-what-happened", instead(SAMPLE, rewards=[])),
        ("excluded-fields-are-left-out", instead(SAMPLE, messages=["hello"])),
        ("steps-are-limited", [*HONEST, *acting(1)]),
        ("steps-are-limited", [*HONEST, *acting(1, 2, told=True)]),
        ("nobody-waits-for-ever", [*HONEST, OVERDUE]),
        ("ends-are-told", without(17)),
        ("ends-are-told", without(19)),
        ("rewards-come-once", after(12, ("actor ann", "reward", {"tick": 1, "values": [2.0]}))),
        ("samples-come-once", without(23)),
        ("samples-come-once", after(23, HONEST[23])),
        ("samples-come-once", [*BROKEN_LOG[:1], *ANSWERED, *BROKEN_LOG[1:], *without(22)]),
        ("soft-end-waits-for-everybody", without(15)),
        ("soft-end-waits-for-everybody", without(10)),
        ("soft-end-waits-for-everybody", [*without(15)[:20], HONEST[15], *without(15)[20:]]),
        ("soft-end-waits-for-everybody", reading_slowly(24.9)),
        ("ids-are-given-once", [*HONEST, ("control", "started", {})]),
        ("failed-starts-leave-nothing", [*HONEST[:1], HONEST[16], HONEST[KNOWN]]),
        ("failed-starts-leave-nothing", [*HONEST, HONEST[0], HONEST[16], HONEST[KNOWN]]),
        ("queues-stay-within-limits", instead(QUEUES, messages=3)),
        ("queues-stay-within-limits", instead(QUEUES, samples=5)),
        ("tasks-end-with-their-trial", instead(at("probe", "tasks"), seconds=3.6)),
        ("shields-have-deadlines", instead(at("probe", "shield"), deadline=math.inf)),
        ("hosts-leave-in-time", instead(at("t", "cancelled"), within=0.001)),
        ("hosts-leave-in-time", without(at("t", "gone"))),
        ("calls-end-once", [*HONEST, *called("status", "status", "call left")]),
        ("calls-end-once", [*HONEST, *called("call left")]),
        ("calls-end-once", [*HONEST, *called("status", "message after status", "call left")]),
        ("calls-end-once", [*HONEST, *called("status", "call left", "call left")]),
        ("acknowledged-samples-are-kept", instead(KEPT, ticks=[0])),
        ("acknowledged-samples-are-kept", instead(KEPT, ticks=[0, 1, 1])),
        ("acknowledged-samples-are-kept", instead(KEPT, ticks=[0, 1, 2])),
        ("acknowledged-samples-are-kept", [*without(KEPT), OTHERS_KEPT]),
    ],
)
def test_violation_is_found_and_named(name: str, lines: list[Line]) -> None:
    with pytest.raises(InvariantError, match=rf"(?m)^{name}: t: "):
        check_history(history_of(lines))
    check_history(history_of(HONEST), [name])


def test_each_checker_has_been_tried() -> None:
    marks: list[pytest.Mark] = vars(test_violation_is_found_and_named)["pytestmark"]
    (tried,) = [mark for mark in marks if mark.name == "parametrize"]
    assert {name for name, _ in tried.args[1]} == set(CHECKERS)
    for name, checker in CHECKERS.items():
        assert checker.__doc__, name


def test_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_cogment.testing.history.MAX_EVENTS", 10)
    history = history_of(HONEST)
    assert (len(history), history.dropped) == (10, len(HONEST) - 10)
    with pytest.raises(InvariantError, match="had no room"):
        check_history(history, ["rewards-come-once"])


def test_history_as_text() -> None:
    history = history_of(HONEST[:2])
    assert history.text("t") == "0.010000 t near: state state=1\n0.020000 t near: state state=2\n"
    assert history.text("other") == ""
    assert history.of_trial("t") == list(history) == history.recent(5)


def test_checkers_have_names() -> None:
    with pytest.raises(ValueError, match=r"expected some of states-go-forward, .*, got 'nope'$"):
        check_history(History(), ["states-go-forward", "nope"])


def test_an_event_that_lacks_a_detail_is_named() -> None:
    async def scenario(world: World) -> None:
        world.history.record("actor a", "actions", "t", contents={})
        with pytest.raises(ValueError, match=r"^[a-z-]+: expected the event 'actor a: actions' to have '\w+', it has"):
            check_history(world.history)
        world.history.record("near", "state", "t")
        with pytest.raises(ValueError, match=r"^states-go-forward: .* 'near: state' to have 'state', it has \{\}$"):
            check_history(world.history, ["states-go-forward"])

    simulate(1, scenario)
