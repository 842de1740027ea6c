"""Inputs and outputs of the trial machine: plain data, no behaviour.

Events and effects are mutable slotted dataclasses only because frozen ones cost twice as much to make, several times
per tick. Nobody changes one after it was made. Those that there are of every message say themselves how they are made:
otherwise it is the interpreter that makes them in a compiled wheel, too.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from trio_cogment.api.common_pb2 import TakenUp, TrialParams
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.base.errors import CogmentError
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.shared_message import SharedMessage, SharedSample

#: The participant index of the environment; actors are 0..n-1, in the order of the trial's parameters.
ENVIRONMENT: Final = -1

#: Stands where a timer belongs to the trial as a whole.
NO_PARTICIPANT: Final = -2

#: Why a trial ended whose caller went away while it was started: nothing has failed. With ": " and more, something has.
NOT_STARTED: Final = "the trial could not start"

#: Messages kept for one participant that is not there yet; a sender that talks more than this loses the rest.
MAX_HELD_MESSAGES: Final = 256

#: Their total size; one message of any size is always kept. All of them are sent at once when the participant comes, so
#: it must not be more than may wait for one that has not read anything yet.
MAX_HELD_BYTES: Final = 8 * 1024 * 1024

#: Messages and sources of rewards taken from one participant per tick: they are kept until the tick's sample goes,
#: rewards until the next observation. One that talks more loses the rest, and nobody else does.
MAX_SAID_PER_TICK: Final = 10_000

#: Their size, of all participants together.
MAX_SAID_BYTES_PER_TICK: Final = 64 * 1024 * 1024

#: Samples are held back for late rewards: this many bytes of them, beyond those of the two ticks that always are.
MAX_HELD_BACK_BYTES: Final = 16 * 1024 * 1024


@dataclass(slots=True, frozen=True)
class TrialRules:
    """How patient a trial is; the operator's choice, where `TrialParams` are the user's. 0 seconds means indefinitely.

    Attributes:
        soft_end_patience_seconds: from a soft end being asked (or the environment's LAST) to the final observation.
        environment_init_timeout_seconds: from the orchestrator's init_input to the environment's init_output.
        environment_ack_timeout_seconds: from the final observation to the environment's LAST_ACK.
        actor_ack_timeout_seconds: from the final observation to each actor's LAST_ACK.
        heartbeat_seconds: a participant that has been silent for so long, and is not expected to write, gets a
            HEARTBEAT, and again as often; 0 never.
        max_held_messages: messages kept for one participant that is not there yet; `max_held_bytes`: their total size.
        max_said_per_tick: messages and sources of rewards taken from one participant in one tick.
        max_said_bytes_per_tick: the size of those of all participants together.
        max_held_back_bytes: the size of the samples that are held back for late rewards, beyond those of two ticks.
        checkpoint_ticks: after how many ticks an environment that saves itself is asked to; 0 never.
        checkpoint_seconds: after how many seconds, likewise.
    """

    soft_end_patience_seconds: float = 120.0
    environment_init_timeout_seconds: float = 60.0
    environment_ack_timeout_seconds: float = 60.0
    actor_ack_timeout_seconds: float = 30.0
    heartbeat_seconds: float = 20.0
    max_held_messages: int = MAX_HELD_MESSAGES
    max_held_bytes: int = MAX_HELD_BYTES
    max_said_per_tick: int = MAX_SAID_PER_TICK
    max_said_bytes_per_tick: int = MAX_SAID_BYTES_PER_TICK
    max_held_back_bytes: int = MAX_HELD_BACK_BYTES
    checkpoint_ticks: int = 0
    checkpoint_seconds: float = 0.0


DEFAULT_RULES: Final = TrialRules()


class TimerKind(enum.IntEnum):
    """What a timer waits for."""

    INIT = enum.auto()
    RESPONSE = enum.auto()
    ACK = enum.auto()
    PATIENCE = enum.auto()
    INACTIVITY = enum.auto()
    HEARTBEAT = enum.auto()
    #: The end of a tick at a rate.
    TICK = enum.auto()


class Timer(NamedTuple):
    """The name of a timer; arming a name again moves its deadline."""

    kind: TimerKind
    participant: int


@dataclass(slots=True, init=False)
class _Addressed:
    """A message, and the participant that it is from or for."""

    participant: int
    message: Any

    def __init__(self, participant: int, message: Any) -> None:
        self.participant = participant
        self.message = message


# Events


@dataclass(slots=True)
class Begin:
    """The trial exists: INITIALIZING is announced."""


@dataclass(slots=True)
class ParametersComplete:
    """Hooks and endpoints are done; `params` went through `validate_params`.

    `held_back_bytes` is what the trial may hold back of samples; None: as much as its rules allow. `taken_up` is the
    stored trial with which it goes on.
    """

    params: TrialParams
    held_back_bytes: int | None = None
    taken_up: TakenUp | None = None


@dataclass(slots=True)
class Joined:
    """A client actor took the slot that `TrialMachine.slot_for` gave it."""

    participant: int


class Received(_Addressed):
    """A participant sent a message; the machine owns it from now on."""

    __slots__ = ()


@dataclass(slots=True)
class HalfClosed:
    """A participant will send nothing more but still reads: it can be told END."""

    participant: int


@dataclass(slots=True)
class Lost:
    """A participant's stream is gone, or could not be made; nothing can be sent to it any more.

    `traceback` has the last lines of its exception's traceback, if it raised and said so.
    """

    participant: int
    reason: str
    cause: EndCause = EndCause.PARTICIPANT_LOST
    traceback: str = ""


@dataclass(slots=True)
class TimerFired:
    """The deadline of an armed timer has come."""

    timer: Timer


@dataclass(slots=True)
class SoftEnd:
    """Somebody asks for an orderly end."""


@dataclass(slots=True)
class HardEnd:
    """The trial ends now; `details` is what the participants are told."""

    details: str
    cause: EndCause = EndCause.HARD_TERMINATION


Event: TypeAlias = Begin | ParametersComplete | Joined | Received | HalfClosed | Lost | TimerFired | SoftEnd | HardEnd


# Effects


@dataclass(slots=True)
class Connect:
    """Open the stream to a service actor or to the environment; its init_input follows at once."""

    participant: int


class Send(_Addressed):
    """Send a message (ActorRunTrialInput or EnvRunTrialInput); whoever performs this owns it."""

    __slots__ = ()


class SendShared(Send):
    """Send a message that others get as well, or that is mostly theirs, too. Whoever performs this changes nothing.

    Attributes:
        shared: the message.
    """

    __slots__ = ("shared",)

    def __init__(self, participant: int, shared: SharedMessage) -> None:
        self.participant = participant
        self.shared = shared

    @property
    def message(self) -> Any:
        """The message, made again each time."""
        return self.shared.whole()


@dataclass(slots=True, init=False)
class SendBatch:
    """Send each of several participants a message, as one `SendShared` after the other would.

    Attributes:
        participants: one of them may be here more than once.
        messages: of each the one at its place.
    """

    participants: list[int]
    messages: list[SharedMessage]

    def __init__(self, participants: list[int], messages: list[SharedMessage]) -> None:
        self.participants = participants
        self.messages = messages


@dataclass(slots=True)
class Close:
    """No more messages to a participant: after END (`error` is None), or because it broke the protocol."""

    participant: int
    error: CogmentError | None


@dataclass(slots=True)
class ArmTimer:
    """Let `TimerFired` come at `deadline` (the scale of `now`)."""

    timer: Timer
    deadline: float


@dataclass(slots=True)
class DisarmTimer:
    """Forget a timer."""

    timer: Timer


@dataclass(slots=True)
class EmitSample:
    """A sample is complete; whoever performs this owns it, but for one that is shared, which is only read."""

    sample: DatalogSample | SharedSample


@dataclass(slots=True)
class Announce:
    """The trial's public state changed."""

    state: int


@dataclass(slots=True)
class Note:
    """Something for the log; `level` is a name of `logging` in lower case."""

    level: str
    text: str


Effect: TypeAlias = Connect | Send | SendBatch | Close | ArmTimer | DisarmTimer | EmitSample | Announce | Note


def unbatched(effects: Iterable[Effect]) -> list[Effect]:
    """Return the effects with the messages of each batch on their own, in their order."""
    single: list[Effect] = []
    for effect in effects:
        if isinstance(effect, SendBatch):
            single += map(SendShared, effect.participants, effect.messages)
        else:
            single.append(effect)
    return single
