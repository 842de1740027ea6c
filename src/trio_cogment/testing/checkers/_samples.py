"""Checkers over the samples of data logs: every tick has one with its content, and acknowledged ones are kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from trio_cogment.testing.checkers._grouping import events_by
from trio_cogment.testing.fakes.contents import action_content, rewarded
from trio_cogment.testing.history import History


def samples_come_once(history: History) -> Iterator[str]:
    """Each stream of a data log gets a tick at most once, in order; all its streams together get every tick.

    A stream that follows a broken one begins with what the broken one may not have taken, so ticks come again there.
    Of what could not be kept for it, a data log that was away for too long is told the number. What was under way when
    the stream broke of one that had not answered yet is lost.
    """
    last_seen: dict[str, int] = {}
    for event in history:
        if event.what == "observation":
            last_seen[event.trial_id] = max(last_seen.get(event.trial_id, -1), event.details["tick"])
    complete = {event.trial_id for event in history if event.what == "complete"}
    for (trial_id, who), events in events_by(history, "opened", "sample", "late sample").items():
        streams: list[list[int]] = [[]]
        # What is late may say it, too. A message that comes again says it again.
        lost: dict[tuple[str, int], int] = defaultdict(int)
        for event in events:
            if event.what == "opened":
                streams.append([])
                continue
            told = event.what, event.details["tick"]
            lost[told] = max(lost[told], event.details.get("lost", 0))
            if event.what == "sample":
                streams[-1].append(event.details["tick"])
        if any(ticks != sorted(set(ticks)) for ticks in streams):
            yield f"{trial_id}: {who} got samples of ticks {streams}"
            continue
        seen = sorted({tick for ticks in streams for tick in ticks})
        missing = max([*seen, last_seen.get(trial_id, -1)]) + 1 - len(seen)
        if seen and trial_id in complete and missing > sum(lost.values()) and not _broke_unanswered(history, trial_id):
            yield f"{trial_id}: {who} got only {seen} of the ticks up to {last_seen.get(trial_id, -1)}"


def _broke_unanswered(history: History, trial_id: str) -> bool:
    """Tell whether a stream to a trial's data log broke before any answer had come back from it.

    The log may not even have seen the stream. Nor is an answer of its known to have arrived until some samples follow.
    """
    calls, samples, answers = 0, 0, False
    for event in history:
        if event.what == "call" and (event.details["method"], event.details["trial"]) == ("RunTrialDatalog", trial_id):
            calls += 1
            if calls > 1:
                return True
        elif event.trial_id == trial_id and event.who.startswith("datalog"):
            samples += answers and event.what == "sample"
            answers = answers or event.what == "answers"
            if samples > 1:
                return False
            if event.what == "closed":
                return bool(event.details["outcome"] != "left")
    return False


def samples_tell_what_happened(history: History) -> Iterator[str]:
    """The sample of a tick has the actions that its environment got and the rewards that its actors got."""
    complete = {event.trial_id for event in history if event.what == "complete"}
    told: dict[tuple[str, int], set[str]] = defaultdict(set)
    sampled = set()
    for event in history:
        if event.what in ("sample", "late sample") and "actions" in event.details:
            told[event.trial_id, event.details["tick"]].update(event.details["actions"] + event.details["rewards"])
            if event.what == "sample":
                sampled.add((event.trial_id, event.details["tick"]))
            if event.details["lost"]:
                complete.discard(event.trial_id)
    for event in history:
        key = event.trial_id, event.details.get("tick", -1)
        if key not in sampled or event.trial_id not in complete:
            continue
        happened: list[str] = []
        if event.what == "actions":
            own = (action_content(name, key[1]).decode() for name in event.details["contents"])
            happened = [content for content in own if content in event.details["contents"].values()]
        elif event.what == "reward":
            happened = [note for note in event.details.get("notes", ()) if rewarded(note) is not None]
        missing = [one for one in happened if one not in told[key]]
        if missing:
            yield f"{event.trial_id}: the samples of tick {key[1]} lack {missing}, which {event.who} got"


def acknowledged_samples_are_kept(history: History) -> Iterator[str]:
    """In the end a data log's file has every tick that it made durable, once, and none that it was not sent."""
    stored: dict[str, set[int]] = defaultdict(set)
    sent: dict[str, set[int]] = defaultdict(set)
    kept: dict[str, list[int]] = {}
    for event in history:
        if event.what == "stored":
            stored[event.trial_id].add(event.details["tick"])
        elif event.what == "sample":
            sent[event.trial_id].add(event.details["tick"])
        elif event.what == "kept":
            kept[event.trial_id] = event.details["ticks"]
    for trial_id, ticks in kept.items():
        lost = sorted(stored[trial_id].difference(ticks))
        strange = sorted(set(ticks) - sent[trial_id])
        if lost or strange or len(ticks) != len(set(ticks)):
            yield f"{trial_id}: of the samples {sorted(stored[trial_id])} there are {ticks} in the file"
    for trial_id in stored:
        if trial_id not in kept and kept:
            yield f"{trial_id}: samples were stored, and nobody has looked for them"


SAMPLE_CHECKERS = (
    samples_come_once,
    samples_tell_what_happened,
    acknowledged_samples_are_kept,
)
