"""The file format of recorded trials: writes a machine's inputs, effects and states, and reads the inputs back.

A recorded trial is a text file with one JSON object a line, so that two files can be compared line by line. The first
line has the version of the format and the trial's rules. Then come, for each input, a line with `in`; a line with `out`
for each effect, in order; and a line with the state (`phase`) if it has changed. Messages are in protobuf's
text format.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import MISSING, asdict, fields
from typing import Any, NoReturn

from google.protobuf import text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from trio_cogment.api.common_pb2 import ActorRunTrialOutput, TakenUp, TrialParams, TrialState
from trio_cogment.api.environment_pb2 import EnvRunTrialOutput
from trio_cogment.base.errors import CogmentError, InvalidArgumentError
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.shared_message import SharedMessage, SharedSample
from trio_cogment.trial import (
    ENVIRONMENT,
    NO_PARTICIPANT,
    Announce,
    ArmTimer,
    Begin,
    Close,
    Connect,
    DisarmTimer,
    Effect,
    EmitSample,
    Event,
    HalfClosed,
    HardEnd,
    Joined,
    Lost,
    Note,
    ParametersComplete,
    Received,
    Send,
    SendShared,
    SoftEnd,
    Timer,
    TimerFired,
    TimerKind,
    TrialMachine,
    TrialRules,
    validate_params,
)

#: The first line's key; its value is the version of the format.
FORMAT = "trio_cogment_trial"
VERSION = 1

_INPUTS: dict[str, type[Any]] = {
    "begin": Begin,
    "parameters": ParametersComplete,
    "joined": Joined,
    "received": Received,
    "half closed": HalfClosed,
    "lost": Lost,
    "timer": TimerFired,
    "soft end": SoftEnd,
    "hard end": HardEnd,
}
_OUTPUTS: dict[str, type[Any]] = {
    "connect": Connect,
    "send": Send,
    "close": Close,
    "arm": ArmTimer,
    "disarm": DisarmTimer,
    "sample": EmitSample,
    "announce": Announce,
    "note": Note,
}
_NAMES = {kind: name for kinds in (_INPUTS, _OUTPUTS) for name, kind in kinds.items()}
_NAMES[SendShared] = _NAMES[Send]
# Knows no types: what is packed in an Any is written as the bytes it is, whatever this process has imported.
_NO_TYPES = DescriptorPool()


#: Rules that older files do not have, and newer ones only if they are not the defaults, with which those trials ran.
_LATER_RULES = frozenset(("max_said_bytes_per_tick", "max_held_back_bytes", "checkpoint_ticks", "checkpoint_seconds"))


class TrialFileError(InvalidArgumentError):
    """A text is not a recorded trial; the message names the line, and what was expected there."""


def refuse(number: int, text: str) -> NoReturn:
    """Raise `TrialFileError` about a line.

    Raises:
        TrialFileError: always.
    """
    raise TrialFileError(f"line {number}: {text}")


# Writing


def _message(message: Message | SharedMessage) -> str:
    if isinstance(message, SharedMessage):
        message = message.whole()
    text: str = text_format.MessageToString(message, as_one_line=True, as_utf8=True, descriptor_pool=_NO_TYPES)
    return text


def _rules(rules: TrialRules) -> dict[str, Any]:
    usual = asdict(TrialRules())
    return {name: value for name, value in asdict(rules).items() if name not in _LATER_RULES or value != usual[name]}


def _timer(timer: Timer) -> dict[str, Any]:
    of_trial = timer.participant == NO_PARTICIPANT
    return {"timer": timer.kind.name} | ({} if of_trial else {"participant": timer.participant})


def _error(error: CogmentError | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"


#: By the names of the fields of events and effects; those that are not here are written as they are.
_WRITERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "message": lambda value: {"message": _message(value)},
    "params": lambda value: {"params": _message(value)},
    "sample": lambda value: {"sample": _message(value.whole() if isinstance(value, SharedSample) else value)},
    "timer": _timer,
    "state": lambda value: {"state": TrialState.Name(value)},
    "error": lambda value: {"error": _error(value)},
    "cause": lambda value: {"cause": value.label},
    "held_back_bytes": lambda value: {} if value is None else {"held_back_bytes": value},
    "taken_up": lambda value: {} if value is None else {"taken_up": _message(value)},
}


def line_of(thing: Event | Effect) -> dict[str, Any]:
    """Return the line of an input or an effect."""
    name = _NAMES[type(thing)]
    line: dict[str, Any] = {"in" if name in _INPUTS else "out": name}
    for field in fields(thing):
        write = _WRITERS.get(field.name)
        value = getattr(thing, field.name)
        line |= {field.name: value} if write is None else write(value)
    return line


def state_of(machine: TrialMachine) -> dict[str, Any]:
    """Return the line of the state a machine is in."""
    streams = {str(index): one.state.name for index, one in sorted(machine.participants.items())}
    return {"phase": machine.phase.name, "tick": machine.tick_id, "streams": streams}


def header_of(machine: TrialMachine) -> dict[str, Any]:
    """Return the first line."""
    return {
        FORMAT: VERSION,
        "trial": machine.trial_id,
        "samples": machine.collect_samples,
        "rules": _rules(machine.rules),
    }


def as_text(lines: list[dict[str, Any]]) -> str:
    """Return lines as a file has them."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


# Reading


def parse_lines(text: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the lines of a file and their numbers; empty lines are skipped.

    Raises:
        TrialFileError: there is no line, or one is not a JSON object.
    """
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "too deeply nested")
            refuse(number, f"expected a JSON object, got {line[:40]!r} ({reason})")
        if not isinstance(value, dict):
            refuse(number, f"expected a JSON object, got {line[:40]!r}")
        found.append((number, value))
    if not found:
        raise TrialFileError("expected a recorded trial, got nothing")
    return found


def take(number: int, line: dict[str, Any], name: str, kind: type[Any] | tuple[type[Any], ...], what: str) -> Any:
    """Return and remove a field of a line.

    Raises:
        TrialFileError: it is not there, or not of its kind.
    """
    value = line.pop(name, None)
    wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
    if wrong or (isinstance(value, float) and not math.isfinite(value)):
        refuse(number, f"{name}: expected {what}, got {value!r}")
    return value


def machine_of(number: int, line: dict[str, Any]) -> TrialMachine:
    """Return a machine as the first line describes it.

    Raises:
        TrialFileError: it is not a first line, or of another version.
    """
    line = dict(line)
    if FORMAT not in line:
        refuse(number, f"expected a recorded trial, whose first line has {FORMAT!r}")
    if line.pop(FORMAT) != VERSION:
        refuse(number, f"{FORMAT}: this version of trio-cogment reads version {VERSION} only")
    trial_id = take(number, line, "trial", str, "the trial's id")
    samples = take(number, line, "samples", bool, "true or false")
    given = take(number, line, "rules", dict, "an object")
    rules = {}
    for field in fields(TrialRules):
        if field.name in _LATER_RULES and field.name not in given:
            continue
        whole = isinstance(field.default, int)
        rules[field.name] = value = take(
            number, given, field.name, int if whole else (int, float), "a whole number" if whole else "a number"
        )
        if value < 0:
            refuse(number, f"{field.name}: expected 0 or more, got {value}")
    nothing_else(number, given | line)
    return TrialMachine(trial_id, rules=TrialRules(**rules), collect_samples=samples)


def nothing_else(number: int, line: dict[str, Any]) -> None:
    """Refuse what is left of a line.

    Raises:
        TrialFileError: something is.
    """
    if line:
        refuse(number, f"{next(iter(line))}: not known here")


def _read_message(number: int, name: str, text: str, message: Message) -> Any:
    try:
        return text_format.Parse(text, message, descriptor_pool=_NO_TYPES)
    except (text_format.ParseError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        refuse(number, f"{name}: not a {message.DESCRIPTOR.name} in text form: {reason}")


def _read_timer(number: int, line: dict[str, Any]) -> Timer:
    name = take(number, line, "timer", str, "a timer")
    if name not in TimerKind.__members__:
        refuse(number, f"timer: expected one of {', '.join(TimerKind.__members__)}, got {name!r}")
    of_trial = "participant" not in line
    participant = NO_PARTICIPANT if of_trial else take(number, line, "participant", int, "an index")
    return Timer(TimerKind[name], participant)


def _read_cause(number: int, line: dict[str, Any]) -> EndCause:
    causes = {cause.label: cause for cause in EndCause}
    name = take(number, line, "cause", str, "the cause of an end")
    if name not in causes:
        refuse(number, f"cause: expected one of {', '.join(causes)}, got {name!r}")
    return causes[name]


def read_input(number: int, line: dict[str, Any]) -> Event:
    """Return the input of a line, whose `at` and `wall_ns` are taken already.

    Raises:
        TrialFileError: it cannot be read.
    """
    name = take(number, line, "in", str, "a name")
    kind = _INPUTS.get(name)
    if kind is None:
        refuse(number, f"in: expected one of {', '.join(_INPUTS)}, got {name!r}")
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name == "timer":
            values["timer"] = _read_timer(number, line)
        elif field.name == "participant":
            values["participant"] = take(number, line, "participant", int, "an index")
        elif field.default is not MISSING and field.name not in line:
            continue  # older files do not have it
        elif field.name == "held_back_bytes":
            values[field.name] = take(number, line, field.name, int, "a number of bytes")
        elif field.name == "cause":
            values["cause"] = _read_cause(number, line)
        else:
            values[field.name] = take(number, line, field.name, str, "a text")
    if kind is Received:
        message = EnvRunTrialOutput() if values["participant"] == ENVIRONMENT else ActorRunTrialOutput()
        values["message"] = _read_message(number, "message", values["message"], message)
    elif kind is ParametersComplete:
        params = _read_message(number, "params", values["params"], TrialParams())
        try:
            values["params"] = validate_params(params)
        except InvalidArgumentError as error:
            refuse(number, f"params: {error}")
        if "taken_up" in values:
            values["taken_up"] = _read_message(number, "taken_up", values["taken_up"], TakenUp())
    nothing_else(number, line)
    event: Event = kind(**values)
    return event
