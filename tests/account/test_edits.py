"""An edit of the account, not of the code, is noticed by the runs that are compared with it.

What the trials of some plays at random, and of some simulated runs, were given is recorded once, and given again to a
machine with the edited account beside it.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.account import beside
from tests.account.beside import Beside
from tests.account.plays import Player
from tests.sim.suite import Unit, run_unit
from trio_cogment.base.errors import CogmentError, LocalProtocolError
from trio_cogment.trial import Event, Received, TrialMachine, TrialRules

pytestmark = pytest.mark.usefixtures("quiet")

FOLDER = Path(__file__).parent
MODULES = ("people", "ticks", "account")
PLAYS, PLAYS_AT_ONCE = 600, 60
SEEDS = range(1, 3)

EDITS = [
    ("account", "if not actor.is_client:\n                self._contact(actor)", "self._contact(actor)"),
    ("account", 'self._limit("INIT", actor.number, actor.params.initial_connection_timeout)', "pass"),
    ("account", 'self._limit("INACTIVITY", -2, params.max_inactivity)', "pass"),
    ("account", "\"env_name\": self.environment.name,", ""),
    ("account", 'for actor in self.actors\n            ]\n            if',
     'for actor in self.actors[:1]\n            ]\n            if'),
    ("account", '        for message in person.held:\n            self._see("message", person.number, message)\n',
     ''),
    ("account", "        self._contact(self.environment)\n", "        self._introduce(self.environment)\n"),
    ("account", 'word not in ("EMPTY", "BAD_STATE")', 'word not in ("EMPTY",)'),
    ("account", "person.nudges -= 1", "pass"),
    ("account", "message.tick_id not in (NOW, self.tick)", "message.tick_id != NOW"),
    ("account", "message.sender_name = sender.name\n", "pass\n"),
    ("account", "if not receivers and message.receiver_name == self.environment.name", "if not receivers"),
    ("account", "elif receiver.where in TO_COME:", "elif False:"),
    ("account", "late = self.before <= reward.tick_id < self.tick", "late = self.before < reward.tick_id < self.tick"),
    ("account", "if reward.sources else []", ""),
    ("account", "            source.sender_name = sender.name\n", "            pass\n"),
    ("account", "sources = [source for _, given in actor.due for source in given]", "sources = actor.due[-1][1]"),
    ("account", "shown.tick_id not in (NOW, self.sets)", "shown.tick_id not in (NOW, self.sets, self.sets - 1)"),
    ("account", "list(shown.actors_map)[: len(self.actors)]", "list(shown.actors_map)"),
    ("account", "final = self._last_announced or self.stage", "final = self.stage"),
    ("account", "self._how = self._how or BY_ENVIRONMENT", "self._how = BY_ENVIRONMENT"),
    ("account", 'self._note("the environment ended the trial")', "pass"),
    ("account", " or self._answered or actor.number in self._contents:", ":"),
    ("account", "while tick > self.first and tick % max(1, actor.params.observe_every):", "while False:"),
    ("account", "self._began_at + self._ends / self._hz", "self.now + 1 / self._hz"),
    ("account", "            self._ends += 1\n            missed += 1", "            self._ends += 1"),
    ("account", "        while self._ends_at() <= self.now:", "        if self._ends_at() <= self.now:"),
    ("account", "if answers <= actor.answered:", "if False:"),
    ("account", "over = self.tick + 1 if self._answered else self.tick", "over = self.tick"),
    ("account", "            self.late += 1\n            return False", "            return False"),
    ("account", "            self.late += 1\n            return False", "            self.late += 1"),
    ("account", "tick_id=number, timestamp=action.timestamp", "tick_id=NOW, timestamp=action.timestamp"),
    ("account", "if missing and not self._hz:", "if missing:"),
    ("account", "self._hz and actor.takes_part and unanswered", "self._hz and unanswered"),
    ("account", "self.book.current.held.extend(again)", "pass"),
    ("account", "actor.last_action if params.hold_action or answered else None", "actor.last_action"),
    ("account", "actor.last_action if params.hold_action or answered else None",
     "actor.last_action if answered else None"),
    ("account", 'in ("PATIENCE", "RESPONSE", "TICK")', 'in ("PATIENCE", "RESPONSE")'),
    ("account", "if self._last_announced:\n            return", "if False:\n            return"),
    ("account", "missing[0].name", "missing[-1].name"),
    ("account", 'self._note("the maximum number of steps was reached")', "pass"),
    ("account", "not actor.params.HasField(\"default_action\")", "False"),
    ("account", 'self._note("the end of the trial was asked for")', "pass"),
    ("account", 'if ("PATIENCE", -2) not in self.deadlines:', "if True:"),
    ("account", 'in ("PATIENCE", "RESPONSE", "TICK"):', 'in ("RESPONSE", "TICK"):'),
    ("account", 'by = self.environment.name if self._how == BY_ENVIRONMENT else ""', 'by = ""'),
    ("account", "reason=why[:MOST_OF_A_REASON]", "reason=why"),
    ("account", "ticks=self.sets - self.before", "ticks=self.tick - self.before"),
    ("account", 'loss.traceback = ""', "pass"),
    ("account", "self.outcome.losses.extend(self.losses)", "pass"),
    ("account", 'if not person.is_environment and person.where is Where.ACKNOWLEDGED:\n            return',
     'if False:\n            return'),
    ("account", "if person.where is Where.ASKED and cause == LOST:", "if False:"),
    ("account", 'verb = {FAILED: "failed", LEFT: "left the trial"}', 'verb = {FAILED: "failed"}'),
    ("account", "or person.number in self._owing or cause == FAILED", "or person.number in self._owing"),
    ("account", "            self.book.current.void.add(actor.number)\n", ""),
    ("account", "required=person.is_required", "required=True"),
    ("account", "tick_id=self.tick,\n                traceback", "tick_id=self.sets,\n                traceback"),
    ("account", "self._waiting_for.discard(who)\n            if self.stage", "if self.stage"),
    ("account", "over = self._active_at + self.params.max_inactivity", "over = 0"),
    ("account", "Where.GONE if person.where is Where.AWAY else Where.LATE", "Where.GONE"),
    ("account", "if not self._owes_something(person):", "if True:"),
    ("people", "REACHABLE = (Where.ASKED, Where.LATE, ", "REACHABLE = (Where.ASKED, "),
    ("people", "TO_COME = (Where.AWAY, Where.ASKED)", "TO_COME = (Where.ASKED,)"),
    ("people", 'TAKING_PART = (Where.PLAYING, Where.ENDING, Where.ACKNOWLEDGED)',
     'TAKING_PART = (Where.PLAYING, Where.ENDING)'),
    ("people", '    if "." not in pattern:\n        return []\n',
     '    if "." not in pattern:\n        return list(actors)\n'),
    ("people", 'pattern.split(".", 1)', 'pattern.rsplit(".", 1)'),
    ("people", "    if named:\n        return named\n", ""),
    ("people", "return total / weight", "return total / len(trusted)"),
    ("ticks", "LEAST_BUFFERED = 2", "LEAST_BUFFERED = 3"),
    ("ticks", "self.current.wall_ns = wall_ns", "pass"),
    ("ticks", "self.current.state = ended_in", "pass"),
    ("ticks", "reward.tick_id >= self._first + self._left:", "reward.tick_id > self._first + self._left:"),
    ("ticks", "out_of_sync=True, ", ""),
    ("ticks", "self.current.end = end", "pass"),
    ("ticks", "unavailable_actors=self.unavailable,", ""),
    ("ticks", "special_events=self.events)", ")"),
    ("ticks", 'if number not in self.actions:\n            return Action(tick_id=NO_TICK)',
     'if number not in self.actions:\n            return Action()'),
    ("ticks", "> self._most_bytes", "> 2 * self._most_bytes"),
]  # fmt: skip


class Given(NamedTuple):
    """What a trial's machine was given."""

    rules: TrialRules
    collect_samples: bool
    events: list[tuple[Event, float, int]]


class Recording:
    """Everything that the machines with an account were given, for the time of a block."""

    def __init__(self) -> None:
        self._given: dict[int, Given] = {}
        #: So that none of them is forgotten, and its number used again.
        self._kept: list[Beside] = []
        self._was = Beside.handle

    def handle(self, one: Beside, event: Event, now: float, wall_ns: int) -> list[Any]:
        if id(one) not in self._given:
            self._given[id(one)] = Given(one.machine.rules, one.machine.collect_samples, [])
            self._kept.append(one)
        given = self._given[id(one)]
        if one.machine.collect_samples != given.collect_samples:
            self._given[id(one)] = given = given._replace(collect_samples=one.machine.collect_samples)
        given.events.append((_copied(event), now, wall_ns))
        return self._was(one, event, now, wall_ns)

    def __iter__(self) -> Iterator[Given]:
        return iter(self._given.values())


def _copied(event: Event) -> Event:
    if not isinstance(event, Received):
        return event
    message = type(event.message)()
    message.CopyFrom(event.message)
    return Received(event.participant, message)


@functools.cache
def simulated(seed: int) -> list[Given]:
    """Return what the trials of a simulated run were given."""
    recording = Recording()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Beside, "handle", lambda *args: recording.handle(*args))
        run_unit(Unit(seed, ("safety", "liveness")[seed % 2]))
    return list(recording)


@functools.cache
def played(first: int) -> list[Given]:
    """Return what the machines of some plays were given."""
    recording = Recording()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Beside, "handle", lambda *args: recording.handle(*args))
        for seed in range(first, first + PLAYS_AT_ONCE):
            Player(seed).run()
    return list(recording)


def sources() -> Iterator[list[Given]]:
    """Yield what can be given, the cheapest first, and no more than is asked for."""
    yield from map(played, range(0, PLAYS, PLAYS_AT_ONCE))
    yield from map(simulated, SEEDS)


def difference(given: Given) -> str:
    """Give it again; return how the trial differs from its account."""
    machine = TrialMachine("t", rules=given.rules, collect_samples=given.collect_samples)
    one = Beside(machine, machine.handle)
    for event, now, wall_ns in given.events:
        try:
            one.handle(_copied(event), now, wall_ns)
        except (CogmentError, LocalProtocolError):
            pass  # it was refused the first time, too
        if one.difference:
            return one.difference
    return ""


@pytest.mark.parametrize(("module", "before", "after"), EDITS[::3], ids=range(0, len(EDITS), 3))
def test_an_edit_of_the_account_is_noticed(
    module: str, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice(module, before, after, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize(("module", "before", "after"), EDITS, ids=range(len(EDITS)))
def test_every_edit_of_the_account_is_noticed(
    module: str, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice(module, before, after, monkeypatch)


def notice(module: str, before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give everything again, with an edit of the account, until a difference shows."""
    for name in MODULES:
        text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        if name == module:
            assert text.count(before) == 1
            text = text.replace(before, after)
        made = types.ModuleType(f"tests.account.{name}")
        monkeypatch.setitem(sys.modules, made.__name__, made)
        exec(compile(text, f"{name}.py, edited", "exec"), made.__dict__)
    for found in sources():  # which are recorded with the account as it is
        with pytest.MonkeyPatch.context() as patch:
            for name in ("Account", "Patience", "ImpossibleError"):
                patch.setattr(beside, name, getattr(made, name))
            if any(map(difference, found)):
                return
    pytest.fail("nothing was noticed")


def test_without_an_edit_there_is_nothing_to_notice() -> None:
    for found in (played(0), simulated(SEEDS[0])):
        assert found
        assert not any(map(difference, found))
