"""The account judges: what a trial does otherwise is told, and so is an account that says something else itself."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.account import beside
from tests.account.beside import AccountedMachine, DiffersError
from tests.trial.harness import CLIENT, END, LAST, LAST_ACK, Play, actor, make_params
from trio_cogment.trial import ENVIRONMENT, TrialRules
from trio_cogment.trial._trial_table import Input, Phase

FOLDER = Path(__file__).parent
MODULES = ("people", "ticks", "account")


def whole_story() -> Play:
    """Play a trial in which a little of everything happens."""
    params = make_params(
        actor("a", response_timeout=5),
        actor("b", "other", optional=True, default=b"D", response_timeout=5),
        actor("c", optional=True, endpoint=CLIENT),
        actor("late", optional=True, initial_connection_timeout=3),
        nb_buffered_ticks=3,
        exclude=["Messages "],
    )
    rules = TrialRules(max_held_messages=2, max_said_per_tick=6)
    play = Play(params, rules=rules).begin().ready(0, 1)
    for text in (b"1", b"2", b"3"):
        play.tell(0, "*", text)
    play.pass_time(4)
    play.join("c")
    play.environment_ready()
    play.observe()
    play.reward(ENVIRONMENT, "*", (1, 1), (5, 0.25), (100, 0), (100, -1))
    play.tell(1, "other.*")
    play.tell(1, "cls.c")
    play.act(0, 1, 2)
    play.observe()
    play.reward(0, "other.b", (2, 1), tick_id=0)
    play.act(0)
    play.pass_time(6)  # b is absent
    play.act(2)
    play.observe(actors_map=[0])
    play.observe()
    play.act(1)
    play.lose(1)
    for _ in range(7):
        play.tell(ENVIRONMENT, "a")
    play.act(0, 2)
    play.observe()
    play.reward(ENVIRONMENT, "a", (7, 1), tick_id=0)
    play.soft()
    play.act(2, 0)
    play.reward(ENVIRONMENT, "c", (4, 1))
    play.observe()
    play.ack(ENVIRONMENT, 0)
    play.say(2, END, details="ValueError: no")
    play.pass_time(30)
    assert play.is_over()
    return play


def hard_end() -> Play:
    """Play one that is broken off in the middle of a tick."""
    play = Play(make_params(actor("a"), actor("b", default=b"D"), max_steps=1)).start()
    play.observe()
    play.act(0)
    play.lose(1)
    return play


def steps_used_up() -> Play:
    """Play one whose environment does not acknowledge its end."""
    play = Play(make_params(max_steps=1)).start()
    for _ in range(2):
        play.observe()
        play.act(0, 1)
    play.observe()
    play.ack(0, 1)
    play.pass_time(60)
    return play


def tell_all() -> None:
    for story in (whole_story, hard_end, steps_used_up):
        story()


#: Edits of the account, not of what it judges.
EDITS = [
    ("people", "total += source.value * source.confidence", "total += source.value"),
    ("people", "if source.confidence > 0]", "if source.confidence]"),
    ("people", 'name in ("*", actor.name)', "name == actor.name"),
    ("people", '        return list(actors)\n', '        return actors[1:]\n'),
    ("ticks", "TrialState.ENDED", "TrialState.TERMINATING"),
    ("ticks", "self._at_once - 1", "self._at_once"),
    ("ticks", "name.strip().lower()", "name"),
    ("ticks", "tick_id=NO_TICK, content=self.actions[number].content", "tick_id=NO_TICK"),
    ("ticks", "default_actors=self.defaults,", ""),
    ("account", "len(receiver.held) < self._patience.max_held_messages", "True"),
    ("account", "<= self._patience.max_said_per_tick", "< self._patience.max_said_per_tick"),
    ("account", "tick = actor.due[-1][0]", "tick = self.tick"),
    ("account", "0 < self.params.max_steps <= self.tick", "0 < self.params.max_steps < self.tick"),
    ("account", "            if not self._answered:\n                self._fill_in()\n", ""),
    ("account", "            self._contents.pop(actor.number, None)\n", ""),
    ("account", "self._how = SOFT if self._end_asked else STEP_LIMIT", "self._how = STEP_LIMIT"),
    ("account", "            self._ack_loss = cause, text, person.name\n", "            pass\n"),
    ("account", '            self._limit("RESPONSE", actor.number, actor.params.response_timeout)\n', ""),
    ("account", "        self._announce(TrialState.ENDED)\n", "        pass\n"),
    ("account", "self._patience.actor_ack_timeout_seconds", "self._patience.environment_ack_timeout_seconds"),
    ("account", "        if self.stage is Stage.RUNNING:\n            self._announce(TrialState.TERMINATING)\n", ""),
]  # fmt: skip


@pytest.mark.parametrize("story", [whole_story, hard_end, steps_used_up])
def test_they_agree(story: Callable[[], Play]) -> None:
    play = story()
    assert not play.beside.difference
    assert play.is_over()


@pytest.mark.parametrize(("module", "before", "after"), EDITS)
def test_every_edit_of_the_account_is_noticed(
    module: str, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in MODULES:
        text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        if name == module:
            assert text.count(before) == 1
            text = text.replace(before, after)
        made = types.ModuleType(f"tests.account.{name}")
        monkeypatch.setitem(sys.modules, made.__name__, made)
        exec(compile(text, f"{name}.py, edited", "exec"), made.__dict__)
    for name in ("Account", "Patience", "ImpossibleError"):
        monkeypatch.setattr(beside, name, getattr(made, name))
    with pytest.raises(DiffersError):
        tell_all()


def test_a_trial_that_does_otherwise_is_told_with_what_led_there(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play().start()
    after, _, announced = play.machine.rows[Phase.WAIT_ACKS][Input.LAST_ACK]
    monkeypatch.setitem(play.machine.rows[Phase.WAIT_ACKS], Input.LAST_ACK, (after, lambda *_: None, announced))
    play.say(ENVIRONMENT, LAST)
    play.observe()
    play.ack(0, 1)
    with pytest.raises(DiffersError) as caught:
        play.say(ENVIRONMENT, LAST_ACK)
    text = str(caught.value)
    assert text.startswith("trial t is not as its account says")
    assert "\nexpected: message to -1: state: END" in text
    assert "\nseen:     nothing more\n" in text
    assert text.splitlines()[-1].endswith("-1 says state: LAST_ACK")


def test_a_machine_for_an_orchestrator_has_its_account() -> None:
    machine = AccountedMachine("t", rules=TrialRules())
    assert Play(make_params()).machine.handle is not machine.handle
    play = Play()
    play.machine = machine
    play.beside = machine.beside
    play.begin().ready(0, 1)
    machine.beside.check()
    assert [what for what, _, _ in machine.beside.expected][:2] == ["state", "state"]
