"""Replays a recorded trial: gives its inputs to a new machine and records what that does."""

from __future__ import annotations

from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.trial.recording._trial_lines import TrialFileError, machine_of, parse_lines, read_input, refuse, take
from trio_cogment.trial.recording._trial_recorder import RecordingMachine


def replay(text: str) -> str:
    """Give a recorded trial's inputs to a new machine, with their times, and return what is recorded then.

    The result is equal to `text` if this version does the same as the version that recorded it.

    Raises:
        TrialFileError: `text` is not a recorded trial, is of another version, or is broken; the message names the line.
    """
    (number, header), *lines = parse_lines(text)
    blank = machine_of(number, header)
    machine = RecordingMachine(blank.trial_id, rules=blank.rules, collect_samples=blank.collect_samples)
    before = 0.0
    inputs = 0
    for number, line in lines:
        if "in" not in line:
            if not ("out" in line or "phase" in line):
                refuse(number, "expected an object with 'in', 'out' or 'phase'")
            continue
        inputs += 1
        now = take(number, line, "at", (int, float), "seconds")
        wall_ns = take(number, line, "wall_ns", int, "nanoseconds")
        if now < before:
            refuse(number, f"at: expected {before} or later, got {now}")
        before = now
        event = read_input(number, line)
        try:
            machine.handle(event, now, wall_ns)
        except LocalProtocolError:
            pass  # recorded; it may have been so the first time
        except Exception as error:
            # What no orchestrator would feed, such as an actor's message before there are actors.
            raise TrialFileError(
                f"line {number}: the machine cannot take this: {type(error).__name__}: {error}"
            ) from error
    if not inputs:
        raise TrialFileError("expected inputs, got none")
    return machine.recorded.text()
