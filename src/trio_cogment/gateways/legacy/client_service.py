"""`cogment.Trial`: what old clients call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trio_cogment.api.common_pb2 import SerializedMessage, TrialParams
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.api.legacy import orchestrator_pb2 as pb
from trio_cogment.api.orchestrator_pb2 import TrialStartRequest
from trio_cogment.base.about import version_info
from trio_cogment.base.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.gateways.callers import Caller, Callers
from trio_cogment.gateways.legacy.client_seat import ClientSeat
from trio_cogment.gateways.legacy.client_trials import ClientTrial, ClientTrials
from trio_cogment.gateways.legacy.messages import message_of
from trio_cogment.gateways.legacy.old_params import old_params
from trio_cogment.gateways.legacy.rewards import reward_of
from trio_cogment.rpc import ServerCall, methods_of

#: Metadata of the published SDK of that time: one value for each connection.
SESSION_ID = "session_id"
#: The generation of the API that old participants are told.
API_VERSION = "0.3"
#: The client's id in a trial in which no client plays.
NOBODY = -1

_START = methods_of(SERVICES[ServiceKind.LIFECYCLE].descriptor())["StartTrial"]


class ClientService:
    """The service, in front of an orchestrator.

    Args:
        callers: tells who makes a call.
        trials: those of old clients.
        default_params: what `GetTrialParams` tells.
        params: of the trials that old clients start; None: the orchestrator's default ones, through its hooks.
    """

    def __init__(
        self, callers: Callers, trials: ClientTrials, default_params: TrialParams | None, params: TrialParams | None
    ) -> None:
        self._callers = callers
        self._trials = trials
        self._default_params = default_params or TrialParams()
        self._params = params
        self._stopping = False

    def stop(self) -> None:
        """Start no more trials."""
        self._stopping = True

    async def Version(self, _request: legacy.VersionRequest, _call: ServerCall) -> legacy.VersionInfo:
        """Tell the generation of the API, and what is behind it."""
        found = {entry.name: entry.version for entry in version_info().versions}
        entries = {"cogment-api": API_VERSION, "grpc": found["grpc"], "orchestrator": found["trio-cogment"]}
        return legacy.VersionInfo(
            versions=[legacy.VersionInfo.Version(name=name, version=text) for name, text in entries.items()]
        )

    async def GetTrialParams(self, _request: pb.GetTrialParamsRequest, _call: ServerCall) -> pb.GetTrialParamsReply:
        """Tell the default parameters."""
        return pb.GetTrialParamsReply(params=old_params(self._default_params))

    # Trials

    async def Start(self, request: pb.TrialStartRequest, call: ServerCall) -> pb.TrialStartReply:
        """Start a trial and join it, unless it has no client.

        With one place for old clients the answer has the first observation. With several the trial begins when all have
        joined, and the answer comes at once, without an observation: the next call of this client waits for it.
        """
        if self._stopping:
            raise UnavailableError("the server is stopping")
        caller = self._callers(call)
        trial_id, inactivity = await self._start(request, caller)
        begun = False
        try:
            trial = await self._trials.watch(trial_id, caller, max_inactivity_seconds=inactivity)
            reply = await self._begin(trial, call)
            begun = True
        finally:
            if not begun:
                await self._trials.give_up(trial_id, caller)
        return reply

    async def _start(self, request: pb.TrialStartRequest, caller: Caller) -> tuple[str, float]:
        """Start a trial; return its id, and how long its clients may be silent."""
        start = TrialStartRequest(user_id=request.user_id)
        inactivity = 0
        config = SerializedMessage(content=request.config.content) if request.HasField("config") else None
        if self._params is not None:
            start.params.CopyFrom(self._params)
            # A client's heartbeats, which the orchestrator does not see, count.
            inactivity, start.params.max_inactivity = start.params.max_inactivity, 0
            if config is not None:
                start.params.trial_config.CopyFrom(config)
        elif config is not None:
            start.config.CopyFrom(config)
        reply = await caller.opener().unary(_START, start)
        return reply.trial_id, inactivity

    async def _begin(self, trial: ClientTrial, call: ServerCall) -> pb.TrialStartReply:
        with _served(trial):
            if not trial.seats:
                await self._trials.wait_running(trial)
                return pb.TrialStartReply(trial_id=trial.trial_id, actor_id=NOBODY, actor_counts=trial.ids.counts)
            first = trial.seats[min(trial.seats)]
            return await first.join(_session_id(call), wait=len(trial.seats) == 1)

    async def Join(self, request: pb.TrialJoinRequest, call: ServerCall) -> pb.TrialStartReply:
        """Join a trial; the answer has the first observation."""
        trial = await self._trials.find(request.trial_id, self._callers(call))
        seat = _seat(trial, request.actor_id)
        with _served(trial):
            return await seat.join(_session_id(call))

    async def End(self, request: pb.TrialEndRequest, call: ServerCall) -> pb.TrialEndReply:
        """End a trial; one that is over may be ended again."""
        trial = await self._trials.find(request.trial_id, self._callers(call))
        with _served(trial):
            await self._trials.end(trial)
        return pb.TrialEndReply()

    async def Heartbeat(self, request: pb.TrialHeartbeatRequest, call: ServerCall) -> pb.TrialHeartbeatReply:
        """Note that a client is still there."""
        with _served(await self._trials.find(request.trial_id, self._callers(call))):
            return pb.TrialHeartbeatReply()

    # In a trial

    async def Action(self, request: pb.TrialActionRequest, call: ServerCall) -> pb.TrialActionReply:
        """Act; the answer comes with the next observation."""
        trial = await self._trials.find(request.trial_id, self._callers(call))
        seat = _seat(trial, request.actor_id)
        with _served(trial):
            return await seat.act(request.action.content)

    async def ActionStream(self, call: ServerCall) -> None:
        """Answer action after action, until the trial is over."""
        request: pb.TrialActionRequest
        async for request in call:
            reply = await self.Action(request, call)
            await call.send(reply)
            if reply.trial_is_over:
                return

    async def GiveFeedback(self, request: pb.TrialFeedbackRequest, call: ServerCall) -> pb.TrialFeedbackReply:
        """Reward actors; feedback after the end of a trial is dropped."""
        trial = await self._trials.find(request.trial_id, self._callers(call))
        rewards = []
        for number, feedback in enumerate(request.feedbacks):
            reward = reward_of(feedback, trial.ids)
            if isinstance(reward, str):
                raise InvalidArgumentError(f"feedbacks[{number}]: {reward}")
            rewards.append(reward)
        with _served(trial):
            _speaker(trial, _session_id(call)).give(rewards)
        return pb.TrialFeedbackReply()

    async def SendMessage(self, request: pb.TrialMessageRequest, call: ServerCall) -> pb.TrialMessageReply:
        """Send messages; those after the end of a trial are dropped."""
        trial = await self._trials.find(request.trial_id, self._callers(call))
        found = []
        for number, each in enumerate(request.messages):
            name = f"messages[{number}]"
            message = message_of(each, trial.ids)
            if isinstance(message, str):
                raise InvalidArgumentError(f"{name}: expected a message to somebody in the trial: {message}")
            seat = _seat(trial, each.sender_id, f"{name}.sender_id")
            if not (seat.is_joined or seat.is_over):
                raise FailedPreconditionError(f"{name}.sender_id: no client has joined as actor {each.sender_id}")
            found.append((seat, message))
        with _served(trial):
            for seat, message in found:
                seat.send([message])
        return pb.TrialMessageReply()


@contextmanager
def _served(trial: ClientTrial) -> Iterator[None]:
    trial.note_call()
    try:
        yield
    finally:
        trial.note_call()


def _session_id(call: ServerCall) -> str:
    found = call.metadata.texts(SESSION_ID)
    return found[0] if found else ""


def _seat(trial: ClientTrial, actor_id: int, name: str = "actor_id") -> ClientSeat:
    seat = trial.seats.get(actor_id)
    if seat is None:
        known = ", ".join(map(str, sorted(trial.seats))) or "none"
        raise InvalidArgumentError(f"{name}: expected an actor that clients play ({known}), got {actor_id}")
    return seat


def _speaker(trial: ClientTrial, session_id: str) -> ClientSeat:
    """Return the place of the client that a call does not name, other than by its session."""
    taken = [seat for _, seat in sorted(trial.seats.items()) if seat.is_joined or seat.is_over]
    own = [seat for seat in taken if session_id and seat.session_id == session_id]
    if not taken:
        raise FailedPreconditionError(f"trial {trial.trial_id!r}: no client has joined")
    return (own or taken)[0]
