"""A participant as the machine remembers it, and the reading of its messages as inputs of its stream's table.

Two flags say whether an actor takes part. Before it comes, it is neither `present` nor `gone`: messages for it are held
and its rewards are kept. While it takes part it is `present`. If it is lost or does not come in time, it is `gone` for
good. The environment has no `gone`: the trial's table says what its loss means.

`said` is not reset at each tick, which would take a loop over all participants: it counts for `said_tick`, and starts
again when the sender next says something in another tick.

`classify` is called for every message. So it first asks for those that are nearly all of them: messages of this
process, and then an action or an observation set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, TypeAlias

from trio_cogment.api.common_pb2 import Action, ActorRunTrialOutput, CommunicationState, TrialParams
from trio_cogment.base.endpoints import is_client_endpoint
from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.base.shared_message import SharedAction, SharedObservationSet, SharedReward
from trio_cogment.trial._events import ENVIRONMENT, SendShared
from trio_cogment.trial._relayed import Given
from trio_cogment.trial._stream_table import ACTOR_STREAM, ENVIRONMENT_STREAM, StreamInput, StreamState, Verdict

Rows: TypeAlias = dict[StreamState, dict[StreamInput, tuple[StreamState, Verdict]]]


def _rows(table: dict[tuple[StreamState, StreamInput], tuple[StreamState, Verdict]]) -> Rows:
    # One lookup per message instead of two, and no tuple to be made for it.
    rows: Rows = {state: {} for state in StreamState}
    for (state, symbol), entry in table.items():
        rows[state][symbol] = entry
    return rows


_ACTOR_ROWS: Final = _rows(ACTOR_STREAM)
_ENVIRONMENT_ROWS: Final = _rows(ENVIRONMENT_STREAM)

_NORMAL: Final = CommunicationState.NORMAL
#: Of all messages; asked of one, protobuf would look for a field of this name first.
_HAS_FIELD: Final = ActorRunTrialOutput.HasField
_OTHER_STATES: Final = {
    CommunicationState.HEARTBEAT: StreamInput.HEARTBEAT,
    CommunicationState.LAST: StreamInput.LAST,
    CommunicationState.LAST_ACK: StreamInput.LAST_ACK,
    CommunicationState.END: StreamInput.END,
}
#: But for actions and observation sets, which are looked for first.
_DATA: Final = {
    None: StreamInput.EMPTY,
    "details": StreamInput.EMPTY,
    "init_output": StreamInput.INIT,
    "reward": StreamInput.REWARD,
    "message": StreamInput.MESSAGE,
}
_ACTION: Final = StreamInput.ACTION
_OBSERVATION_SET: Final = StreamInput.OBSERVATION_SET
#: Messages of this process, whose types say what they are.
_SHARED: Final = {
    SharedAction: _ACTION,
    SharedObservationSet: _OBSERVATION_SET,
    SharedReward: StreamInput.REWARD,
}


class Participant(ABC):
    """One session: the environment's, or an actor's.

    Attributes:
        index: its number in events and effects.
        name: its name in the trial.
        state: where its stream is; changed by `step` alone.
        present: it takes part: it came, and was not lost.
        held: messages for it that came before it did.
        said: how many messages and rewards it sent in tick `said_tick`.
        heard_at: when it sent something last, on the scale of `now`.
        heartbeat_sent_at: when it was sent its last heartbeat.
        unanswered_heartbeats: how many of those it was sent it has not answered.
    """

    __slots__ = (
        "_rows", "heard_at", "heartbeat_sent_at", "held", "index", "name", "present", "row", "said",
        "said_tick", "state", "unanswered_heartbeats",
    )  # fmt: skip

    def __init__(self, index: int, name: str, rows: Rows) -> None:
        self.index = index
        self.name = name
        self._rows = rows
        self.state = StreamState.IDLE
        self.row = rows[StreamState.IDLE]
        self.present = False
        self.held: list[SendShared] = []
        self.said = 0
        self.said_tick = 0
        self.heard_at = 0.0
        self.heartbeat_sent_at = 0.0
        self.unanswered_heartbeats = 0

    def step(self, symbol: StreamInput) -> Verdict:
        """Take one input of the stream's table, or raise LocalProtocolError and change nothing."""
        try:
            state, verdict = self.row[symbol]
        except KeyError:
            raise LocalProtocolError(f"'{self.name}' cannot get {symbol.name} while {self.state.name}") from None
        if state is not self.state:
            self.state = state
            self.row = self._rows[state]
        return verdict

    @abstractmethod
    def classify(self, message: Any) -> StreamInput:
        """Return the input that `message` is."""

    @abstractmethod
    def describe(self) -> str:
        """Return how texts for people call it."""


class Environment(Participant):
    """The environment's session.

    Attributes:
        takes_up: it has said that a trial of it can go on with a stored one.
    """

    __slots__ = ("takes_up",)

    def __init__(self, name: str) -> None:
        super().__init__(ENVIRONMENT, name, _ENVIRONMENT_ROWS)
        self.takes_up = False

    def classify(self, message: Any) -> StreamInput:
        """Return the input that `message` is."""
        # HasField first: nearly every message of an environment is a set, and it costs less than WhichOneof.
        kind = type(message)
        if kind in _SHARED:
            return _SHARED[kind]
        if message.state == _NORMAL and _HAS_FIELD(message, "observation_set"):
            return _OBSERVATION_SET
        return _classify(message)

    def describe(self) -> str:
        """Return how texts for people call it."""
        return f"the environment '{self.name}'"


class Actor(Participant):
    """An actor's session, and what the trial knows of the actor.

    Attributes:
        actor_class, required, response_timeout, init_timeout: from the parameters.
        is_client: it connects to us.
        default_action: the content sent when it has no action of its own, or None.
        gone: it is out for good: it did not come, or was lost.
        rewards: for the Reward before its next observation.
        observe_every, hold_action: from the parameters.
        observed_tick, acted_tick: the tick that it was shown last, and the one that its last action answers; -1: none.
            Only kept in trials whose `at_rates` is set.
        last_action: as it is taken again, where it is.
    """

    __slots__ = (
        "acted_tick",
        "actor_class",
        "default_action",
        "gone",
        "hold_action",
        "init_timeout",
        "is_client",
        "last_action",
        "observe_every",
        "observed_tick",
        "required",
        "response_timeout",
        "reward_tick",
        "rewards",
    )

    def __init__(self, index: int, params: TrialParams) -> None:
        actor = params.actors[index]
        super().__init__(index, actor.name, _ACTOR_ROWS)
        self.actor_class = actor.actor_class
        self.is_client = is_client_endpoint(actor.endpoint)
        self.required = not actor.optional
        self.init_timeout = actor.initial_connection_timeout
        self.response_timeout = actor.response_timeout
        self.default_action = actor.default_action.content if actor.HasField("default_action") else None
        self.gone = False
        self.rewards: list[Given] = []
        self.reward_tick = 0
        self.observe_every = actor.observe_every or 1
        self.hold_action = actor.hold_action
        self.observed_tick = self.acted_tick = -1
        self.last_action: Action | None = None

    def classify(self, message: Any) -> StreamInput:
        """Return the input that `message` is."""
        kind = type(message)
        if kind in _SHARED:
            return _SHARED[kind]
        if message.state == _NORMAL and _HAS_FIELD(message, "action"):
            return _ACTION
        return _classify(message)

    def describe(self) -> str:
        """Return how texts for people call it."""
        return f"actor '{self.name}'"


def _classify(message: Any) -> StreamInput:
    state = message.state
    data = message.WhichOneof("data")
    if state == _NORMAL:
        return _DATA[data]
    # `details` may explain any state.
    if data is not None and data != "details":
        return StreamInput.BAD_DATA
    return _OTHER_STATES.get(state, StreamInput.BAD_STATE)
