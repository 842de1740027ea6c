"""Ends of trials for those who take part: what each is told last, when it is let go, and what is said of its loss.

Actors are served in the orchestrator's process and elsewhere, or join from both, with a task and without. They leave,
stay, fail, stop sending, do not read, or only late, or cannot be sent what they should be. What must come of it is
known from how each of them behaves, and from when its trial has ended, or the orchestrator was stopped. Samples go to a
sink of the process, which is told whose they are.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import trio

from tests.helpers import END, LAST, LAST_ACK, NORMAL, Script, start_environment
from trio_cogment.access import Quotas
from trio_cogment.api.common_pb2 import Action, ActorInitialOutput, ActorRunTrialOutput, TrialParams
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import EnvRunTrialOutput, ObservationSet
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError, StatusCode, UnavailableError
from trio_cogment.base.outcome import EndCause, Loss
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.rpc import Call, CallOpener, DirectCall, InProcessChannel, RpcConfig, ServerCall, methods_of, serve
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.orchestrator import Orchestrator, SampleSink, SampleStream, orchestrator_services
from trio_cogment.servers.orchestrator.sinks import LocalSink
from trio_cogment.testing import World

PORT = 9000
TRIALS = 8
FAREWELL_SECONDS = 2.0
#: No message to an actor may be larger.
MOST_BYTES = 4000
#: How often the end is looked for, and a bit.
MOMENT = 0.02
#: How long after the end some begin to read.
LATE_SECONDS = 1.0
#: What a message takes at most over the network.
ON_THE_WAY = 0.5
#: Where actors are: served here and there, and clients of this process, with a task and without, and of another.
SERVED, CLIENTS = ("here", "there"), ("near", "direct", "afar")
INSIDE = ("here", "near", "direct")
MANNERS = ("acts", "acts", "stays", "fails", "half", "deaf", "late", "large", "refused")
#: How a trial's end comes about, and what its participants are told of it.
ENDS = {
    "soft": (EndCause.ENVIRONMENT, ""),
    "hard": (EndCause.HARD_TERMINATION, "somebody asked for it"),
    "fails": (EndCause.PARTICIPANT_FAILED, "the environment 'env' failed: "),
    "stop": (EndCause.SERVER_STOPPED, "the orchestrator is stopping"),
}
#: What is said of those whom a trial loses, by their manner.
LOST = {
    "fails": (EndCause.PARTICIPANT_FAILED, "unexpected failure in the handler"),
    "half": (EndCause.PARTICIPANT_LEFT, "it closed its s"),
    "large": (EndCause.PARTICIPANT_REFUSED, f"is larger than {MOST_BYTES} allowed to send"),
    "refused": (EndCause.PARTICIPANT_REFUSED, "where init_output was expected"),
}
#: Of those who join from afar: what one of them does not read is soon in the way.
SHORT = RpcConfig(stream_window_bytes=64)
ACCOUNTS = ("", "token:alice", "address:somebody")
JOIN = methods_of(SERVICES[ServiceKind.CLIENT_ACTOR].descriptor())["RunTrial"]


@dataclass(eq=False)
class Part:
    """An actor of a trial, and what it has seen.

    Attributes:
        kind: where it is.
        manner: how it behaves.
        seen: how many observations have come.
        left: when it did what it does, if it has; or when it was sent what is too large.
        ended: when it was told of the end, and with which details.
        closed: when one that is served had read everything.
        over: when its call was over for it, and with which status.
    """

    name: str
    kind: str
    manner: str
    seen: int = 0
    ending: bool = False
    left: float | None = None
    ended: float | None = None
    details: str = ""
    closed: float | None = None
    over: float | None = None
    status: RpcError | None = None


@dataclass(eq=False)
class Parting:
    """A trial: how it ends, and who takes part."""

    trial_id: str
    how: str
    ticks: int
    env: str
    stays: bool
    account: str
    quotas: Quotas
    parts: dict[str, Part]
    began: float = 0.0
    done: float = 0.0
    env_told: str | None = None
    has_failed: bool = False
    late: trio.Event = field(default_factory=trio.Event)
    over: trio.Event = field(default_factory=trio.Event)
    owners: list[tuple[str, Quotas]] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)


class Sink(SampleSink):
    """The sink of this process, which keeps whose samples it was given."""

    def __init__(self, play: Play, owner: tuple[str, Quotas] | None = None) -> None:
        self._play = play
        self._owner = owner

    def owned_by(self, account: str, quotas: Quotas) -> Sink:
        return Sink(self._play, (account, quotas))

    @asynccontextmanager
    async def open(self, trial_id: str, _user_id: str, _params: TrialParams) -> AsyncIterator[SampleStream]:
        assert self._owner is not None, "nobody said whose the samples are"
        trial = self._play.trials[trial_id]
        trial.owners.append(self._owner)
        yield _Stream(trial)


class _Stream(SampleStream):
    def __init__(self, trial: Parting) -> None:
        self._trial = trial

    async def write(self, sample: DatalogSample) -> None:
        self._trial.samples.append(sample.info.tick_id)

    async def complete(self) -> None:
        pass


class Play:
    """The trials, and everybody's part in them."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        self._world = world
        self._rng: random.Random = world.rng
        self._nursery = nursery
        self.trials: dict[str, Parting] = {}
        self._stopped: float | None = None
        self.orchestrator: Orchestrator
        self.near: InProcessChannel
        self.afar: CallOpener

    def _draw(self, number: int) -> Parting:
        rng = self._rng
        parts = {"steady": Part("steady", "here", "acts")}
        for index in range(rng.randint(1, 4)):
            kind = rng.choice([*SERVED, *CLIENTS])
            # A client has joined with what it says first.
            manner = rng.choice(MANNERS[:-1] if kind in CLIENTS else MANNERS)
            parts[f"a{index}"] = Part(f"a{index}", kind, manner)
        how = rng.choice(["soft", "hard", "fails"])
        return Parting(
            f"t{number}",
            how,
            ticks=rng.randint(4, 9),
            env=rng.choice(SERVED),
            stays=rng.random() < 0.2,
            account=rng.choice(ACCOUNTS),
            quotas=Quotas(trials=rng.choice([None, TRIALS])),
            parts=parts,
        )

    async def run(self, number: int) -> None:
        """Play one trial, and look at what came of it."""
        trial = self._draw(number)
        self.trials[trial.trial_id] = trial
        trial.began = trio.current_time()
        places = {"here": "cogment://discover", "there": f"grpc://far:{PORT}"}
        actors = [
            actor_params(
                part.name,
                "player",
                endpoint=places.get(part.kind, "cogment://client"),
                optional=True,
                response_timeout_seconds=1.0,
            )
            for part in trial.parts.values()
        ]
        params = trial_params(
            actors,
            environment_endpoint=places[trial.env],
            environment_name="env",
            datalog_endpoint="cogment://discover/datalog",
        )
        start = self.orchestrator.start_trial
        assert await start(trial_id=trial.trial_id, params=params, account=trial.account, quotas=trial.quotas)
        for part in trial.parts.values():
            if part.kind in CLIENTS:
                self._join(trial, part)
        known = self.orchestrator.trials.get(trial.trial_id)
        assert known is not None
        hard_at = trio.current_time() + self._rng.uniform(1.5, 6)
        with trio.fail_after(60):
            while not known.over:
                await trio.sleep(0.01)
                if trial.how == "hard" and trio.current_time() >= hard_at and not known.over:
                    self._check_tasks(trial)
                    known.hard_end(ENDS["hard"][1])
            self._nursery.start_soon(self._let_read, trial)
            while any(run.trial is known for run in self.orchestrator.runs):  # noqa: ASYNC110  virtual time is free
                await trio.sleep(0.01)
        trial.done = trio.current_time()
        await trial.late.wait()
        assert known.outcome is not None
        if known.outcome.cause == EndCause.SERVER_STOPPED:
            assert known.ended_at == self._stopped, f"{trial.trial_id} has ended at {known.ended_at}"
            trial.how = "stop"
        trial.over.set()
        await trio.sleep(ON_THE_WAY)
        self._check(trial, known)

    async def stop(self) -> None:
        """Stop the orchestrator: everybody is told, and nobody is waited for longer than a farewell takes."""
        self._stopped = trio.current_time()
        await self.orchestrator.stop()
        took = trio.current_time() - self._stopped
        left = self.orchestrator.running_trials
        assert took <= FAREWELL_SECONDS + MOMENT, f"it took {took:.3f} s to stop"
        assert not left or took == pytest.approx(FAREWELL_SECONDS), f"{left} trials are left after {took:.3f} s"
        with pytest.raises(UnavailableError, match="the orchestrator is stopping"):
            await self.orchestrator.start_trial(trial_id="late", params=trial_params([]))

    async def _let_read(self, trial: Parting) -> None:
        await trio.sleep(LATE_SECONDS)
        trial.late.set()

    # Participants

    def environment_of(self, call: ServerCall) -> Parting:
        return self.trials[call.metadata.texts(TRIAL_ID)[0]]

    async def environment(self, call: ServerCall) -> None:
        """Play the environment of a trial."""
        trial = self.environment_of(call)
        rng = self._world.stream(f"ticks {trial.trial_id}")
        await start_environment(call)
        ending, tick = False, 0
        await call.send(self._shown(trial, tick))
        async for message in call:
            if message.state == END:
                trial.env_told = message.details
                if trial.stays:
                    await trio.sleep_forever()
                return
            if not message.HasField("action_set") or ending:
                continue
            await trio.sleep(rng.uniform(0.1, 0.4))
            tick += 1
            if trial.how == "fails" and tick == trial.ticks:
                trial.has_failed = True
                raise RuntimeError("it breaks")
            ending = trial.how == "soft" and tick == trial.ticks
            if ending:
                await call.send(EnvRunTrialOutput(state=LAST))
            await call.send(self._shown(trial, tick))
            if ending:
                await call.send(EnvRunTrialOutput(state=LAST_ACK))

    def _shown(self, trial: Parting, tick: int) -> EnvRunTrialOutput:
        """Show everybody the same, but for those who are shown too much at the second tick."""
        large = [part.manner == "large" and tick == 1 for part in trial.parts.values()]
        for part, is_large in zip(trial.parts.values(), large, strict=True):
            if is_large and part.ended is None:
                part.left = trio.current_time()
        observations = ObservationSet(
            tick_id=-1, timestamp=1, observations=[b"o", bytes(MOST_BYTES)], actors_map=map(int, large)
        )
        return EnvRunTrialOutput(state=NORMAL, observation_set=observations)

    async def actor(self, call: ServerCall) -> None:
        """Play an actor that is served."""
        first = await call.receive()
        part = self.environment_of(call).parts[first.init_input.actor_name]
        try:
            if part.manner == "refused":
                part.left = trio.current_time()
                await call.send(ActorRunTrialOutput(state=NORMAL, action=Action(content=b"too early")))
                await trio.sleep_forever()
            await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
            if part.manner == "late":
                await self.trials[call.metadata.texts(TRIAL_ID)[0]].late.wait()
            if part.manner != "deaf":
                await self._act(part, call)
            part.closed = trio.current_time()
            if part.manner in ("stays", "deaf"):
                await trio.sleep_forever()
        finally:
            part.over = trio.current_time()

    def _join(self, trial: Parting, part: Part) -> None:
        metadata = ((TRIAL_ID, trial.trial_id),)
        wanted = ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput(actor_name=part.name))
        if part.kind != "direct":
            opener = self.near if part.kind == "near" else self.afar
            self._nursery.start_soon(self._client, trial, part, opener, metadata, wanted)
            return
        assert self.near._nursery is not None
        tasks = len(self.near._nursery.child_tasks)
        call = self.near.call_nowait(JOIN, metadata=metadata, first=wanted)
        assert call is not None
        assert len(self.near._nursery.child_tasks) == tasks, f"{trial.trial_id}: a task serves {part.name}"
        client = _Direct(self, part, call)
        if part.manner in ("deaf", "late"):
            self._nursery.start_soon(client.read_late, trial.late if part.manner == "late" else trial.over)
        else:
            call.set_consumer(client)

    async def _client(
        self, trial: Parting, part: Part, opener: CallOpener, metadata: Any, wanted: ActorRunTrialOutput
    ) -> None:
        """Play an actor that joins."""
        try:
            async with opener.call(JOIN, metadata=metadata) as call:
                await call.send(wanted)
                if part.manner in ("deaf", "late"):
                    await (trial.late if part.manner == "late" else trial.over).wait()
                await self._act(part, call)
        except RpcError as error:
            part.status = error
        finally:
            part.over = trio.current_time()

    async def _act(self, part: Part, call: Call) -> None:
        """Act at once, and do what a part's manner is; return when it leaves, or its call is over."""
        async for message in call:
            answer = self.answer(part, message)
            if answer is not None:
                await call.send(answer)
            elif part.left == trio.current_time() and part.manner == "fails":
                if isinstance(call, ServerCall):
                    raise RuntimeError("it breaks")
                return
            elif part.left == trio.current_time() and part.manner == "half" and not part.ended:
                if isinstance(call, ServerCall):
                    return
                await call.done_sending()  # type: ignore[attr-defined]  # the only other kind is a client's
            elif part.ended is not None and part.manner == "acts":
                return  # the others wait until their call is over

    def answer(self, part: Part, message: Any) -> ActorRunTrialOutput | None:
        """Return what an actor answers; None: nothing, or it does what its manner is."""
        if message.state == END:
            assert part.ended is None, f"{part} was told of the end twice"
            part.ended, part.details = trio.current_time(), message.details
            return None
        part.ending = part.ending or message.state == LAST
        if not message.HasField("observation"):
            return None
        part.seen += 1
        if part.ending:
            return (
                None
                if part.left is not None or part.manner in ("deaf", "late")
                else ActorRunTrialOutput(state=LAST_ACK)
            )
        if part.left is None and part.seen == 2 and part.manner in ("fails", "half"):
            part.left = trio.current_time()
        if part.left is not None or part.manner in ("deaf", "late"):
            return None
        return ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=message.observation.tick_id, content=b"a"))

    # What should be

    def _check_tasks(self, trial: Parting) -> None:
        """Whom the orchestrator finds in its process needs no task of the trial."""
        (run,) = (run for run in self.orchestrator.runs if run.trial.trial_id == trial.trial_id)
        assert run._nursery is not None
        tasks = {task.name for task in run._nursery.child_tasks}
        names = ["env"] * (trial.env == "here") + [part.name for part in trial.parts.values() if part.kind == "here"]
        held = [name for name in names if f"trial {trial.trial_id}: {name}" in tasks]
        assert not held, f"{trial.trial_id}: tasks hold the calls of {held}"

    def _check(self, trial: Parting, known: Any) -> None:
        ended, outcome = known.ended_at, known.outcome
        what = f"{trial.trial_id}, {trial.how}"
        if ended - trial.began < ON_THE_WAY:
            return  # not everybody was there yet
        self._world.sometimes(trial.how)
        cause, details = ENDS[trial.how]
        assert outcome.cause == cause, f"{what}: {outcome}"
        owner = trial.account if trial.account.startswith("token:") else ""
        assert trial.owners == [(owner, trial.quotas)], f"{what}: samples of {trial.owners}, it is {owner!r}'s"
        assert trial.samples == [*range(outcome.ticks)], f"{what}: samples {trial.samples} of {outcome.ticks} ticks"
        losses = {loss.participant: loss for loss in outcome.losses if loss.participant != "env"}
        patient = trial.stays and not trial.has_failed
        least, most = 0.0, ON_THE_WAY
        for part in trial.parts.values():
            loss = losses.pop(part.name, None)
            self._check_part(trial, part, ended, loss)
            if part.left is None and part.manner in ("deaf", "stays", "late"):
                is_client = part.kind in CLIENTS
                patient = patient or (part.manner != "late" and not is_client)
                most = FAREWELL_SECONDS
        assert not losses, f"{what}: {losses}"
        if not trial.has_failed:
            assert trial.env_told == details, f"{what}: the environment was told {trial.env_told!r}"
        took = trial.done - ended
        if patient:
            least = most = FAREWELL_SECONDS
        assert least <= took <= most + MOMENT, f"{what}: it was over {took:.3f} s after its end"

    def _check_part(self, trial: Parting, part: Part, ended: float, loss: Loss | None) -> None:
        what = f"{trial.trial_id}, {trial.how} at {ended:.3f}: {part}: {loss}"
        is_client = part.kind in CLIENTS
        if part.left is not None and part.left > ended - ON_THE_WAY:
            return  # the end may have come first
        self._world.sometimes(f"{part.manner}, {'client' if is_client else 'served'}")
        self._check_loss(trial, part, loss, what)
        if part.left is not None:
            stays_told = is_client and part.manner == "half"
            self._check_end(part, part.left if stays_told else None, "it closed its side of the stream", what)
            self._check_over(part, part.left, what)
        elif part.manner == "deaf":
            # A client that does read in the end finds its call over, with what has come so far.
            self._check_over(
                part, max(trial.done, ended + LATE_SECONDS) if is_client else ended + FAREWELL_SECONDS, what
            )
            assert not is_client or part.seen > 0, what
        else:
            reads = ended if part.manner != "late" else ended + LATE_SECONDS
            self._check_end(part, reads, ENDS[trial.how][1], what)
            stays = part.manner == "stays" and not is_client
            assert is_client or (part.closed is not None and reads <= part.closed <= reads + ON_THE_WAY), what
            self._check_over(part, ended + FAREWELL_SECONDS if stays else reads, what)

    def _check_loss(self, trial: Parting, part: Part, loss: Loss | None, what: str) -> None:
        cause, reason = None, ""
        if part.left is not None:
            cause, reason = LOST[part.manner]
            if part.manner == "fails" and part.kind in CLIENTS:  # a client has no status to send
                cause, reason = EndCause.PARTICIPANT_LOST, "CANCELLED"
        elif part.manner in ("deaf", "late") and trial.how == "soft":
            cause, reason = EndCause.ACKNOWLEDGEMENT_MISSING, "did not acknowledge the end of the trial"
        assert (None if loss is None else loss.cause) == cause, what
        assert loss is None or reason in loss.reason, what

    def _check_end(self, part: Part, at: float | None, details: str, what: str) -> None:
        """What it was told of the end, and when."""
        if at is None:
            assert part.ended is None, what
            return
        assert part.ended is not None, what
        assert at <= part.ended <= at + (MOMENT if part.kind in INSIDE else ON_THE_WAY), what
        assert part.details == details or (details and part.details.startswith(details)), what

    def _check_over(self, part: Part, at: float, what: str) -> None:
        """When its call was over for it, and how."""
        assert part.over is not None, what
        assert at <= part.over <= at + ON_THE_WAY, what
        assert part.kind not in INSIDE or part.over <= at + MOMENT or part.manner == "large", what
        if part.manner == "large" and part.left is not None and part.kind in CLIENTS:
            assert part.status is not None, what
            assert part.status.code is StatusCode.RESOURCE_EXHAUSTED, what
            assert "it cannot be sent what it should be: message of" in part.status.message, what
        elif part.manner != "fails":
            assert part.status is None, what


class _Direct:
    """A client of this process without a task: the consumer of its call."""

    def __init__(self, play: Play, part: Part, call: DirectCall) -> None:
        self._play = play
        self._part = part
        self._call = call

    async def read_late(self, event: trio.Event) -> None:
        """Read nothing before something has happened."""
        await event.wait()
        self._call.set_consumer(self)

    def on_message(self, message: Any) -> None:
        """See `Consumer.on_message`."""
        part = self._part
        answer = self._play.answer(part, message)
        if answer is not None:
            self._call.hand_over_nowait(answer)
        elif part.left is not None and part.seen == 2 and part.ended is None and not part.ending:
            if part.manner == "fails":
                self._call.cancel()
            elif part.manner == "half":
                self._call.done_sending_nowait()

    def on_end(self, error: RpcError | None) -> None:
        """See `Consumer.on_end`."""
        self._part.over = trio.current_time()
        self._part.status = error


class _Local:
    """What there is in the orchestrator's process."""

    def __init__(self, environment: CallOpener, actor: CallOpener, sink: SampleSink) -> None:
        self._found = {
            ServiceKind.ENVIRONMENT: environment,
            ServiceKind.ACTOR: actor,
            ServiceKind.DATALOG: LocalSink(sink),
        }

    def find(self, kind: ServiceKind, _properties: Mapping[str, str]) -> CallOpener:
        return self._found[kind]

    def registered(self, _kind: ServiceKind) -> str:
        return "all of it"


async def parting_trials(world: World, *, stops: bool = False) -> None:
    """Play some trials at a time.

    Args:
        world: where.
        stops: the orchestrator is stopped while some of them are under way.
    """
    config = OrchestratorConfig(farewell_seconds=FAREWELL_SECONDS, actor_ack_timeout_seconds=1.0)
    narrow = RpcConfig(call_outbox_messages=2, max_send_message_bytes=MOST_BYTES)
    async with trio.open_nursery() as nursery:
        play = Play(world, nursery)
        environment, actor = Script(play.environment).environment(), Script(play.actor).actor()
        there = world.network.host("far").listen(PORT)
        await nursery.start(partial(serve, [environment, actor], [there]))
        async with (
            InProcessChannel([environment]) as envs,
            InProcessChannel([actor], config=narrow) as actors,
            world.serve_orchestrator(
                config=config, rpc_config=narrow, local=_Local(envs, actors, Sink(play))
            ) as play.orchestrator,
            InProcessChannel(orchestrator_services(play.orchestrator), config=narrow) as play.near,
            world.network.host("afar").channel("orchestrator", PORT, config=SHORT) as play.afar,
            trio.open_nursery() as running,
        ):
            for number in range(TRIALS):
                running.start_soon(play.run, number)
                await trio.sleep(world.rng.uniform(0, 3))
            if stops:
                await play.stop()
        nursery.cancel_scope.cancel()
