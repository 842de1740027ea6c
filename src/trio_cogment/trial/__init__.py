"""The trial as explicit state machines: no Trio, no I/O, no clock, no randomness, no logging.

The rules of a trial are many and meet in odd orders: an actor is lost while the last tick is acknowledged, a timeout
passes while a data log is away. As code in tasks they could be neither seen nor tested. So they are tables, and the
machine is a function of its inputs: `TrialMachine.handle(event, now, wall_ns)` takes what happened and returns, in
order, what to do about it.

There are two tables. `_stream_table.py` knows one participant's stream and decides whether a message is accepted at
all; `_trial_table.py` knows the trial and decides what an accepted one means. An event goes through the first and what
that delivers into the second; the modules beside them (`_joining`, `_ticks`, `_closing`, `_messages_and_rewards`) are
the actions that the tables name. Time comes in with each event and timers go out as effects, so a recorded list of
inputs replays to the same effects (`recording`).

A participant can never make the machine raise: what it does wrong is counted, or ends its stream. An exception is a bug
of this package.
"""

from trio_cogment.trial._events import (
    ENVIRONMENT,
    MAX_HELD_BYTES,
    MAX_HELD_MESSAGES,
    NO_PARTICIPANT,
    NOT_STARTED,
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
    SendBatch,
    SendShared,
    SoftEnd,
    Timer,
    TimerFired,
    TimerKind,
    TrialRules,
    unbatched,
)
from trio_cogment.trial._machine import TrialMachine
from trio_cogment.trial._params import buffered_ticks, validate_params, validate_trial_id, validate_user_id

__all__ = [
    "ENVIRONMENT",
    "MAX_HELD_BYTES",
    "MAX_HELD_MESSAGES",
    "NOT_STARTED",
    "NO_PARTICIPANT",
    "Announce",
    "ArmTimer",
    "Begin",
    "Close",
    "Connect",
    "DisarmTimer",
    "Effect",
    "EmitSample",
    "Event",
    "HalfClosed",
    "HardEnd",
    "Joined",
    "Lost",
    "Note",
    "ParametersComplete",
    "Received",
    "Send",
    "SendBatch",
    "SendShared",
    "SoftEnd",
    "Timer",
    "TimerFired",
    "TimerKind",
    "TrialMachine",
    "TrialRules",
    "buffered_ticks",
    "unbatched",
    "validate_params",
    "validate_trial_id",
    "validate_user_id",
]
