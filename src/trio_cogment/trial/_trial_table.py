"""The trial as a table: which phase follows which input, and what is done about it.

Rule 1: every change of a trial's phase is in this file, and a phase depends on nothing but the inputs. What a phase
*remembers* (which actors acted, whose LAST_ACK is missing, whether the end was asked for) lives in the machine. Where
such a memory decides the next phase, it does so by choosing the input before the table is asked. ACTIONS_COMPLETE and
LAST_ACTIONS_COMPLETE are therefore two inputs, although the same thing happened: the last action of a tick came in. At
a rate it is a third one, ACTIONS_BEFORE_TIME, and the two come when the tick is due.

Rule 2: this file does not know what a stream is. A participant that breaks the rules of its stream is, here, a
participant that was lost; `_stream_table.py` knows the rest.

Theory of operation: the machine turns each event into one input and looks up `(phase, input)`. The entry gives the next
phase and an action, the name of a function that produces the effects. The phase changes first, so an action sees the
phase that it leads to. An action may fire one more input at its end: the loss of an actor can complete the actions of a
tick, an observation for nobody is answered at once, and WAIT_ACKS with nobody to wait for is over at once.

An absent pair is a bug in this package, reported before anything has changed. What a *participant* can cause is never
absent in a phase in which there are participants, whatever it sends and however late: a peer must not be able to crash
a trial. Such a pair has the action NOTHING, or one that counts the message and ignores it.

The normal way is a straight line: INITIALIZING, PENDING, RUNNING, WAIT_FINAL, WAIT_ACKS, ENDED. A soft end follows it:
it is a mark, and the next action set that is complete becomes the last one. An environment may also end the trial by
itself; it sends LAST, and its next observation set leads straight to WAIT_ACKS, because there is no action set left to
send. A hard end leads to ENDED from everywhere, in one step and without waiting for anybody.

Public states: peers see a TrialState, which has one TERMINATING for two phases here. One input can also cause two
changes that watchers must both see. `ANNOUNCED` is that translation. Every state is announced before the action runs,
except ENDED: when a watcher learns of it, END has gone to everybody and the last sample is out.

Where the table falls short:

- whether a soft end was asked for (`end_marked`) and whether the environment said LAST (`final_marked`) are flags. As
  phases they would multiply PENDING and RUNNING by three, with no difference in who may do what;
- "all actors are ready" and "everybody has acknowledged" are sets of the machine that become empty;
- the rate is a number, and so are the times that were missed: the clock is a timer like others (`_rates`);
- the tick is a number, and the machine checks an observation set's tick and map before it asks the table. A set that is
  refused must leave no trace, and by the time an action runs the phase has changed;
- the table does not know why a participant acknowledges early. A LAST_ACK before WAIT_ACKS does nothing here; the
  stream's own state keeps it, and is looked at when the waiting begins.
"""

from __future__ import annotations

import enum
from typing import Final

from trio_cogment.api.common_pb2 import TrialState


class Phase(enum.IntEnum):
    """Where a trial is."""

    CREATED = enum.auto()
    INITIALIZING = enum.auto()
    PENDING = enum.auto()
    RUNNING = enum.auto()
    #: LAST went to the environment: its next observation set is the final one.
    WAIT_FINAL = enum.auto()
    #: The final observation went to the actors: LAST_ACKs are awaited.
    WAIT_ACKS = enum.auto()
    ENDED = enum.auto()


class Input(enum.IntEnum):
    """What can happen to a trial."""

    BEGIN = enum.auto()
    PARAMETERS_COMPLETE = enum.auto()
    ACTOR_JOINED = enum.auto()
    #: Every actor is ready or left out; also when none remains.
    ACTORS_SETTLED = enum.auto()
    OBSERVATION_SET = enum.auto()
    #: An observation set after the environment's own LAST.
    FINAL_OBSERVATION_SET = enum.auto()
    ENVIRONMENT_LAST = enum.auto()
    ACTION = enum.auto()
    ACTIONS_COMPLETE = enum.auto()
    #: The actions are complete, and the tick ends by the clock.
    ACTIONS_BEFORE_TIME = enum.auto()
    #: The time of a tick at a rate is over.
    TICK_DUE = enum.auto()
    #: An observation set that came after the time at which its tick was to end.
    LATE_OBSERVATION_SET = enum.auto()
    #: The actions are complete and the end was asked for, or the steps are used up.
    LAST_ACTIONS_COMPLETE = enum.auto()
    #: The actions are complete but the environment said LAST: it does not want them.
    UNWANTED_ACTIONS_COMPLETE = enum.auto()
    #: The actions are complete except for a required actor's.
    REQUIRED_ACTION_MISSING = enum.auto()
    REWARD = enum.auto()
    MESSAGE = enum.auto()
    SOFT_END = enum.auto()
    LAST_ACK = enum.auto()
    ACK_TIMEOUT = enum.auto()
    NOBODY_LEFT_TO_ACK = enum.auto()
    OPTIONAL_ACTOR_LOST = enum.auto()
    REQUIRED_ACTOR_LOST = enum.auto()
    RESPONSE_TIMEOUT = enum.auto()
    ENVIRONMENT_LOST = enum.auto()
    PATIENCE_OVER = enum.auto()
    #: Asked for, or the trial failed, or it is stale.
    HARD_END = enum.auto()


class Action(enum.IntEnum):
    """What the machine does about it; each name is a function, listed in `_machine`."""

    NOTHING = enum.auto()
    OPEN_TO_ACTORS = enum.auto()
    WELCOME = enum.auto()
    START_ENVIRONMENT = enum.auto()
    NEXT_TICK = enum.auto()
    FINAL_TICK = enum.auto()
    MARK_FINAL = enum.auto()
    TAKE_ACTION = enum.auto()
    IGNORE_UNEXPECTED_ACTION = enum.auto()
    SEND_ACTIONS = enum.auto()
    END_TICK = enum.auto()
    MISS_TICKS = enum.auto()
    SEND_LAST_AND_ACTIONS = enum.auto()
    TAKE_REWARD = enum.auto()
    RELAY_MESSAGE = enum.auto()
    MARK_END = enum.auto()
    COUNT_ACK = enum.auto()
    COUNT_MISSING_ACK = enum.auto()
    LEAVE_OUT = enum.auto()
    GO_ON_WITHOUT = enum.auto()
    ACT_ABSENT = enum.auto()
    FINISH = enum.auto()
    BREAK_OFF = enum.auto()
    BREAK_OFF_MID_TICK = enum.auto()


_P, _I, _A = Phase, Input, Action

TRANSITIONS: Final[dict[tuple[Phase, Input], tuple[Phase, Action]]] = {
    # CREATED: nobody has heard of it. A start that fails before it is announced ends here.
    (_P.CREATED, _I.BEGIN): (_P.INITIALIZING, _A.NOTHING),
    (_P.CREATED, _I.HARD_END): (_P.ENDED, _A.BREAK_OFF),
    # INITIALIZING: hooks run and endpoints are resolved; there are no participants. Hooks may take a minute, so both
    # ends can be asked for already: a soft end is kept for the first tick, a hard one makes the start fail.
    (_P.INITIALIZING, _I.PARAMETERS_COMPLETE): (_P.PENDING, _A.OPEN_TO_ACTORS),
    (_P.INITIALIZING, _I.SOFT_END): (_P.INITIALIZING, _A.MARK_END),
    (_P.INITIALIZING, _I.PATIENCE_OVER): (_P.ENDED, _A.BREAK_OFF),
    (_P.INITIALIZING, _I.HARD_END): (_P.ENDED, _A.BREAK_OFF),
    # PENDING: first the actors come, all in parallel; when that is settled, the environment. Its first set starts
    # the trial. An environment may say LAST before it: then tick 0 is the only one.
    (_P.PENDING, _I.ACTOR_JOINED): (_P.PENDING, _A.WELCOME),
    (_P.PENDING, _I.ACTORS_SETTLED): (_P.PENDING, _A.START_ENVIRONMENT),
    (_P.PENDING, _I.OBSERVATION_SET): (_P.RUNNING, _A.NEXT_TICK),
    (_P.PENDING, _I.FINAL_OBSERVATION_SET): (_P.WAIT_ACKS, _A.FINAL_TICK),
    (_P.PENDING, _I.ENVIRONMENT_LAST): (_P.PENDING, _A.MARK_FINAL),
    # Its stream allows it to act, and a peer that is early by mistake is not a reason to end a trial.
    (_P.PENDING, _I.ACTION): (_P.PENDING, _A.IGNORE_UNEXPECTED_ACTION),
    (_P.PENDING, _I.REWARD): (_P.PENDING, _A.TAKE_REWARD),
    (_P.PENDING, _I.MESSAGE): (_P.PENDING, _A.RELAY_MESSAGE),
    (_P.PENDING, _I.SOFT_END): (_P.PENDING, _A.MARK_END),
    # The environment's, after its own LAST; its stream's state remembers it (the same in the next two phases).
    (_P.PENDING, _I.LAST_ACK): (_P.PENDING, _A.NOTHING),
    (_P.PENDING, _I.OPTIONAL_ACTOR_LOST): (_P.PENDING, _A.LEAVE_OUT),
    (_P.PENDING, _I.REQUIRED_ACTOR_LOST): (_P.ENDED, _A.BREAK_OFF),
    (_P.PENDING, _I.ENVIRONMENT_LOST): (_P.ENDED, _A.BREAK_OFF),
    (_P.PENDING, _I.PATIENCE_OVER): (_P.ENDED, _A.BREAK_OFF),
    (_P.PENDING, _I.HARD_END): (_P.ENDED, _A.BREAK_OFF),
    # RUNNING: observation set, actions, action set, again and again.
    (_P.RUNNING, _I.OBSERVATION_SET): (_P.RUNNING, _A.NEXT_TICK),
    (_P.RUNNING, _I.FINAL_OBSERVATION_SET): (_P.WAIT_ACKS, _A.FINAL_TICK),
    (_P.RUNNING, _I.ENVIRONMENT_LAST): (_P.RUNNING, _A.MARK_FINAL),
    (_P.RUNNING, _I.ACTION): (_P.RUNNING, _A.TAKE_ACTION),
    (_P.RUNNING, _I.ACTIONS_COMPLETE): (_P.RUNNING, _A.SEND_ACTIONS),
    (_P.RUNNING, _I.LAST_ACTIONS_COMPLETE): (_P.WAIT_FINAL, _A.SEND_LAST_AND_ACTIONS),
    # At a rate: what is complete too early waits for its time, and what is not complete then is made up. Where the
    # environment is late, the times that have passed are missed and not made up for, and the next one counts.
    (_P.RUNNING, _I.ACTIONS_BEFORE_TIME): (_P.RUNNING, _A.NOTHING),
    (_P.RUNNING, _I.TICK_DUE): (_P.RUNNING, _A.END_TICK),
    (_P.RUNNING, _I.LATE_OBSERVATION_SET): (_P.RUNNING, _A.MISS_TICKS),
    # The environment said LAST and computes the final set: an action set now would be one that it does not read.
    (_P.RUNNING, _I.UNWANTED_ACTIONS_COMPLETE): (_P.RUNNING, _A.NOTHING),
    (_P.RUNNING, _I.REQUIRED_ACTION_MISSING): (_P.ENDED, _A.BREAK_OFF),
    (_P.RUNNING, _I.REWARD): (_P.RUNNING, _A.TAKE_REWARD),
    (_P.RUNNING, _I.MESSAGE): (_P.RUNNING, _A.RELAY_MESSAGE),
    (_P.RUNNING, _I.SOFT_END): (_P.RUNNING, _A.MARK_END),
    (_P.RUNNING, _I.LAST_ACK): (_P.RUNNING, _A.NOTHING),
    (_P.RUNNING, _I.OPTIONAL_ACTOR_LOST): (_P.RUNNING, _A.GO_ON_WITHOUT),
    (_P.RUNNING, _I.REQUIRED_ACTOR_LOST): (_P.ENDED, _A.BREAK_OFF_MID_TICK),
    (_P.RUNNING, _I.RESPONSE_TIMEOUT): (_P.RUNNING, _A.ACT_ABSENT),
    (_P.RUNNING, _I.ENVIRONMENT_LOST): (_P.ENDED, _A.BREAK_OFF),
    (_P.RUNNING, _I.PATIENCE_OVER): (_P.ENDED, _A.BREAK_OFF),
    (_P.RUNNING, _I.HARD_END): (_P.ENDED, _A.BREAK_OFF),
    # WAIT_FINAL: the environment owes its final set. Actors have nothing to do any more, so even a required one may be
    # lost without harm. Only the environment's loss ends the trial, because without its set there is nothing to close
    # with. Whether that set is marked final makes no difference here.
    (_P.WAIT_FINAL, _I.OBSERVATION_SET): (_P.WAIT_ACKS, _A.FINAL_TICK),
    (_P.WAIT_FINAL, _I.FINAL_OBSERVATION_SET): (_P.WAIT_ACKS, _A.FINAL_TICK),
    (_P.WAIT_FINAL, _I.ENVIRONMENT_LAST): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.ACTION): (_P.WAIT_FINAL, _A.IGNORE_UNEXPECTED_ACTION),
    (_P.WAIT_FINAL, _I.ACTIONS_COMPLETE): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.LAST_ACTIONS_COMPLETE): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.ACTIONS_BEFORE_TIME): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.TICK_DUE): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.LATE_OBSERVATION_SET): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.UNWANTED_ACTIONS_COMPLETE): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.REQUIRED_ACTION_MISSING): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.REWARD): (_P.WAIT_FINAL, _A.TAKE_REWARD),
    (_P.WAIT_FINAL, _I.MESSAGE): (_P.WAIT_FINAL, _A.RELAY_MESSAGE),
    (_P.WAIT_FINAL, _I.SOFT_END): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.LAST_ACK): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.OPTIONAL_ACTOR_LOST): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.REQUIRED_ACTOR_LOST): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.RESPONSE_TIMEOUT): (_P.WAIT_FINAL, _A.NOTHING),
    (_P.WAIT_FINAL, _I.ENVIRONMENT_LOST): (_P.ENDED, _A.BREAK_OFF),
    (_P.WAIT_FINAL, _I.PATIENCE_OVER): (_P.ENDED, _A.BREAK_OFF),
    (_P.WAIT_FINAL, _I.HARD_END): (_P.ENDED, _A.BREAK_OFF),
    # WAIT_ACKS: the final observation went out, so nothing that fails now can spoil the trial: a loss is a missing ack,
    # of the environment too. Messages are still relayed; rewards are kept, because there is no further observation that
    # they could precede, and go out right before END. Another observation set is ignored. Patience was disarmed on
    # entering: from here on each ack has a timer.
    (_P.WAIT_ACKS, _I.OBSERVATION_SET): (_P.WAIT_ACKS, _A.NOTHING),
    (_P.WAIT_ACKS, _I.FINAL_OBSERVATION_SET): (_P.WAIT_ACKS, _A.NOTHING),
    (_P.WAIT_ACKS, _I.ENVIRONMENT_LAST): (_P.WAIT_ACKS, _A.NOTHING),
    (_P.WAIT_ACKS, _I.ACTION): (_P.WAIT_ACKS, _A.IGNORE_UNEXPECTED_ACTION),
    (_P.WAIT_ACKS, _I.ACTIONS_COMPLETE): (_P.WAIT_ACKS, _A.NOTHING),
    (_P.WAIT_ACKS, _I.LAST_ACTIONS_COMPLETE): (_P.WAIT_ACKS, _A.NOTHING),
    (_P.WAIT_ACKS, _I.ACTIONS_BEFORE_TIME): (_P.WAIT_ACKS, _A.NOTHING),
    (_P.WAIT_ACKS, _I.TICK_DUE): (_P.WAIT_ACKS, _A.NOTHING),
    (_P.WAIT_ACKS, _I.LATE_OBSERVATION_SET): (_P.WAIT_ACKS, _A.NOTHING),
    (_P.WAIT_ACKS, _I.UNWANTED_ACTIONS_COMPLETE): (_P.WAIT_ACKS, _A.NOTHING),
    (_P.WAIT_ACKS, _I.REQUIRED_ACTION_MISSING): (_P.WAIT_ACKS, _A.NOTHING),
    (_P.WAIT_ACKS, _I.REWARD): (_P.WAIT_ACKS, _A.TAKE_REWARD),
    (_P.WAIT_ACKS, _I.MESSAGE): (_P.WAIT_ACKS, _A.RELAY_MESSAGE),
    (_P.WAIT_ACKS, _I.SOFT_END): (_P.WAIT_ACKS, _A.NOTHING),
    (_P.WAIT_ACKS, _I.LAST_ACK): (_P.WAIT_ACKS, _A.COUNT_ACK),
    (_P.WAIT_ACKS, _I.ACK_TIMEOUT): (_P.WAIT_ACKS, _A.COUNT_MISSING_ACK),
    (_P.WAIT_ACKS, _I.NOBODY_LEFT_TO_ACK): (_P.ENDED, _A.FINISH),
    (_P.WAIT_ACKS, _I.OPTIONAL_ACTOR_LOST): (_P.WAIT_ACKS, _A.COUNT_MISSING_ACK),
    (_P.WAIT_ACKS, _I.REQUIRED_ACTOR_LOST): (_P.WAIT_ACKS, _A.COUNT_MISSING_ACK),
    (_P.WAIT_ACKS, _I.RESPONSE_TIMEOUT): (_P.WAIT_ACKS, _A.NOTHING),
    (_P.WAIT_ACKS, _I.ENVIRONMENT_LOST): (_P.WAIT_ACKS, _A.COUNT_MISSING_ACK),
    (_P.WAIT_ACKS, _I.HARD_END): (_P.ENDED, _A.BREAK_OFF),
    # ENDED: END went to everybody; whatever was under way is dropped. Everything that a peer, a timer or a request can
    # cause is listed, because none of them knows of the end yet.
    (_P.ENDED, _I.PARAMETERS_COMPLETE): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.ACTORS_SETTLED): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.OBSERVATION_SET): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.FINAL_OBSERVATION_SET): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.ENVIRONMENT_LAST): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.ACTION): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.ACTIONS_COMPLETE): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.LAST_ACTIONS_COMPLETE): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.ACTIONS_BEFORE_TIME): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.TICK_DUE): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.LATE_OBSERVATION_SET): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.UNWANTED_ACTIONS_COMPLETE): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.REQUIRED_ACTION_MISSING): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.REWARD): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.MESSAGE): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.SOFT_END): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.LAST_ACK): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.ACK_TIMEOUT): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.OPTIONAL_ACTOR_LOST): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.REQUIRED_ACTOR_LOST): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.RESPONSE_TIMEOUT): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.ENVIRONMENT_LOST): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.PATIENCE_OVER): (_P.ENDED, _A.NOTHING),
    (_P.ENDED, _I.HARD_END): (_P.ENDED, _A.NOTHING),
}

_T = TrialState

#: The public state of each phase.
PUBLIC_STATE: Final[dict[Phase, TrialState]] = {
    _P.CREATED: _T.UNKNOWN,
    _P.INITIALIZING: _T.INITIALIZING,
    _P.PENDING: _T.PENDING,
    _P.RUNNING: _T.RUNNING,
    _P.WAIT_FINAL: _T.TERMINATING,
    _P.WAIT_ACKS: _T.TERMINATING,
    _P.ENDED: _T.ENDED,
}

#: What the world is told at each change of phase, in order. ENDED comes after the action, the others before it.
ANNOUNCED: Final[dict[tuple[Phase, Phase], tuple[TrialState, ...]]] = {
    (_P.CREATED, _P.INITIALIZING): (_T.INITIALIZING,),
    (_P.CREATED, _P.ENDED): (_T.ENDED,),
    (_P.INITIALIZING, _P.PENDING): (_T.PENDING,),
    (_P.INITIALIZING, _P.ENDED): (_T.ENDED,),
    (_P.PENDING, _P.RUNNING): (_T.RUNNING,),
    # A trial whose first observation is its last has run all the same.
    (_P.PENDING, _P.WAIT_ACKS): (_T.RUNNING, _T.TERMINATING),
    (_P.PENDING, _P.ENDED): (_T.ENDED,),
    (_P.RUNNING, _P.WAIT_FINAL): (_T.TERMINATING,),
    (_P.RUNNING, _P.WAIT_ACKS): (_T.TERMINATING,),
    # Only a trial that ran is seen TERMINATING. The reference does the same, and watchers rely on it.
    (_P.RUNNING, _P.ENDED): (_T.TERMINATING, _T.ENDED),
    (_P.WAIT_FINAL, _P.WAIT_ACKS): (),
    (_P.WAIT_FINAL, _P.ENDED): (_T.ENDED,),
    (_P.WAIT_ACKS, _P.ENDED): (_T.ENDED,),
}
