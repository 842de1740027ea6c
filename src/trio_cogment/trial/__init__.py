"""The trial as explicit state machines: no Trio, no I/O, no clock, no randomness, no logging.

`TrialMachine.handle(event, now, wall_ns)` takes what happened and returns what to do about it. The rules are in two
tables: `_trial_table.py` (the trial) and `_stream_table.py` (each participant's stream).
"""

from trio_cogment.trial._events import ENVIRONMENT as ENVIRONMENT
from trio_cogment.trial._events import MAX_HELD_BYTES as MAX_HELD_BYTES
from trio_cogment.trial._events import MAX_HELD_MESSAGES as MAX_HELD_MESSAGES
from trio_cogment.trial._events import NO_PARTICIPANT as NO_PARTICIPANT
from trio_cogment.trial._events import NOT_STARTED as NOT_STARTED
from trio_cogment.trial._events import Announce as Announce
from trio_cogment.trial._events import ArmTimer as ArmTimer
from trio_cogment.trial._events import Begin as Begin
from trio_cogment.trial._events import Close as Close
from trio_cogment.trial._events import Connect as Connect
from trio_cogment.trial._events import DisarmTimer as DisarmTimer
from trio_cogment.trial._events import Effect as Effect
from trio_cogment.trial._events import EmitSample as EmitSample
from trio_cogment.trial._events import Event as Event
from trio_cogment.trial._events import HalfClosed as HalfClosed
from trio_cogment.trial._events import HardEnd as HardEnd
from trio_cogment.trial._events import Joined as Joined
from trio_cogment.trial._events import Lost as Lost
from trio_cogment.trial._events import Note as Note
from trio_cogment.trial._events import ParametersComplete as ParametersComplete
from trio_cogment.trial._events import Received as Received
from trio_cogment.trial._events import Send as Send
from trio_cogment.trial._events import SoftEnd as SoftEnd
from trio_cogment.trial._events import Timer as Timer
from trio_cogment.trial._events import TimerFired as TimerFired
from trio_cogment.trial._events import TimerKind as TimerKind
from trio_cogment.trial._events import TrialRules as TrialRules
from trio_cogment.trial._machine import TrialMachine as TrialMachine
from trio_cogment.trial._params import buffered_ticks as buffered_ticks
from trio_cogment.trial._params import validate_params as validate_params
from trio_cogment.trial._params import validate_trial_id as validate_trial_id
from trio_cogment.trial._params import validate_user_id as validate_user_id
from trio_cogment.trial._relayed import Relay as Relay
