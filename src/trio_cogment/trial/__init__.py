"""The trial as explicit state machines: no Trio, no I/O, no clock, no randomness, no logging.

`TrialMachine.handle(event, now, wall_ns)` takes what happened and returns what to do about it. The rules are in two
tables: `_trial_table.py` (the trial) and `_stream_table.py` (each participant's stream).
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
    SoftEnd,
    Timer,
    TimerFired,
    TimerKind,
    TrialRules,
)
from trio_cogment.trial._machine import TrialMachine
from trio_cogment.trial._params import buffered_ticks, validate_params, validate_trial_id, validate_user_id
from trio_cogment.trial._relayed import Relay

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
    "Relay",
    "Send",
    "SoftEnd",
    "Timer",
    "TimerFired",
    "TimerKind",
    "TrialMachine",
    "TrialRules",
    "buffered_ticks",
    "validate_params",
    "validate_trial_id",
    "validate_user_id",
]
