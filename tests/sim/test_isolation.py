"""Isolation: what happens to one trial is not seen by the others. The same seed with and without it."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.sim.accounts import Accounts
from tests.sim.faults import HOOKED
from tests.sim.play import Play
from tests.sim.scenario import scenario
from trio_cogment.api.common_pb2 import Action, ActorInitialOutput, ActorRunTrialOutput, TrialParams
from trio_cogment.rpc import Call
from trio_cogment.testing import CHECKERS, FakeActor, Fault, FaultPlan, History, simulate
from trio_cogment.testing.fakes.behaviour import FROM_START, NORMAL, Part
from trio_cogment.trial import Received, TrialMachine
from trio_cogment.trial._machine import _HANDLERS

VICTIM = "trial-0"
OTHERS = ("trial-1", "trial-2", "trial-3")

SEEDS = (28, 33, 34)  # the victim's participants are on hosts of their own in them
seeds = pytest.mark.parametrize("seed", SEEDS)


pytestmark = pytest.mark.usefixtures("quiet")


def mischief(target: str, misbehaviour: str, from_tick: int = 2, **details: int) -> Fault:
    return Fault("misbehaves", target=target, details={"misbehaviour": misbehaviour, "from_tick": from_tick, **details})


def played(seed: int, *faults: Fault) -> History:
    return simulate(seed, scenario, plan=FaultPlan(faults)).history


@functools.cache
def calm(seed: int) -> History:
    return played(seed)


def seen(history: History, trial_id: str) -> list[str]:
    """Return all that was seen of a trial, to the microsecond, but for what its far watcher and its disk say."""
    # The far watcher shares its connection with all trials; the disks are looked at when all of them are over; and a
    # run that takes long asks all trials to end, also those that have.
    apart = {"kept", "asked to end"}
    return sorted(str(event) for event in history.of_trial(trial_id) if event.who != "afar" and event.what not in apart)


def seen_from_afar(history: History, trial_id: str) -> list[object]:
    """Return the states that the far watcher saw, without times."""
    return [event.details["state"] for event in history.of_trial(trial_id) if event.who == "afar"]


def calls(history: History, trial_id: str) -> list[str]:
    """Return how the calls of a trial's hosts, and those to them, began and ended, to the microsecond."""
    of_one = re.compile(rf"-{trial_id.removeprefix('trial-')}\b")
    # A call's number is its place among all events, of other trials too.
    noted = [event for event in history if "number" in event.details and of_one.search(event.who)]
    return sorted(str(replace(event, details={**event.details, "number": 0})) for event in noted)


def check_others(stormy: History, seed: int, victim: str = VICTIM, *, happened: bool = False) -> None:
    """Event by event, and to the microsecond; `happened`: it is known that something happened to the victim."""
    assert happened or seen(calm(seed), victim) != seen(stormy, victim)
    for trial_id in {VICTIM, *OTHERS} - {victim}:
        assert seen(calm(seed), trial_id) == seen(stormy, trial_id)
        assert len(seen(stormy, trial_id)) > 50
        assert seen_from_afar(calm(seed), trial_id) == seen_from_afar(stormy, trial_id)
        assert len(seen_from_afar(stormy, trial_id)) == 5
        assert calls(calm(seed), trial_id) == calls(stormy, trial_id)
        assert len(calls(stormy, trial_id)) > 10


#: Of each seed every third: `nox -s soak` plays every one with every seed.
FAULTS_OF_ONE = [
    mischief("trial-0/ann", "crash"),
    mischief("trial-0/ann", "deaf"),
    mischief("trial-0/ann", "flood", count=100),
    mischief("trial-0/env", "vanish"),
    mischief("trial-0/env", "silent"),
    mischief("trial-0/env", "wrong tick"),
    mischief("trial-0/ann", "duplicate", count=50),
    mischief("trial-0/datalog", "deaf"),
    mischief("trial-3/hook", "crash", FROM_START),
    mischief("trial-3/hook", "deaf", FROM_START),
    mischief("trial-3/hook", "wrong tick", FROM_START),
    Fault("crash", at=4.0, target="env-0", details={"power": False}),
    Fault("crash", at=4.0, target="client-0", details={"power": True}),
    Fault("reset", at=4.0, target="client-0"),
    Fault("reset", at=4.0, target="actors-0"),
    Fault("dark", at=4.0, target="actors-0"),
    Fault("partition", at=4.0, target="env-0", details={"seconds": 10.0}),
    Fault("drain", at=4.0, target="actors-0", details={"grace": 0.1}),
    Fault("terminate", at=4.0, target="trial-0", details={"hard": True}),
]


@pytest.mark.parametrize(
    ("seed", "fault"),
    [
        pytest.param(seed, fault, id=f"{seed}-{fault}", marks=() if place % len(SEEDS) == number else pytest.mark.soak)
        for number, seed in enumerate(SEEDS)
        for place, fault in enumerate(FAULTS_OF_ONE)
    ],
)
def test_what_happens_to_one_trial_is_not_seen_by_the_others(seed: int, fault: Fault) -> None:
    outcome = simulate(seed, scenario, plan=FaultPlan((fault,)))
    # What is ignored changes nothing for the victim either, but it is counted.
    misbehaved = any(str(fault.details.get("misbehaviour")) in name for name in outcome.counters)
    victim = HOOKED if fault.target == f"{HOOKED}/hook" else VICTIM
    check_others(outcome.history, seed, victim, happened=misbehaved)


@seeds
def test_a_connection_that_ends_ends_its_trial(seed: int) -> None:
    stormy = played(seed, Fault("reset", at=4.0, target="actors-0"))
    lost = "actor 'ann' was lost: its stream failed: UNAVAILABLE: connection lost"
    ends = {event.who: event.details["details"] for event in stormy.of_trial(VICTIM) if event.what == "end"}
    assert ends == {"environment env": lost, "actor cat": lost}


def says(monkeypatch: pytest.MonkeyPatch, message: ActorRunTrialOutput) -> None:
    """Have an actor of the victim send this, too."""
    act = FakeActor._act

    async def speaks(self: FakeActor, call: Call, part: Part, name: str, tick_id: int) -> None:
        if (part.trial_id, name, tick_id) == (VICTIM, "ann", 2):
            await call.send(message)
        await act(self, call, part, name, tick_id)

    monkeypatch.setattr(FakeActor, "_act", speaks)


@seeds
def test_a_trial_whose_actor_says_what_it_may_not_is_not_seen_by_the_others(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm(seed)  # before it does
    says(monkeypatch, ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=2, content=bytes(5 << 20))))
    # So that the suite knows which trial something happens to.
    stormy = played(seed, mischief("trial-0/env", "slow", seconds=0))
    (details,) = {event.details["details"] for event in stormy.of_trial(VICTIM) if event.what == "end"}
    assert details.startswith("actor 'ann' was lost: ")
    assert "RESOURCE_EXHAUSTED" in details
    check_others(stormy, seed)


@seeds
def test_what_an_actor_may_say_without_harm_changes_no_end(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ends(calm(seed))
    assert "" in before.values()
    says(monkeypatch, ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput(actor_name="ann")))
    assert ends(played(seed, mischief("trial-0/env", "slow", seconds=0))) == before


def ends(history: History) -> dict[tuple[str, str], str]:
    """Return the details of each participant's end."""
    return {
        (trial_id, event.who): event.details["details"]
        for trial_id in (VICTIM, *OTHERS)
        for event in history.of_trial(trial_id)
        if event.what == "end"
    }


@seeds
def test_a_trial_whose_machine_fails_is_not_seen_by_the_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calm(seed)  # before it does
    received = _HANDLERS[Received]

    monkeypatch.setattr(Accounts, "check", lambda *_: None)  # it would tell of just that

    def fails(machine: TrialMachine, event: Received) -> None:
        if machine.trial_id == VICTIM and machine.tick_id >= 1:
            raise ZeroDivisionError
        received(machine, event)

    monkeypatch.setitem(_HANDLERS, Received, fails)
    monkeypatch.delitem(CHECKERS, "causes-have-happened")  # it finds just this
    # So that the suite knows which trial something happens to.
    stormy = played(seed, mischief("trial-0/env", "slow", seconds=0))
    (details,) = {event.details["details"] for event in stormy.of_trial(VICTIM) if event.what == "end"}
    assert "the orchestrator failed to run this trial" in details
    check_others(stormy, seed)


# On the same hosts


def ticks_and_ends(history: History, trial_id: str) -> list[tuple[object, ...]]:
    return [
        (event.what, event.details.get("tick"), event.details.get("details"))
        for event in history.of_trial(trial_id)
        if event.who == "environment env" and event.what in ("actions", "end")
    ]


@functools.cache
def calm_on_the_same_hosts(seed: int) -> History:
    """Play where all trials are on the same hosts already."""
    return played(seed)


@pytest.mark.parametrize(
    "fault",
    [
        mischief("trial-0/ann", "deaf"),
        mischief("trial-0/ann", "flood", count=2000),
        mischief("trial-0/ann", "crash"),
        mischief("trial-0/env", "crash"),
        mischief("trial-0/env", "deaf"),
        mischief("trial-0/env", "flood", count=2000),
        mischief("trial-0/datalog", "deaf"),
        Fault("terminate", at=4.0, target="trial-0", details={"hard": True}),
    ],
    ids=str,
)
def test_on_the_same_hosts_the_others_have_the_same_ticks_and_ends(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share connections, so that times differ; nothing else does."""
    params_of, seed = Play.params, 24  # in which all participants are on hosts
    environments: set[str] = set()

    def shared(self: Play, trial_id: str) -> TrialParams:
        params = params_of(self, trial_id)
        assert trial_id not in self.inside
        number = trial_id.removeprefix("trial-")
        parts: list[Any] = [params.environment, params.datalog, *params.actors]
        for part in parts:
            part.endpoint = part.endpoint.replace(f"-{number}:", "-0:")
        environments.add(params.environment.endpoint)
        return params

    monkeypatch.setattr(Play, "params", shared)
    calm, stormy = calm_on_the_same_hosts(seed), played(seed, fault)
    assert environments == {"grpc://env-0:9000"}
    assert seen(calm, VICTIM) != seen(stormy, VICTIM)
    for trial_id in OTHERS:
        assert ticks_and_ends(calm, trial_id) == ticks_and_ends(stormy, trial_id)
        assert ticks_and_ends(stormy, trial_id)[-1] == ("end", None, "")
