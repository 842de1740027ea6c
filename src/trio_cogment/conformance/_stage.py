"""A trial whose participants a case moves by hand."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
from google.protobuf.any_pb2 import Any as AnyMessage
from trio_util import AsyncValue

from trio_cogment.api.common_pb2 import (
    Action,
    ActorInitialOutput,
    ActorParams,
    ActorRunTrialOutput,
    CommunicationState,
    Message,
    Reward,
    RewardSource,
    TrialParams,
    TrialState,
)
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogOutput
from trio_cogment.api.environment_pb2 import EnvInitialOutput, EnvRunTrialOutput, ObservationSet
from trio_cogment.api.orchestrator_pb2 import (
    TerminateTrialRequest,
    TrialInfoRequest,
    TrialListRequest,
    TrialStartRequest,
)
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.errors import RpcError
from trio_cogment.base.services import ServiceKind
from trio_cogment.conformance._server import Server
from trio_cogment.rpc import Call, ServerCall
from trio_cogment.sdk import actor_params, trial_params

NORMAL, HEARTBEAT = CommunicationState.NORMAL, CommunicationState.HEARTBEAT
LAST, LAST_ACK, END = CommunicationState.LAST, CommunicationState.LAST_ACK, CommunicationState.END
ENV = "env"
_POLL_SECONDS = 0.02


class NothingCameError(Exception):
    """Something that has to come did not, within the case's patience."""


def told(message: Any) -> str:
    """Return a message of a participant's stream as a short text: "observation 2", "LAST", "END (details)"."""
    kind = message.WhichOneof("data")
    if message.state != NORMAL:
        name = str(CommunicationState.Name(message.state))
        return f"{name} (details)" if kind == "details" and message.details else name
    if kind in ("observation", "action_set"):
        return f"{kind.replace('_', ' ')} {getattr(message, kind).tick_id}"
    return str(kind)


class Participant:
    """One end of a participant's stream.

    Attributes:
        name: of the participant.
        got: what it got, in order, without heartbeats (which it answers).
        error: what its call ended with, if that was an error.
        is_over: its call has ended.
    """

    def __init__(self, name: str, call: Call, output: type[Any], patience_seconds: float) -> None:
        self.name = name
        self.got: list[Any] = []
        self.error: RpcError | None = None
        self.is_over = False
        self._call = call
        self._output = output
        self._patience = patience_seconds
        self._looked_at = 0
        self._changes = AsyncValue(0)
        self._reading = trio.CancelScope()

    def add(self, message: Any) -> None:
        """Take a message that it has got."""
        self.got.append(message)
        self._changes.value += 1

    async def read(self) -> None:
        """Read until the stream ends, or the participant leaves."""
        with self._reading:
            try:
                async for message in self._call:
                    if message.state == HEARTBEAT:
                        await self._call.send(self._output(state=HEARTBEAT))
                    else:
                        self.add(message)
            except RpcError as error:
                self.error = error
        self.is_over = True
        self._changes.value += 1

    def leave(self) -> None:
        """Break the stream off."""
        self._reading.cancel()

    async def say(self, state: int = NORMAL, **data: Any) -> None:
        """Send a message."""
        await self._call.send(self._output(state=state, **data))

    async def ready(self) -> None:
        """Say that it is ready."""
        is_environment = self._output is EnvRunTrialOutput
        await self.say(init_output=EnvInitialOutput() if is_environment else ActorInitialOutput())

    async def observe(self, tick_id: int = -1, *, indexes: Sequence[int], contents: Sequence[bytes] = (b"o",)) -> None:
        """As an environment, send observations."""
        made = ObservationSet(tick_id=tick_id, timestamp=5, observations=contents, actors_map=indexes)
        await self.say(observation_set=made)

    async def act(self, content: bytes = b"x") -> None:
        """As an actor, act at the latest tick."""
        await self.say(action=Action(tick_id=-1, content=content))

    async def reward(self, receiver: str, *sources: tuple[float, float], tick_id: int = -1) -> None:
        """Send a reward of sources, each a value and a confidence."""
        listed = [RewardSource(sender_name="forged", value=value, confidence=weight) for value, weight in sources]
        await self.say(reward=Reward(tick_id=tick_id, receiver_name=receiver, sources=listed))

    async def tell(self, receiver: str, text: str) -> None:
        """Send a message to others."""
        payload = AnyMessage(type_url="type.googleapis.com/x.Y", value=text.encode())
        await self.say(message=Message(tick_id=-1, sender_name="forged", receiver_name=receiver, payload=payload))

    def take(self) -> list[Any]:
        """Return what came since the last look."""
        news, self._looked_at = self.got[self._looked_at :], len(self.got)
        return news

    def kinds(self) -> list[str]:
        """The same, as short texts."""
        return [told(message) for message in self.take()]

    async def until(self, what: str, condition: Callable[[Any], bool]) -> Any:
        """Wait for a message, which stays among what was not looked at; return it.

        Raises:
            NothingCameError: it does not come, or the stream ends before.
        """

        def found() -> Any:
            return next((message for message in self.got[self._looked_at :] if condition(message)), None)

        with trio.move_on_after(self._patience):
            await self._changes.wait_value(lambda _: found() is not None or self.is_over)
        message = found()
        if message is None:
            raise NothingCameError(f"{self.name} did not get {what}")
        return message

    async def next(self, kind: str) -> Any:
        """Wait for the next message of a kind, as `told` names it, and pass over what comes before it."""
        message = await self.until(kind, lambda message: told(message).split(" ")[0] == kind.split(" ")[0])
        while self.got[self._looked_at] is not message:
            self._looked_at += 1
        self._looked_at += 1
        return message

    async def ended(self) -> list[str]:
        """Wait for END, and return what came until then and was not looked at, as short texts."""
        await self.until("END", lambda message: message.state == END)
        return self.kinds()

    def forget(self, message: Any) -> None:
        """Remove a message from what came and was not looked at."""
        self.got.remove(message)


class Stage:
    """A trial and its participants.

    Attributes:
        trial_id: of the trial.
        participants: those that were contacted or have joined, by name; the environment is "env".
        samples: what the data log got.
    """

    def __init__(self, server: Server, nursery: trio.Nursery) -> None:
        self.server = server
        self.trial_id = server.new_id()
        self.participants: dict[str, Participant] = {}
        self.samples: list[DatalogSample] = []
        self._nursery = nursery
        self._arrivals = AsyncValue(0)
        self._fences = itertools.count()

    def __getitem__(self, name: str) -> Participant:
        return self.participants[name]

    async def environment(self, call: ServerCall) -> None:
        """Be the environment."""
        await self._take_part(ENV, Participant(ENV, call, EnvRunTrialOutput, self.server.patience_seconds))

    async def actor(self, call: ServerCall) -> None:
        """Be an actor, which is named by the first message."""
        first = await call.receive()
        name = str(first.init_input.actor_name)
        participant = Participant(name, call, ActorRunTrialOutput, self.server.patience_seconds)
        participant.add(first)
        await self._take_part(name, participant)

    async def datalog(self, call: ServerCall) -> None:
        """Be the data log."""
        async for message in call:
            if message.HasField("sample"):
                self.samples.append(message.sample)
                self._arrivals.value += 1
            await call.send(RunTrialDatalogOutput())

    async def _take_part(self, name: str, participant: Participant) -> None:
        self.participants[name] = participant
        self._arrivals.value += 1
        await participant.read()

    def params(self, *actors: str | ActorParams, **options: Any) -> TrialParams:
        """Return the parameters of a trial of the kit's participants; a name is an actor of class "cls"."""
        here = self.server.reached_at
        listed = [actor_params(actor, "cls") if isinstance(actor, str) else actor for actor in actors]
        for actor in listed:
            if actor.endpoint != CLIENT:
                actor.endpoint = here
        return trial_params(listed, environment_name=ENV, environment_endpoint=here, datalog_endpoint=here, **options)

    async def start(self, params: TrialParams) -> str:
        """Ask for the trial; return the id that is answered.

        Raises:
            RpcError: it was refused.
        """
        request = TrialStartRequest(params=params, user_id="conformance", trial_id_requested=self.trial_id)
        return str((await self.server.ask(ServiceKind.LIFECYCLE, "StartTrial", request)).trial_id)

    async def begin(self, params: TrialParams) -> Stage:
        """Start the trial with everybody ready; what they got until then counts as looked at."""
        await self.start(params)
        for actor in params.actors:
            if actor.endpoint == CLIENT:
                await self.join(actor.name)
            else:
                await (await self.contacted(actor.name)).ready()
        await (await self.contacted(ENV)).ready()
        for participant in self.participants.values():
            await participant.next("init_input")
        return self

    async def contacted(self, name: str) -> Participant:
        """Wait until the server has contacted a participant.

        Raises:
            NothingCameError: it does not.
        """
        with trio.move_on_after(self.server.patience_seconds):
            await self._arrivals.wait_value(lambda _: name in self.participants)
        if name not in self.participants:
            raise NothingCameError(f"{name} was not called")
        return self.participants[name]

    async def sampled(self, count: int) -> list[DatalogSample]:
        """Wait until the data log has so many samples, and return all it has.

        Raises:
            NothingCameError: they do not come.
        """
        with trio.move_on_after(self.server.patience_seconds):
            await self._arrivals.wait_value(lambda _: len(self.samples) >= count)
        if len(self.samples) < count:
            raise NothingCameError(f"the data log got {len(self.samples)} samples, not {count}")
        return self.samples

    async def join(self, name: str = "", *, actor_class: str = "") -> Participant:
        """Let a client join; whether it could is told by its first message, or by its error."""
        slot = {"actor_name": name} if name else {"actor_class": actor_class}
        patience = self.server.patience_seconds

        async def run(task_status: trio.TaskStatus[Participant]) -> None:
            async with self.server.call(ServiceKind.CLIENT_ACTOR, "RunTrial", trial_id=self.trial_id) as call:
                participant = Participant(name, call, ActorRunTrialOutput, patience)
                self.participants[name] = participant
                await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput(**slot)))
                task_status.started(participant)
                await participant.read()

        joined: Participant = await self._nursery.start(run)
        return joined

    async def joined(self, name: str = "", *, actor_class: str = "") -> str:
        """Let a client join, and return "accepted", or the status with which it was refused."""
        try:
            client = await self.join(name, actor_class=actor_class)
            await client.until("an answer", lambda message: message.HasField("init_input"))
        except RpcError as error:
            return error.code.name
        except NothingCameError:
            return client.error.code.name if client.error is not None else "no answer"
        return "accepted"

    async def info(self) -> Any:
        """Return what the server says about the trial; None: nothing."""
        request = TrialInfoRequest(get_latest_observation=True, get_actor_list=True)
        reply = await self.server.ask(ServiceKind.LIFECYCLE, "GetTrialInfo", request, trial_id=self.trial_id)
        return next(iter(reply.trial), None)

    async def state(self) -> str:
        """Return the name of the trial's state."""
        info = await self.info()
        return "unknown" if info is None else str(TrialState.Name(info.state))

    async def reached(self, state: str, seconds: float | None = None) -> bool:
        """Return whether the trial comes to a state."""
        with trio.move_on_after(self.server.patience_seconds if seconds is None else seconds):
            while await self.state() != state:  # noqa: ASYNC110  the event is in another process
                await trio.sleep(_POLL_SECONDS)
            return True
        return False

    async def terminate(self, *, hard: bool = False) -> None:
        """Ask for the end of the trial."""
        request = TerminateTrialRequest(hard_termination=hard)
        await self.server.ask(ServiceKind.LIFECYCLE, "TerminateTrial", request, trial_id=self.trial_id)

    async def fence(self, sender: str, receiver: str) -> None:
        """Let a message pass from one participant to another: what the sender caused before has come to the receiver.

        The message itself does not count as something that came.
        """
        text = f"fence {next(self._fences)}".encode()
        await self[sender].tell(receiver, text.decode())
        passed = await self[receiver].until(
            "a message", lambda message: message.HasField("message") and message.message.payload.value == text
        )
        self[receiver].forget(passed)

    async def acknowledge(self, *names: str) -> str:
        """Let the environment and actors acknowledge the end; return the state that the trial comes to."""
        for name in (ENV, *names):
            await self[name].say(LAST_ACK)
        await self.reached("ENDED")
        return await self.state()

    async def watched(self) -> Watched:
        """Watch the trial from now on."""
        seen = Watched(self.server.patience_seconds)

        async def watch(task_status: trio.TaskStatus[None]) -> None:
            async with self.server.call(ServiceKind.LIFECYCLE, "WatchTrials") as call:
                await call.send(TrialListRequest())
                await call.done_sending()
                task_status.started()
                try:
                    async for entry in call:
                        if entry.trial_id == self.trial_id:
                            seen.add(TrialState.Name(entry.state))
                except RpcError:
                    pass  # it has seen what it has seen

        await self._nursery.start(watch)
        return seen


class Watched:
    """The states that a watcher is told of, but for INITIALIZING, which it may be too late for."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._states = AsyncValue[tuple[str, ...]](())

    def add(self, state: str) -> None:
        """Take a state."""
        if state != "INITIALIZING":
            self._states.value = (*self._states.value, state)

    async def until_ended(self) -> str:
        """Wait for ENDED; return all that came, with commas."""
        with trio.move_on_after(self._patience):
            await self._states.wait_value(lambda states: "ENDED" in states)
        return ", ".join(self._states.value)


@asynccontextmanager
async def staged(server: Server) -> AsyncIterator[Stage]:
    """Make a stage; the trial is ended, whatever became of it."""
    async with trio.open_nursery() as nursery:
        stage = Stage(server, nursery)
        server.hosts[stage.trial_id] = stage
        try:
            yield stage
        finally:
            with trio.move_on_after(server.patience_seconds, shield=True):
                try:
                    await stage.terminate(hard=True)
                except RpcError:
                    pass  # it has ended, never began, or the server is gone
            del server.hosts[stage.trial_id]
        nursery.cancel_scope.cancel()
