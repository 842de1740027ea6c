"""The stream of one participant as a table: one for actors, one for the environment.

Rule 1: everything that decides whether a message of a participant is accepted at all is in this file.

Rule 2: this file does not know the trial. It knows no ticks, and not whether the trial runs. A message that is in order
here is delivered, and the trial's own table says what it means.

Theory of operation: a session starts IDLE. The orchestrator contacts service actors and the environment (CONNECTING,
until their init_output comes); a client actor contacts the orchestrator (IDLE, until it has joined). Then it is ACTIVE,
until LAST has passed in either direction (ENDING) and was acknowledged (ACKED). END is the last thing sent (ENDED).
Three ways lead out of this line: the stream breaks, or the participant does not begin it as agreed (LOST: nothing can
be sent to it any more); it leaves in an orderly way but still reads (ENDED, with an END of its own); or it did not come
in time although its stream lives (LEFT_OUT: it takes no part in the trial, and gets END together with the others).

The inputs are of two kinds: what the participant does (from HEARTBEAT to CLOSED), and what the machine is about to do
(from CONNECT to SEND_HEARTBEAT). An absent pair of the first kind means that the shell delivered something from a
stream that cannot exist; an absent pair of the second, that the machine wants to send what must not be sent. Both are
bugs in this package. A participant's own errors are always present:

- REFUSE where the peer does not speak this protocol: it begins with something else than init_output. The stream ends
  with an error, and the trial counts the participant as lost;
- IGNORE what the trial can do without: an empty message, an unknown state, a second init_output, data with a state
  other than NORMAL, a LAST_ACK before any LAST. It is counted, noted once, and the stream lives, since to refuse it
  would cost a trial for nothing;
- DROP where the participant cannot know better: its message crossed with a loss or with END.

Where it falls short:

- LAST is something that the environment may say and an actor may not. That is why there are two tables and not one;
- HEARTBEAT is answered in every state with a live stream. Only the machine knows which heartbeats are themselves
  answers, to those it sent to a silent participant. These are not answered in turn: the two ends would never stop;
- no heartbeat is sent before init_output came, because a peer that has not begun does not expect one.
"""

from __future__ import annotations

import enum
from typing import Final


class StreamState(enum.IntEnum):
    """Where the session with a participant is."""

    IDLE = enum.auto()
    CONNECTING = enum.auto()
    ACTIVE = enum.auto()
    #: LAST passed: the trial sent it, or the environment did.
    ENDING = enum.auto()
    ACKED = enum.auto()
    #: It did not come in time; the stream may live but is not part of the trial.
    LEFT_OUT = enum.auto()
    LOST = enum.auto()
    ENDED = enum.auto()


class StreamInput(enum.IntEnum):
    """What can happen to the session with a participant."""

    HEARTBEAT = enum.auto()
    INIT = enum.auto()
    #: An actor's.
    ACTION = enum.auto()
    #: The environment's.
    OBSERVATION_SET = enum.auto()
    REWARD = enum.auto()
    MESSAGE = enum.auto()
    #: NORMAL with nothing in it, or with `details`.
    EMPTY = enum.auto()
    LAST = enum.auto()
    LAST_ACK = enum.auto()
    END = enum.auto()
    #: State 0, or one that does not exist, without data.
    BAD_STATE = enum.auto()
    #: Data with a state other than NORMAL (`details` may come with any). Not even the state counts then, since which of
    #: the two was meant cannot be told.
    BAD_DATA = enum.auto()
    HALF_CLOSED = enum.auto()
    CLOSED = enum.auto()
    CONNECT = enum.auto()
    JOIN = enum.auto()
    GIVE_UP = enum.auto()
    SEND_LAST = enum.auto()
    SEND_END = enum.auto()
    SEND_HEARTBEAT = enum.auto()


class Verdict(enum.IntEnum):
    """What the machine does about it."""

    #: Nothing: it came too late to matter, or there is nobody to tell.
    DROP = enum.auto()
    #: Hand it to the trial.
    DELIVER = enum.auto()
    #: Count it, note it once.
    IGNORE = enum.auto()
    #: Answer a heartbeat.
    ANSWER = enum.auto()
    #: The participant is ready.
    READY = enum.auto()
    #: End the stream with an error; the participant is lost.
    REFUSE = enum.auto()
    #: The stream is gone; the participant is lost.
    LOSE = enum.auto()
    #: It goes, but still reads: tell it END; the participant is lost.
    PART = enum.auto()
    #: Its time to come is over; the participant is lost.
    ABANDON = enum.auto()
    #: The trial may do what it is about to do.
    PROCEED = enum.auto()


_S, _I, _V = StreamState, StreamInput, Verdict
_Table = dict[tuple[StreamState, StreamInput], tuple[StreamState, Verdict]]

#: What holds for every participant.
_EVERYBODY: Final[_Table] = {
    # IDLE: not contacted, or a client's slot before somebody joined.
    (_S.IDLE, _I.CONNECT): (_S.CONNECTING, _V.PROCEED),
    (_S.IDLE, _I.SEND_END): (_S.ENDED, _V.DROP),
    # CONNECTING: nothing but init_output is in order (a heartbeat needs no order, and what says nothing is ignored). A
    # peer that begins with something else does not speak this protocol; waiting for its second message would only delay
    # finding that out.
    (_S.CONNECTING, _I.HEARTBEAT): (_S.CONNECTING, _V.ANSWER),
    (_S.CONNECTING, _I.INIT): (_S.ACTIVE, _V.READY),
    (_S.CONNECTING, _I.REWARD): (_S.LOST, _V.REFUSE),
    (_S.CONNECTING, _I.MESSAGE): (_S.LOST, _V.REFUSE),
    (_S.CONNECTING, _I.EMPTY): (_S.CONNECTING, _V.IGNORE),
    (_S.CONNECTING, _I.LAST): (_S.LOST, _V.REFUSE),
    (_S.CONNECTING, _I.LAST_ACK): (_S.LOST, _V.REFUSE),
    (_S.CONNECTING, _I.END): (_S.LOST, _V.REFUSE),
    (_S.CONNECTING, _I.BAD_STATE): (_S.CONNECTING, _V.IGNORE),
    (_S.CONNECTING, _I.BAD_DATA): (_S.LOST, _V.REFUSE),
    (_S.CONNECTING, _I.HALF_CLOSED): (_S.ENDED, _V.PART),
    (_S.CONNECTING, _I.CLOSED): (_S.LOST, _V.LOSE),
    (_S.CONNECTING, _I.GIVE_UP): (_S.LEFT_OUT, _V.ABANDON),
    (_S.CONNECTING, _I.SEND_END): (_S.ENDED, _V.PROCEED),
    # ACTIVE: it plays. A participant cannot end its part by END, which only the orchestrator says; it is ignored, and
    # what closes the stream afterwards tells what was meant.
    (_S.ACTIVE, _I.HEARTBEAT): (_S.ACTIVE, _V.ANSWER),
    (_S.ACTIVE, _I.INIT): (_S.ACTIVE, _V.IGNORE),
    (_S.ACTIVE, _I.REWARD): (_S.ACTIVE, _V.DELIVER),
    (_S.ACTIVE, _I.MESSAGE): (_S.ACTIVE, _V.DELIVER),
    (_S.ACTIVE, _I.EMPTY): (_S.ACTIVE, _V.IGNORE),
    (_S.ACTIVE, _I.LAST_ACK): (_S.ACTIVE, _V.IGNORE),
    (_S.ACTIVE, _I.END): (_S.ACTIVE, _V.IGNORE),
    (_S.ACTIVE, _I.BAD_STATE): (_S.ACTIVE, _V.IGNORE),
    (_S.ACTIVE, _I.BAD_DATA): (_S.ACTIVE, _V.IGNORE),
    # It will not act again, so it is lost to the trial; but it still reads, and is told END instead of an error.
    (_S.ACTIVE, _I.HALF_CLOSED): (_S.ENDED, _V.PART),
    (_S.ACTIVE, _I.CLOSED): (_S.LOST, _V.LOSE),
    (_S.ACTIVE, _I.SEND_LAST): (_S.ENDING, _V.PROCEED),
    (_S.ACTIVE, _I.SEND_END): (_S.ENDED, _V.PROCEED),
    (_S.ACTIVE, _I.SEND_HEARTBEAT): (_S.ACTIVE, _V.PROCEED),
    # ENDING: what remains is the last exchange.
    (_S.ENDING, _I.HEARTBEAT): (_S.ENDING, _V.ANSWER),
    (_S.ENDING, _I.INIT): (_S.ENDING, _V.IGNORE),
    (_S.ENDING, _I.REWARD): (_S.ENDING, _V.DELIVER),
    (_S.ENDING, _I.MESSAGE): (_S.ENDING, _V.DELIVER),
    (_S.ENDING, _I.EMPTY): (_S.ENDING, _V.IGNORE),
    (_S.ENDING, _I.LAST_ACK): (_S.ACKED, _V.DELIVER),
    (_S.ENDING, _I.END): (_S.ENDING, _V.IGNORE),
    (_S.ENDING, _I.BAD_STATE): (_S.ENDING, _V.IGNORE),
    (_S.ENDING, _I.BAD_DATA): (_S.ENDING, _V.IGNORE),
    (_S.ENDING, _I.CLOSED): (_S.LOST, _V.LOSE),
    (_S.ENDING, _I.SEND_END): (_S.ENDED, _V.PROCEED),
    (_S.ENDING, _I.SEND_HEARTBEAT): (_S.ENDING, _V.PROCEED),
    # ACKED: it may still talk until END: the others may not have acknowledged yet. A repeated LAST_ACK says nothing
    # new.
    (_S.ACKED, _I.HEARTBEAT): (_S.ACKED, _V.ANSWER),
    (_S.ACKED, _I.INIT): (_S.ACKED, _V.IGNORE),
    (_S.ACKED, _I.REWARD): (_S.ACKED, _V.DELIVER),
    (_S.ACKED, _I.MESSAGE): (_S.ACKED, _V.DELIVER),
    (_S.ACKED, _I.EMPTY): (_S.ACKED, _V.IGNORE),
    (_S.ACKED, _I.LAST): (_S.ACKED, _V.IGNORE),
    (_S.ACKED, _I.LAST_ACK): (_S.ACKED, _V.IGNORE),
    (_S.ACKED, _I.END): (_S.ACKED, _V.IGNORE),
    (_S.ACKED, _I.BAD_STATE): (_S.ACKED, _V.IGNORE),
    (_S.ACKED, _I.BAD_DATA): (_S.ACKED, _V.IGNORE),
    (_S.ACKED, _I.CLOSED): (_S.LOST, _V.LOSE),
    (_S.ACKED, _I.SEND_END): (_S.ENDED, _V.PROCEED),
    (_S.ACKED, _I.SEND_HEARTBEAT): (_S.ACKED, _V.PROCEED),
    # LEFT_OUT: it may come late; nothing it says counts, not even init_output, because the trial may have begun
    # without it. It is not refused: it has done nothing wrong but be slow.
    (_S.LEFT_OUT, _I.HEARTBEAT): (_S.LEFT_OUT, _V.ANSWER),
    (_S.LEFT_OUT, _I.INIT): (_S.LEFT_OUT, _V.IGNORE),
    (_S.LEFT_OUT, _I.REWARD): (_S.LEFT_OUT, _V.IGNORE),
    (_S.LEFT_OUT, _I.MESSAGE): (_S.LEFT_OUT, _V.IGNORE),
    (_S.LEFT_OUT, _I.EMPTY): (_S.LEFT_OUT, _V.IGNORE),
    (_S.LEFT_OUT, _I.LAST): (_S.LEFT_OUT, _V.IGNORE),
    (_S.LEFT_OUT, _I.LAST_ACK): (_S.LEFT_OUT, _V.IGNORE),
    (_S.LEFT_OUT, _I.END): (_S.LEFT_OUT, _V.IGNORE),
    (_S.LEFT_OUT, _I.BAD_STATE): (_S.LEFT_OUT, _V.IGNORE),
    (_S.LEFT_OUT, _I.BAD_DATA): (_S.LEFT_OUT, _V.IGNORE),
    (_S.LEFT_OUT, _I.HALF_CLOSED): (_S.ENDED, _V.PART),
    (_S.LEFT_OUT, _I.CLOSED): (_S.LOST, _V.LOSE),
    (_S.LEFT_OUT, _I.SEND_END): (_S.ENDED, _V.PROCEED),
    # LOST: nothing can be sent to it; what was under way when it broke is dropped. SEND_END is present, because the end
    # of a trial says END to everybody without asking who is left.
    (_S.LOST, _I.HEARTBEAT): (_S.LOST, _V.DROP),
    (_S.LOST, _I.INIT): (_S.LOST, _V.DROP),
    (_S.LOST, _I.REWARD): (_S.LOST, _V.DROP),
    (_S.LOST, _I.MESSAGE): (_S.LOST, _V.DROP),
    (_S.LOST, _I.EMPTY): (_S.LOST, _V.DROP),
    (_S.LOST, _I.LAST): (_S.LOST, _V.DROP),
    (_S.LOST, _I.LAST_ACK): (_S.LOST, _V.DROP),
    (_S.LOST, _I.END): (_S.LOST, _V.DROP),
    (_S.LOST, _I.BAD_STATE): (_S.LOST, _V.DROP),
    (_S.LOST, _I.BAD_DATA): (_S.LOST, _V.DROP),
    (_S.LOST, _I.HALF_CLOSED): (_S.LOST, _V.DROP),
    (_S.LOST, _I.CLOSED): (_S.LOST, _V.DROP),
    (_S.LOST, _I.SEND_END): (_S.LOST, _V.DROP),
    # ENDED: END was the last word; what was under way is dropped.
    (_S.ENDED, _I.HEARTBEAT): (_S.ENDED, _V.DROP),
    (_S.ENDED, _I.INIT): (_S.ENDED, _V.DROP),
    (_S.ENDED, _I.REWARD): (_S.ENDED, _V.DROP),
    (_S.ENDED, _I.MESSAGE): (_S.ENDED, _V.DROP),
    (_S.ENDED, _I.EMPTY): (_S.ENDED, _V.DROP),
    (_S.ENDED, _I.LAST): (_S.ENDED, _V.DROP),
    (_S.ENDED, _I.LAST_ACK): (_S.ENDED, _V.DROP),
    (_S.ENDED, _I.END): (_S.ENDED, _V.DROP),
    (_S.ENDED, _I.BAD_STATE): (_S.ENDED, _V.DROP),
    (_S.ENDED, _I.BAD_DATA): (_S.ENDED, _V.DROP),
    (_S.ENDED, _I.HALF_CLOSED): (_S.ENDED, _V.DROP),
    (_S.ENDED, _I.CLOSED): (_S.ENDED, _V.DROP),
    (_S.ENDED, _I.SEND_END): (_S.ENDED, _V.DROP),
}

ACTOR_STREAM: Final[_Table] = _EVERYBODY | {
    # A client's slot: nobody is behind it, so giving it up leaves nothing that could come late.
    (_S.IDLE, _I.JOIN): (_S.ACTIVE, _V.PROCEED),
    (_S.IDLE, _I.GIVE_UP): (_S.LOST, _V.ABANDON),
    # What only actors send.
    (_S.CONNECTING, _I.ACTION): (_S.LOST, _V.REFUSE),
    (_S.ACTIVE, _I.ACTION): (_S.ACTIVE, _V.DELIVER),
    (_S.ENDING, _I.ACTION): (_S.ENDING, _V.DELIVER),
    (_S.ACKED, _I.ACTION): (_S.ACKED, _V.DELIVER),
    (_S.LEFT_OUT, _I.ACTION): (_S.LEFT_OUT, _V.IGNORE),
    (_S.LOST, _I.ACTION): (_S.LOST, _V.DROP),
    (_S.ENDED, _I.ACTION): (_S.ENDED, _V.DROP),
    # An actor has no LAST to say, and nothing depends on it.
    (_S.ACTIVE, _I.LAST): (_S.ACTIVE, _V.IGNORE),
    (_S.ENDING, _I.LAST): (_S.ENDING, _V.IGNORE),
    # Whoever stops sending after LAST has acknowledged in fact, and still reads: END reaches it with the others'.
    (_S.ENDING, _I.HALF_CLOSED): (_S.ACKED, _V.DELIVER),
    (_S.ACKED, _I.HALF_CLOSED): (_S.ACKED, _V.DROP),
}

ENVIRONMENT_STREAM: Final[_Table] = _EVERYBODY | {
    # What only the environment sends.
    (_S.CONNECTING, _I.OBSERVATION_SET): (_S.LOST, _V.REFUSE),
    (_S.ACTIVE, _I.OBSERVATION_SET): (_S.ACTIVE, _V.DELIVER),
    (_S.ENDING, _I.OBSERVATION_SET): (_S.ENDING, _V.DELIVER),
    (_S.ACKED, _I.OBSERVATION_SET): (_S.ACKED, _V.DELIVER),
    (_S.LEFT_OUT, _I.OBSERVATION_SET): (_S.LEFT_OUT, _V.IGNORE),
    (_S.LOST, _I.OBSERVATION_SET): (_S.LOST, _V.DROP),
    (_S.ENDED, _I.OBSERVATION_SET): (_S.ENDED, _V.DROP),
    # Its own LAST announces the final observation set. After the orchestrator's LAST it is an echo, or has crossed with
    # it.
    (_S.ACTIVE, _I.LAST): (_S.ENDING, _V.DELIVER),
    (_S.ENDING, _I.LAST): (_S.ENDING, _V.DROP),
    # Unlike an actor's, a half-close is not an acknowledgement: it may still owe the final observation set.
    (_S.ENDING, _I.HALF_CLOSED): (_S.ENDED, _V.PART),
    (_S.ACKED, _I.HALF_CLOSED): (_S.ENDED, _V.PART),
}
