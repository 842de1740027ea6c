"""The accounts of a play's trials: what each machine did, and what arrived, compared with what is right, whole.

`tests.account` says what is right. The machines are compared as they run. Then everything that a participant or a data
log read is compared with what it must have been sent: it is the beginning of that, or all of it where its stream ended
in good order or nothing stood in its way.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from tests.account.beside import AccountedMachine, Beside, DiffersError, same_detail, shown
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.testing import History
from trio_cogment.testing.fakes.behaviour import Part
from trio_cogment.trial import ENVIRONMENT, TrialRules

#: How a sample tells that others before it are lost.
_LOST = re.compile(r"\d+ samples? before this one (was|were) lost: ")
#: How much of what somebody saw is shown.
_SHOWN = 12


class Accounts:
    """Every trial of one orchestrator, with its account, and everything that its participants and data logs read."""

    def __init__(self) -> None:
        #: By trial: an id is free again when a start has failed.
        self._trials: dict[str, list[Beside]] = defaultdict(list)
        self._sessions: dict[Part, list[Any]] = {}

    def machine(self, trial_id: str, *, rules: TrialRules) -> AccountedMachine:
        """Make the machine of a trial (`Orchestrator.make_machine`)."""
        made = AccountedMachine(trial_id, rules=rules)
        self._trials[trial_id].append(made.beside)
        return made

    def sees(self, part: Part, message: Any) -> None:
        """Somebody reads a message (`FakeActor(sees=...)`)."""
        self._sessions.setdefault(part, []).append(message)

    def check(self, history: History) -> None:
        """Raise DiffersError for the first thing that is not as it should be."""
        for trials in self._trials.values():
            for beside in trials:
                beside.check()
        sessions = Counter((part.trial_id, part.name) for part in self._sessions)
        for part, read in self._sessions.items():
            # What came before a data log's stream broke, and what was lost with it, is for the checkers of samples.
            whole = part.outcome == "left" and (part.kind != "datalog" or sessions[part.trial_id, part.name] == 1)
            self._check_session(part, read, whole=whole)
        self._check_watchers(history)

    def check_whole(self, trial_id: str, names: Iterable[str]) -> None:
        """Check that participants of a trial, or its data log, have read everything; nothing stood in their way."""
        for name in names:
            sessions = [
                (part, read) for part, read in self._sessions.items() if (part.trial_id, part.name) == (trial_id, name)
            ]
            for beside in self._trials[trial_id]:
                if expected_by(beside, name) and not sessions:
                    raise DiffersError(
                        f"{trial_id}: {name} has read nothing\nexpected: {_lines(expected_by(beside, name))}"
                    )
            for part, read in sessions:
                self._check_session(part, read, whole=True)

    def _check_session(self, part: Part, read: list[Any], *, whole: bool) -> None:
        judge = _samples_differ if part.kind == "datalog" else _messages_differ
        found = [judge(beside, part.name, read, whole=whole) for beside in self._trials[part.trial_id]]
        if "" not in found:
            how = found[0] if found else "it has no trial"
            raise DiffersError(f"trial {part.trial_id}: {part.who} ({part.outcome or 'still there'}): {how}")

    def _check_watchers(self, history: History) -> None:
        for trial_id, trials in self._trials.items():
            states = [detail for beside in trials for what, _, detail in beside.expected if what == "state"]
            seen = [e.details["state"] for e in history.of_trial(trial_id) if (e.who, e.what) == ("near", "state")]
            if seen != states[: len(seen)]:
                raise DiffersError(f"{trial_id}: near saw the states {seen}\nexpected: {states}")
            outcomes = [TrialOutcome.of(trial_id, b.account.outcome) for b in trials if b.account.outcome is not None]
            for event in history.of_trial(trial_id):
                if event.what == "outcome" and event.details not in map(_as_noted, outcomes):
                    raise DiffersError(f"{event}\nexpected: {[_as_noted(outcome) for outcome in outcomes]}")


def _as_noted(outcome: TrialOutcome) -> dict[str, Any]:
    """Return what `record_states` notes of a trial's end."""
    losses = [[loss.participant, loss.cause.label] for loss in outcome.losses]
    return {
        "cause": outcome.cause.label,
        "participant": outcome.participant,
        "ticks": outcome.ticks,
        "losses": losses,
    }


def expected_by(beside: Beside, name: str) -> list[Any]:
    """Return the messages that somebody must have been sent, in order."""
    params = beside.account.params
    numbers = {actor.name: number for number, actor in enumerate(params.actors)} | {
        params.environment.name: ENVIRONMENT
    }
    number = numbers.get(name)
    return [detail for what, who, detail in beside.expected if what == "message" and who == number]


def _messages_differ(beside: Beside, name: str, read: list[Any], *, whole: bool) -> str:
    expected = expected_by(beside, name)
    for number, message in enumerate(read):
        if number >= len(expected):
            return _told(number, "nothing more", message, read)
        if not same_detail(expected[number], message):
            return _told(number, expected[number], message, read)
    if whole and len(read) < len(expected):
        return _told(len(read), expected[len(read)], "nothing more", read)
    return ""


def _samples_differ(beside: Beside, _name: str, read: list[Any], *, whole: bool) -> str:
    """Say how a data log's stream differs: the parameters come first, then samples, in order, none that is not right.

    A stream that follows a broken one begins in the middle, and where samples were lost there is a gap: the checkers of
    samples look whether that is told.
    """
    params, *messages = read
    if not same_detail(beside.account.params, params.trial_params):
        return _told(0, beside.account.params, params, read)
    expected = [detail for what, _, detail in beside.expected if what == "sample"]
    position = 0
    for number, message in enumerate(messages, 1):
        sample = _without_losses(message.sample)
        if expected and message.sample.info.end.samples_lost and same_detail(_how_it_ended(expected[-1]), sample):
            position = len(expected)  # a log that cannot store what it was sent is told at least this
            continue
        while position < len(expected) and not same_detail(expected[position], sample):
            position += 1
        if position == len(expected):
            of_tick = [one for one in expected if one.info.tick_id == sample.info.tick_id]
            return _told(number, of_tick[0] if of_tick else "nothing more", message, read)
        position += 1
    if (
        whole
        and len(messages) < len(expected)
        and not any(_LOST.match(e) for m in messages for e in m.sample.info.special_events)
    ):
        return _told(len(read), "all of them", "nothing more", read)
    return ""


def _how_it_ended(last: DatalogSample) -> DatalogSample:
    """Return what of a trial's last sample is left when its log could not store the sample itself."""
    return DatalogSample(info=last.info)


def _without_losses(sample: DatalogSample) -> DatalogSample:
    told = [event for event in sample.info.special_events if _LOST.match(event)]
    if not told and not sample.info.end.samples_lost:
        return sample
    plain = DatalogSample()
    plain.CopyFrom(sample)
    for event in told:
        plain.info.special_events.remove(event)
    if plain.info.HasField("end"):
        plain.info.end.samples_lost = 0
    return plain


def _told(number: int, expected: Any, seen: Any, read: list[Any]) -> str:
    found = f"number {number + 1} of what it read\nexpected: {_line(expected)}\nseen:     {_line(seen)}"
    return f"{found}\nbefore that:\n{_lines(read[:number])}"


def _line(message: Any) -> str:
    return message if isinstance(message, str) else shown(("message", 0, message))


def _lines(messages: list[Any]) -> str:
    return "\n".join(f"  {_line(message)}" for message in messages[-_SHOWN:])
