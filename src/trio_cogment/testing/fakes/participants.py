"""Fake actors, environments and hooks: they keep to the protocol or break it, and record all they see.

They speak the protocol itself, not through the SDK, so that they can break its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import trio
from google.protobuf.any_pb2 import Any as AnyMessage
from purerpc import Service

from trio_cogment.api.common_pb2 import (
    Action,
    ActorInitialOutput,
    ActorRunTrialOutput,
    Message,
    Reward,
    RewardSource,
    TrialParams,
)
from trio_cogment.api.environment_pb2 import EnvInitialOutput, EnvRunTrialOutput, ObservationSet
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.base.errors import RpcError
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.rpc import Call, CallOpener, ServerCall, bind, methods_of
from trio_cogment.sdk.spec import Payload, encode
from trio_cogment.testing.fakes.behaviour import END as END_STATE
from trio_cogment.testing.fakes.behaviour import (
    FROM_START,
    HEARTBEAT,
    LAST,
    LAST_ACK,
    NORMAL,
    Behave,
    Behaviour,
    CrashError,
    Misbehaviour,
    Part,
    Sees,
    VanishedError,
    check_behaviour,
    see_nothing,
)
from trio_cogment.testing.fakes.contents import (
    GREET_ONCE_IN,
    MEANINGLESS,
    WRONG,
    action_content,
    as_text,
    greeting,
    observations_of,
    reward_note,
)
from trio_cogment.testing.sim.world import World

# A fake pre-trial hook.

#: Misbehaviours that make no sense for a hook: it answers once, and has no ticks or messages of its own.
HOOKS_CANNOT = frozenset({Misbehaviour.DUPLICATE, Misbehaviour.FLOOD, Misbehaviour.NEVER_ACK})


class FakeHook:
    """A pre-trial hook.

    Args:
        world: for the history, the randomness and the counters.
        behave: how it behaves; the participant's name is "hook". WRONG_TICK returns invalid parameters.
        change: makes the parameters that it returns from those it gets; without it they are returned unchanged.

    Raises:
        ValueError: it cannot misbehave so. (If `behave` is a function that says so later, the simulated run fails.)
    """

    def __init__(
        self, world: World, behave: Behave | None = None, *, change: Callable[[TrialParams], TrialParams] | None = None
    ) -> None:
        self._world = world
        self._behave = behave = behave or Behaviour()
        check_behaviour(behave, "hook", HOOKS_CANNOT)
        self._change = change

    def service(self) -> Service:
        """Return `TrialHooksSP`, to be served."""
        return bind(SERVICES[ServiceKind.PRE_TRIAL_HOOK].descriptor(), self)

    async def OnPreTrial(self, request: PreTrialParams, call: ServerCall) -> PreTrialParams:
        """Answer with the parameters."""
        (trial_id,) = call.metadata.texts(TRIAL_ID)
        part = Part(self._world, self._behave, trial_id, "hook", "hook", cannot=HOOKS_CANNOT)
        params = request.params
        with part.session(raising=True):
            if not await part.think(FROM_START):
                await trio.sleep_forever()
            if self._change is not None:
                params = self._change(params)
            if part.does(Misbehaviour.WRONG_TICK, FROM_START):
                params = TrialParams()
            part.record("answered")
        return PreTrialParams(params=params)


_JOIN = methods_of(SERVICES[ServiceKind.CLIENT_ACTOR].descriptor())["RunTrial"]

#: What a participant sends at a tick beside what it must: the fields of messages, given its part and the tick.
Chatter: TypeAlias = Callable[[Part, int], Iterable[Mapping[str, Any]]]


def say_nothing(_part: Part, _tick_id: int) -> Iterable[Mapping[str, Any]]:
    """Nothing more than what must be said."""
    return ()


#: What an actor does, or is shown, given its name and a tick: a message of the project, or bytes.
MakePayload: TypeAlias = Callable[[str, int], Payload]

#: How many ticks an environment's trial has, by the trial's id; or for all. None goes on until it is told to end.
Ticks: TypeAlias = Callable[[str], int | None] | int | None


class FakeActor:
    """Actors, service or client, of any number of trials.

    Args:
        world: for the history, the randomness and the counters.
        behave: how each behaves.
        neighbours: the participants that each sends messages to, by name.
        sees: is given every message that one reads, with the `Part` that reads it.
        chatter: what they send beside: messages and rewards, before each action.
        action: makes their actions, for an environment with a spec; by default they are texts, which checkers know.
    """

    def __init__(
        self,
        world: World,
        behave: Behave | None = None,
        *,
        neighbours: Mapping[str, str] | None = None,
        sees: Sees = see_nothing,
        chatter: Chatter = say_nothing,
        action: MakePayload = action_content,
    ) -> None:
        self._action = action
        self._sees = sees
        self._chatter = chatter
        self._world = world
        self._behave = behave or Behaviour()
        self._neighbours = neighbours or {}

    def service(self) -> Service:
        """Return `ServiceActorSP`, to be served."""
        return bind(SERVICES[ServiceKind.ACTOR].descriptor(), self)

    async def RunTrial(self, call: ServerCall) -> None:
        """Take part in a trial as a service actor."""
        (trial_id,) = call.metadata.texts(TRIAL_ID)
        first = await call.receive()
        if first is None:
            return
        part = Part(self._world, self._behave, trial_id, "actor", first.init_input.actor_name)
        self._sees(part, first)
        with part.session():
            if await part.think(FROM_START):
                await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
            await self._play(call, part)

    async def join(self, opener: CallOpener, trial_id: str, actor_name: str) -> None:
        """Take part in a trial as a client actor.

        Errors of the call, and errors that the actor makes on purpose, are recorded and not raised. After
        `Cancelled` the actor has left.
        """
        part = Part(self._world, self._behave, trial_id, "actor", actor_name)
        try:
            with part.session():
                async with opener.call(_JOIN, metadata=[(TRIAL_ID, trial_id)]) as call:
                    selection = ActorInitialOutput(actor_name=actor_name)
                    await call.send(ActorRunTrialOutput(state=NORMAL, init_output=selection))
                    first = await call.receive()
                    if first is not None:
                        self._sees(part, first)
                    if first is not None and first.state == NORMAL:
                        await self._play(call, part)
        except (CrashError, VanishedError):
            pass  # what it was to do; leaving the call has reset its stream

    async def _play(self, call: Call, part: Part) -> None:
        name = part.who.removeprefix("actor ")
        ending = False
        tick_id = FROM_START
        async for message in call:
            self._sees(part, message)
            part.received(message.state, message.details)
            kind = message.WhichOneof("data")
            if message.state == END_STATE:
                return
            if message.state == LAST:
                ending = True
            elif message.state == HEARTBEAT:
                part.beats()
                await call.send(ActorRunTrialOutput(state=HEARTBEAT))
            elif kind == "reward":
                reward = message.reward
                notes = [as_text(source.user_data.value) for source in reward.sources]
                part.record("reward", tick=reward.tick_id, values=[one.value for one in reward.sources], notes=notes)
            elif kind == "message":
                part.heard(message.message)
            elif kind == "observation":
                tick_id = message.observation.tick_id
                part.record("observation", tick=tick_id, content=as_text(message.observation.content))
                if await part.think(tick_id):
                    try:
                        await (
                            self._acknowledge(call, part, tick_id) if ending else self._act(call, part, name, tick_id)
                        )
                    except RpcError:
                        pass  # it was over before the answer was ready: what is left to read says how

    async def _act(self, call: Call, part: Part, name: str, tick_id: int) -> None:
        if part.does(Misbehaviour.WRONG_TICK, tick_id):
            # -1 would mean the tick that there is.
            for wrong in (tick_id - 1 if tick_id else 500, tick_id + 1, tick_id + 1000):
                await call.send(ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=wrong, content=WRONG)))
            for fields in MEANINGLESS:
                await call.send(ActorRunTrialOutput(**fields))
        if part.does(Misbehaviour.FLOOD, tick_id):
            for _ in range(part.behaviour.count):
                flood = Message(tick_id=-1, receiver_name="*", payload=AnyMessage(value=b"flood"))
                await call.send(ActorRunTrialOutput(state=NORMAL, message=flood))
        neighbour = self._neighbours.get(name)
        if neighbour is not None and tick_id % GREET_ONCE_IN == 1:
            # Whose it is, is the orchestrator's to say.
            said = Message(tick_id=-1, sender_name="liar", receiver_name=neighbour)
            said.payload.CopyFrom(greeting(name, neighbour, tick_id))
            await call.send(ActorRunTrialOutput(state=NORMAL, message=said))
        for more in self._chatter(part, tick_id):
            await call.send(ActorRunTrialOutput(**more))
        content = encode(self._action(name, tick_id), None, f"action of {name!r}")
        action = Action(tick_id=tick_id, content=content)
        for _ in range(part.copies(tick_id)):
            await call.send(ActorRunTrialOutput(state=NORMAL, action=action))
        part.record("acted", tick=tick_id)

    async def _acknowledge(self, call: Call, part: Part, tick_id: int) -> None:
        if not part.does(Misbehaviour.NEVER_ACK, tick_id):
            for copy in range(part.copies(tick_id)):
                await call.send(ActorRunTrialOutput(state=LAST_ACK))
                if not copy:  # the others may have to wait
                    part.record("acknowledged")


class FakeEnvironment:
    """Environments of any number of trials.

    At even ticks each actor is shown an observation of its own, at odd ones all the same; at each tick but the first,
    each gets a reward for the one before, with a value of its own. At some ticks each is sent a message.

    Args:
        world: for the history, the randomness and the counters.
        behave: how each behaves.
        ticks: how long each trial goes on.
        sees: see `FakeActor`.
        chatter: see `FakeActor`; before each observation set.
        observation: makes the observation of each actor, for actors with a spec; by default they are texts, as above.
    """

    def __init__(
        self,
        world: World,
        behave: Behave | None = None,
        *,
        ticks: Ticks = 10,
        sees: Sees = see_nothing,
        chatter: Chatter = say_nothing,
        observation: MakePayload | None = None,
    ) -> None:
        self._observation = observation
        self._sees = sees
        self._chatter = chatter
        self._world = world
        self._behave = behave or Behaviour()
        self._ticks = ticks

    def service(self) -> Service:
        """Return `EnvironmentSP`, to be served."""
        return bind(SERVICES[ServiceKind.ENVIRONMENT].descriptor(), self)

    async def RunTrial(self, call: ServerCall) -> None:
        """Play a trial's environment."""
        (trial_id,) = call.metadata.texts(TRIAL_ID)
        first = await call.receive()
        if first is None:
            return
        init = first.init_input
        part = Part(self._world, self._behave, trial_id, "environment", init.name)
        self._sees(part, first)
        ticks = self._ticks(trial_id) if callable(self._ticks) else self._ticks
        with part.session():
            actors = [actor.name for actor in init.actors_in_trial]
            stage = _Stage(call, part, actors, ticks, self._chatter, self._observation)
            if await part.think(FROM_START):
                await call.send(EnvRunTrialOutput(state=NORMAL, init_output=EnvInitialOutput()))
                await stage.show(0)
            async for message in call:
                self._sees(part, message)
                part.received(message.state, message.details)
                if message.state == END_STATE:
                    return
                await stage.react(message)


class _Stage:
    """What an environment knows of its trial."""

    def __init__(
        self,
        call: Call,
        part: Part,
        actors: list[str],
        ticks: int | None,
        chatter: Chatter,
        observation: MakePayload | None,
    ) -> None:
        self._chatter = chatter
        self._observation = observation
        self._call = call
        self._part = part
        self._actors = actors
        self._ticks = ticks
        self._ending = False

    async def react(self, message: Any) -> None:
        if message.state == LAST:
            self._ending = True
        elif message.state == HEARTBEAT:
            self._part.beats()
            await self._call.send(EnvRunTrialOutput(state=HEARTBEAT))
        elif message.HasField("message"):
            self._part.heard(message.message)
        elif message.HasField("action_set"):
            actions = message.action_set
            contents = [as_text(content) for content in actions.actions]
            self._part.record(
                "actions",
                tick=actions.tick_id,
                contents=dict(zip(self._actors, contents, strict=True)),
                unavailable=list(actions.unavailable_actors),
            )
            if await self._part.think(actions.tick_id + 1):
                await self.show(actions.tick_id + 1)

    async def show(self, tick_id: int) -> None:
        part, call = self._part, self._call
        if self._ticks is not None and tick_id >= self._ticks and not self._ending:
            self._ending = True
            part.record("ends by itself")
            await call.send(EnvRunTrialOutput(state=LAST))
        for number, name in enumerate(self._actors if tick_id else []):
            # For the tick that was acted on; each value once in a trial.
            value = float(tick_id * len(self._actors) + number + 1)
            note = AnyMessage(value=reward_note(name, tick_id - 1))
            source = RewardSource(value=value, confidence=1.0, user_data=note)
            reward = Reward(tick_id=-1, receiver_name=name, value=value, sources=[source])
            await call.send(EnvRunTrialOutput(state=NORMAL, reward=reward))
        if part.does(Misbehaviour.FLOOD, tick_id):
            for _ in range(part.behaviour.count):
                flood = Message(tick_id=-1, receiver_name="*", payload=AnyMessage(value=b"flood"))
                await call.send(EnvRunTrialOutput(state=NORMAL, message=flood))
        if part.does(Misbehaviour.WRONG_TICK, tick_id):
            await self._observe(tick_id + 7, [WRONG], [0] * len(self._actors))
            for fields in MEANINGLESS:
                await call.send(EnvRunTrialOutput(**fields))
        for name in self._actors if tick_id % GREET_ONCE_IN == 2 else []:
            said = Message(tick_id=-1, sender_name="liar", receiver_name=name)
            said.payload.CopyFrom(greeting(part.name, name, tick_id))
            await call.send(EnvRunTrialOutput(state=NORMAL, message=said))
        for more in self._chatter(part, tick_id):
            await call.send(EnvRunTrialOutput(**more))
        contents, indexes = self._observations(tick_id)
        for _ in range(part.copies(tick_id)):
            await self._observe(tick_id, contents, indexes)
        part.record("showed", tick=tick_id)
        if self._ending and not part.does(Misbehaviour.NEVER_ACK, tick_id):
            await call.send(EnvRunTrialOutput(state=LAST_ACK))
            part.record("acknowledged")

    def _observations(self, tick_id: int) -> tuple[list[bytes], list[int]]:
        make = self._observation
        if make is None:
            return observations_of(self._actors, tick_id)
        contents = [encode(make(name, tick_id), None, f"observation of {name!r}") for name in self._actors]
        return contents, list(range(len(contents)))

    async def _observe(self, tick_id: int, contents: list[bytes], indexes: list[int]) -> None:
        shown = ObservationSet(tick_id=tick_id, timestamp=1, observations=contents, actors_map=indexes)
        await self._call.send(EnvRunTrialOutput(state=NORMAL, observation_set=shown))
