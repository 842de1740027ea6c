"""Checkers over what is sent: observations, actions and rewards reach their receivers, in time and once.

The contents that fake participants send say whose they are (`fakes.contents`); other contents are not judged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from trio_cogment.testing.checkers._grouping import events_by, sessions
from trio_cogment.testing.fakes.contents import EVERYBODY, WRONG, action_content, greeted, rewarded, shown_to
from trio_cogment.testing.history import History, HistoryEvent


def actions_belong_to_their_tick(history: History) -> Iterator[str]:
    """An action that an environment gets was made by that actor for that tick, or is a default action, or is empty."""
    for event in history:
        if event.what == "actions":
            tick = event.details["tick"]
            for name, content in event.details["contents"].items():
                own = content.startswith(f"{name}:")
                if content == WRONG.decode() or (own and content != action_content(name, tick).decode()):
                    yield f"{event.trial_id}: the action of {name} at tick {tick} was {content!r}"


def absent_once(history: History) -> Iterator[str]:
    """An actor without an action is listed once as absent from its tick."""
    for event in history:
        if event.what == "actions":
            absent = event.details["unavailable"]
            if len(absent) != len(set(absent)):
                yield f"{event.trial_id}: tick {event.details['tick']} lacks the actors {absent}"


def wrong_observations_are_refused(history: History) -> Iterator[str]:
    """Observations for a wrong tick reach no actor."""
    for event in history:
        if event.what == "observation":
            content, tick = event.details["content"], event.details["tick"]
            made_for = shown_to(content)
            if content == WRONG.decode() or (made_for is not None and made_for[1] != tick):
                yield f"{event.trial_id}: {event.who} at tick {tick} saw {content!r}"


def observations_reach_their_actors(history: History) -> Iterator[str]:
    """An actor gets the observations that are for it, and none that is for another."""
    for event in history:
        if event.what == "observation":
            made_for = shown_to(event.details["content"])
            if made_for is not None and made_for[0] not in (_actor(event), EVERYBODY):
                tick, content = event.details["tick"], event.details["content"]
                yield f"{event.trial_id}: {event.who} at tick {tick} saw {content!r}"


def rewards_come_once(history: History) -> Iterator[str]:
    """No reward of a fake environment reaches an actor twice."""
    for (trial_id, who), events in events_by(history, "reward").items():
        counts = Counter(value for event in events for value in _values(event))
        twice = sorted(value for value, count in counts.items() if count > 1)
        if twice:
            yield f"{trial_id}: {who} got the rewards {twice} more than once"


def _values(event: HistoryEvent) -> list[float]:
    """Return the values of the rewards that come with a note, as those of a fake environment do; without notes all."""
    values: list[float] = event.details["values"]
    notes = event.details.get("notes", ())
    if len(notes) != len(values):
        return values
    return [value for value, note in zip(values, notes, strict=True) if note]


def rewards_reach_their_actors(history: History) -> Iterator[str]:
    """An actor gets the rewards that are for it, with the tick that they are for."""
    for event in history:
        for note in event.details.get("notes", ()) if event.what == "reward" else ():
            given = rewarded(note)
            if given is not None and given != (_actor(event), event.details["tick"]):
                yield f"{event.trial_id}: {event.who} got for tick {event.details['tick']} the reward {note!r}"


def rewards_come_in_time(history: History) -> Iterator[str]:
    """An actor gets the reward for a tick before its next observation, the final one included."""
    for session in sessions(history):
        got = {-1}  # before the first observation nobody has done anything
        for event in session:
            if event.what == "reward":
                notes = (rewarded(note) for note in event.details.get("notes", ()))
                got.update(given[1] for given in notes if given is not None)
            elif event.what == "observation" and shown_to(event.details["content"]) is not None:
                tick = event.details["tick"]
                if tick - 1 not in got:
                    yield f"{event.trial_id}: {event.who} saw tick {tick} without its reward for tick {tick - 1}"


def messages_reach_their_receivers(history: History) -> Iterator[str]:
    """A message reaches the receivers that it names, and names its true sender."""
    for event in history:
        said = greeted(event.details["text"]) if event.what == "message" else None
        if said is not None:
            sender, receiver, _ = said
            name = event.who.partition(" ")[2]
            if (event.details["sender"], event.details["receiver"], name) != (sender, receiver, receiver):
                yield f"{event.trial_id}: {event}"


def messages_come_once(history: History) -> Iterator[str]:
    """The messages from one participant to another come once, and in order."""
    for (trial_id, who), events in events_by(history, "message").items():
        ticks: dict[str, list[int]] = defaultdict(list)
        for said in (greeted(event.details["text"]) for event in events):
            if said is not None:
                ticks[said[0]].append(said[2])
        for sender, heard in ticks.items():
            if heard != sorted(set(heard)):
                yield f"{trial_id}: {who} heard what {sender} said at the ticks {heard}"


def _actor(event: HistoryEvent) -> str:
    return event.who.removeprefix("actor ")


CONTENT_CHECKERS = (
    actions_belong_to_their_tick,
    absent_once,
    wrong_observations_are_refused,
    observations_reach_their_actors,
    rewards_come_once,
    rewards_reach_their_actors,
    rewards_come_in_time,
    messages_reach_their_receivers,
    messages_come_once,
)
