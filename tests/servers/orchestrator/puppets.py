"""Participants moved by hand, over the whole orchestrator: a test says what each sends, and looks at what each got."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.helpers import END, HEARTBEAT, LAST, LAST_ACK, NORMAL, Bench, Script, bench
from tests.trial.harness import kind_of
from trio_cogment.api import orchestrator_pb2
from trio_cogment.api.common_pb2 import (
    Action,
    ActorInitialOutput,
    ActorRunTrialOutput,
    Message,
    Reward,
    RewardSource,
    TrialParams,
    TrialState,
)
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import EnvInitialOutput, EnvRunTrialOutput, ObservationSet
from trio_cogment.base.errors import RpcError
from trio_cogment.rpc import Call, ServerCall, methods_of
from trio_cogment.servers.orchestrator import SampleStream

RUN_TRIAL = methods_of(orchestrator_pb2.DESCRIPTOR.services_by_name["ClientActorSP"])["RunTrial"]
CLIENT = "cogment://client"
LOGGED = "cogment://discover/datalog"

__all__ = ["CLIENT", "END", "HEARTBEAT", "LAST", "LAST_ACK", "LOGGED", "NORMAL", "Puppet", "Recorder", "Stage", "stage"]


async def settle() -> None:
    """Let everything that can happen without time going by happen."""
    await trio.testing.wait_all_tasks_blocked()


class Puppet:
    """One participant's end of its stream.

    Attributes:
        got: every message, in order.
        error: what its call ended with, if it did with an error.
    """

    def __init__(self, call: Call, output: type[Any]) -> None:
        self.call = call
        self.got: list[Any] = []
        self.error: RpcError | None = None
        self.over = False
        self._output = output
        self._scope = trio.CancelScope()
        self._looked_at = 0

    async def read(self) -> None:
        with self._scope:
            try:
                async for message in self.call:
                    self.got.append(message)
            except RpcError as error:
                self.error = error
        self.over = True

    def leave(self) -> None:
        """Close the stream."""
        self._scope.cancel()

    async def say(self, state: int = NORMAL, **data: Any) -> Puppet:
        await self.call.send(self._output(state=state, **data))
        await settle()
        return self

    async def ready(self) -> Puppet:
        is_actor = self._output is ActorRunTrialOutput
        return await self.say(init_output=ActorInitialOutput() if is_actor else EnvInitialOutput())

    async def observe(self, tick_id: int = -1, *, contents: Sequence[bytes] = (b"o",), indexes: Sequence[int]) -> None:
        data = ObservationSet(tick_id=tick_id, timestamp=5, observations=contents, actors_map=indexes)
        await self.say(observation_set=data)

    async def act(self, content: bytes = b"x", tick_id: int = -1) -> None:
        await self.say(action=Action(tick_id=tick_id, content=content))

    async def reward(self, receiver: str, *sources: tuple[float, float], tick_id: int = -1) -> None:
        listed = [RewardSource(sender_name="forged", value=value, confidence=weight) for value, weight in sources]
        await self.say(reward=Reward(tick_id=tick_id, receiver_name=receiver, sources=listed))

    async def tell(self, receiver: str, text: bytes = b"hello") -> None:
        payload = AnyMessage(type_url="type.googleapis.com/x.Y", value=text)
        await self.say(message=Message(tick_id=-1, sender_name="forged", receiver_name=receiver, payload=payload))

    def take(self) -> list[Any]:
        """Return what came since the last look."""
        news = self.got[self._looked_at :]
        self._looked_at = len(self.got)
        return news

    def kinds(self) -> list[str]:
        """The same, as short texts."""
        return [kind_of(message) for message in self.take()]

    def take_set(self) -> Any:
        (message,) = self.take()
        assert kind_of(message) == "NORMAL/action_set"
        return message.action_set

    @property
    def end(self) -> str | None:
        """The details of its END ("" if it had none); None if there was none."""
        ends = [message for message in self.got if message.state == END]
        assert len(ends) <= 1
        assert not ends or self.got[-1].state == END
        return ends[0].details if ends else None


class Recorder:
    """A sink that keeps the samples."""

    def __init__(self) -> None:
        self.samples: list[DatalogSample] = []

    @asynccontextmanager
    async def open(self, trial_id: str, user_id: str, params: TrialParams) -> AsyncIterator[SampleStream]:
        yield _Recording(self)


class _Recording(SampleStream):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def write(self, sample: DatalogSample) -> None:
        self._recorder.samples.append(sample)

    async def complete(self) -> None:
        pass


class Stage:
    """An orchestrator whose participants are puppets.

    Attributes:
        table: the orchestrator, its channel and a controller.
        samples: every trial's, as its data log got them.
        puppets: by name, "env" for the environment, of the trial contacted last.
    """

    def __init__(self) -> None:
        self.table: Bench
        self.recorder = Recorder()
        self.puppets: dict[str, Puppet] = {}
        self._nursery: trio.Nursery

    @property
    def samples(self) -> list[DatalogSample]:
        return self.recorder.samples

    def __getitem__(self, name: str) -> Puppet:
        return self.puppets[name]

    def __contains__(self, name: str) -> bool:
        return name in self.puppets

    async def environment(self, call: ServerCall) -> None:
        await self._contacted("env", Puppet(call, EnvRunTrialOutput))

    async def actor(self, call: ServerCall) -> None:
        puppet = Puppet(call, ActorRunTrialOutput)
        first = await call.receive()
        puppet.got.append(first)
        await self._contacted(first.init_input.actor_name, puppet)

    async def _contacted(self, name: str, puppet: Puppet) -> None:
        self.puppets[name] = puppet
        await puppet.read()
        if puppet.error is not None:
            raise puppet.error

    async def start(self, params: TrialParams, trial_id: str = "t") -> str:
        """Start a trial; everybody who is contacted at once is here when it returns."""
        started = await self.table.controller.start_trial(params, trial_id=trial_id)
        await settle()
        return started

    async def play(self, params: TrialParams, trial_id: str = "t") -> Stage:
        """Start a trial, with everybody ready; what they got until then is not looked at again."""
        await self.start(params, trial_id)
        for actor in params.actors:
            if actor.endpoint == CLIENT:
                await self.join(actor.name, trial_id)
            else:
                await self[actor.name].ready()
        await self["env"].ready()
        for puppet in self.puppets.values():
            puppet.take()
        return self

    async def join(self, name: str, trial_id: str = "t") -> Puppet:
        """Let a client actor join; whether it could is to be seen from the puppet."""
        joined = trio.Event()

        async def run() -> None:
            async with self.table.channel.call(RUN_TRIAL, metadata=[("trial-id", trial_id)]) as call:
                self.puppets[name] = Puppet(call, ActorRunTrialOutput)
                await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput(actor_name=name)))
                joined.set()
                await self.puppets[name].read()

        self._nursery.start_soon(run)
        await joined.wait()
        await settle()
        return self[name]

    async def info(self, trial_id: str = "t") -> Any:
        (info,) = await self.table.controller.trial_infos([trial_id])
        return info

    async def state(self, trial_id: str = "t") -> int:
        return int((await self.info(trial_id)).state)

    async def soft(self, trial_id: str = "t") -> None:
        await self.table.controller.terminate_trial(trial_id)
        await settle()

    async def hard(self, trial_id: str = "t") -> None:
        await self.table.controller.terminate_trial(trial_id, hard=True)
        await settle()

    async def watched(self, trial_id: str = "t") -> list[int]:
        """Return the states that a watcher sees from now on, in a list that grows."""
        states: list[int] = []
        watching = trio.Event()

        async def watch() -> None:
            async with self.table.controller.watch_trials() as entries:
                watching.set()
                async for entry in entries:
                    if entry.trial_id == trial_id:
                        states.append(entry.state)
                        if entry.state == TrialState.ENDED:
                            return

        self._nursery.start_soon(watch)
        await watching.wait()
        return states


@asynccontextmanager
async def stage(**options: Any) -> AsyncIterator[Stage]:
    """Set up a stage; options are the orchestrator's."""
    made = Stage()
    services = Script(made.environment).environment(), Script(made.actor).actor()
    async with (
        bench(*services, sink=made.recorder, **options) as made.table,
        trio.open_nursery() as made._nursery,
    ):
        yield made
        made._nursery.cancel_scope.cancel()
