"""The play of both suites: four trials at a time over the simulated network, and everything that happens to them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import trio
from google.protobuf.any_pb2 import Any as AnyMessage
from purerpc import Service

from tests.sim import rare
from tests.sim.accounts import Accounts
from tests.sim.descriptions import Descriptions
from tests.sim.faults import HOOKED, MOST_STEPS, MOST_TICKS, TRIALS, is_crowded
from trio_cogment.api.common_pb2 import CommunicationState, Message, Reward, RewardSource, TrialParams, TrialState
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError
from trio_cogment.base.services import ServiceKind
from trio_cogment.rpc import CallOpener, InProcessChannel, RpcConfig, RunningServer, serve
from trio_cogment.sdk import Controller, actor_params, trial_params
from trio_cogment.servers.orchestrator import Orchestrator, orchestrator_services
from trio_cogment.testing import (
    Behaviour,
    FakeActor,
    FakeDatalog,
    FakeEnvironment,
    FakeHook,
    Fault,
    HistoryEvent,
    Link,
    Probe,
    RecordedCalls,
    SimDisk,
    SimHost,
    World,
    record_params,
    record_states,
)
from trio_cogment.testing.fakes.behaviour import Part

PORT = 9000
DISK_BYTES = 1 << 30
THINK = (0.02, 0.4)
#: To whom each actor sends a message now and then.
NEIGHBOURS = {"ann": "bob", "bob": "cat", "cat": "env"}
#: How many ticks each trial's samples are held back.
BUFFERED = {"0": 0, "1": 3, "2": 2, "3": 5}
#: To whom anything may be said in passing.
PATTERNS = ("*", "player.*", "player.bob", "ann", "cat", "env", "*.*", "other.ann", "nobody")
#: How many starts that fail at once a watcher that does not read has to miss.
FLURRY = 60
#: Faults that are none where nobody is connected.
HITS_CONNECTIONS = ("reset", "dark", "partition", "crash", "drain")
#: What runs on a host, as the history names it.
_PARTS = {"env": "environment", "actors": "actor", "log": "datalog"}


class Play:
    """One run: hosts, trials and faults. What is expected of it is the suites' affair."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.network = world.network
        self.network.set_default_link(Link(fragments=0.1, loss=0.01))
        numbers = range(TRIALS)
        self.ticks = {f"trial-{number}": world.stream(f"ticks {number}").randint(3, MOST_TICKS) for number in numbers}
        #: Those whose participants are in the orchestrator's process.
        self.inside = {f"trial-{number}" for number in numbers if world.stream(f"place {number}").random() < 0.15}
        names = [f"log-{number}" for number in numbers]
        self.disks: dict[str, SimDisk] = {name: world.disk(name, capacity_bytes=DISK_BYTES) for name in names}
        self.accounts = Accounts()
        told: dict[str, Any] = {"sees": self.accounts.sees, "chatter": self.chatter}
        self.environment = FakeEnvironment(world, self.behave, ticks=self.ticks.__getitem__, **told)
        self.actor = FakeActor(world, self.behave, neighbours=NEIGHBOURS, **told)
        self.datalog = FakeDatalog(
            world, self.behave, files=lambda trial_id: self.disks[f"log-{trial_id[-1]}"], sees=self.accounts.sees
        )
        self.hook = FakeHook(world, self.behave, change=lambda _: self.params(HOOKED))
        self.serving: dict[str, RunningServer] = {}
        self.states: dict[str, int] = {}
        self.changed = trio.Event()
        #: Starts that are over, and those under way; none are asked for once all is over.
        self.asked = 0
        self.asking = 0
        self.closing = False
        #: Set for a host once it asks for the start of its trial.
        self.starting = {f"control-{number}": trio.Event() for number in numbers}
        #: How many faults keep a host cut off, or a disk full.
        self.cuts: Counter[str] = Counter()
        self.full: Counter[str] = Counter()
        #: How trials are terminated, in no time.
        self.near: CallOpener
        self.descriptions: Descriptions
        world.history.listeners.append(self.on_event)
        idle = bool(world.plan.named("idle watcher"))
        crowded = is_crowded(world.plan)
        limits = world.stream("limits")
        self.config = OrchestratorConfig(
            max_queued_samples=limits.choice([2, 4, 1024]),
            watch_queue_entries=16 if idle else 16384,
            max_outbox_messages=64 if crowded else limits.choice([64, 4096]),
        )
        small = crowded or limits.random() < 0.25
        self.rpc = RpcConfig()
        if small or idle:
            self.rpc = replace(self.rpc, call_outbox_messages=8)
        if small:
            self.rpc = replace(self.rpc, stream_window_bytes=256)
        self.config, self.rpc = rare.tightened(world.plan, self.config, self.rpc)

    def behave(self, trial_id: str, name: str) -> Behaviour:
        for fault in self.world.plan.named("misbehaves", f"{trial_id}/{name}"):
            return replace(Behaviour.from_fault(fault), think_seconds=THINK)
        return Behaviour(think_seconds=THINK)

    def chatter(self, part: Part, tick_id: int) -> Iterable[dict[str, Any]]:
        """Return what a participant says at a tick beside what it must: to anybody, of any tick, of any weight."""
        rng = self.world.stream(f"chatter {part.trial_id} {part.name} {tick_id}")
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
            receiver = rng.choice(PATTERNS)
            if rng.random() < 0.4:
                said = Message(tick_id=-1, receiver_name=receiver, payload=AnyMessage(value=b"by the way"))
                yield {"state": CommunicationState.NORMAL, "message": said}
                continue
            sources = [
                RewardSource(value=rng.choice([1.0, -2.0, 0.5]), confidence=rng.choice([1.0, 0.25, 0.0, -1.0]))
                for _ in range(rng.choice([0, 1, 2, 3]))
            ]
            of_tick = rng.choice([-1, -1, -1, tick_id, tick_id - 1, tick_id - 2, tick_id + 3])
            reward = Reward(tick_id=of_tick, receiver_name=receiver, value=1e3, sources=sources)
            yield {"state": CommunicationState.NORMAL, "reward": reward}

    def params(self, trial_id: str) -> TrialParams:
        number = trial_id.removeprefix("trial-")
        inside = trial_id in self.inside
        actors, environment, log = (
            f"cogment://discover?place={trial_id}" if inside else f"grpc://{kind}-{number}:{PORT}"
            for kind in ("actors", "env", "log")
        )
        waits: dict[str, Any] = {"initial_connection_timeout_seconds": 20.0, "response_timeout_seconds": 5.0}
        params = trial_params(
            [
                actor_params("ann", "player", endpoint=actors, **waits),
                actor_params("bob", "player", endpoint=actors, optional=True, default_action=b"default", **waits),
                actor_params("cat", "player", endpoint="cogment://client", optional=True, **waits),
            ],
            environment_endpoint=environment,
            environment_name="env",
            datalog_endpoint=log,
            max_steps=MOST_STEPS if number == "2" else 0,
            nb_buffered_ticks=BUFFERED[number],
            max_inactivity_seconds=rare.inactivity(self.world.plan, 30 if number in "01" else 0),
            datalog_exclude_fields=["messages"] if number == "1" else [],
        )
        record_params(self.world.history, trial_id, params)
        return params

    # Hosts

    async def run_hosts(self) -> None:
        """Run everybody's hosts until cancelled."""
        async with trio.open_nursery() as nursery:
            for number in range(TRIALS):
                for kind, service in (("env", self.environment), ("actors", self.actor), ("log", self.datalog)):
                    name = f"{kind}-{number}"
                    nursery.start_soon(self.run_host, name, service.service(), name=f"host {name}")
            nursery.start_soon(self.run_host, "hooks", self.hook.service(), name="host hooks")

    async def run_host(self, name: str, service: Service) -> None:
        """Serve on a host; a second after a crash or a drain, again."""
        host = self.network.host(name)
        while True:
            with host.running():
                async with trio.open_nursery() as nursery:
                    serving = partial(serve, [service], [host.listen(PORT)], config=self.rpc)
                    self.serving[name] = await nursery.start(serving)
            await trio.sleep(1)
            host.restart()
            if name in self.disks:
                self.disks[name].restart()

    async def host_orchestrator(
        self, scope: trio.CancelScope, *, task_status: trio.TaskStatus[Orchestrator] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run the orchestrator, until its scope is cancelled or somebody stops it."""
        services = [self.environment.service(), self.actor.service(), self.datalog.service()]
        inside: dict[str, CallOpener] = {}
        async with AsyncExitStack() as stack:
            for trial_id in sorted(self.inside):
                # Each has its own, or the order of their tasks would depend on what happens to the others.
                channel = await stack.enter_async_context(self.world.in_process(services, name=trial_id))
                inside[trial_id] = RecordedCalls(channel, self.world.history, f"inside {trial_id}")
            with scope:
                async with self.world.serve_orchestrator(
                    port=PORT,
                    config=self.config,
                    rpc_config=self.rpc,
                    pre_trial_hooks=[f"grpc://hooks:{PORT}"],
                    local=_Inside(inside),
                ) as orchestrator:
                    orchestrator.make_machine = self.accounts.machine
                    task_status.started(orchestrator)
                    await trio.sleep_forever()
            self.world.history.record("orchestrator", "gone")

    async def watch(self, orchestrator: Orchestrator, *, task_status: trio.TaskStatus[Controller]) -> None:
        """Watch the trials, from near (in process, in no time) and from afar, and look inside."""
        probe = Probe(orchestrator, self.world.history)
        self.descriptions = Descriptions(orchestrator, self.world.history)
        near = InProcessChannel(orchestrator_services(orchestrator))
        async with near, trio.open_nursery() as nursery:
            self.near = near
            nursery.start_soon(record_states, Controller(near), self.world.history, "near")
            ends = partial(
                record_states, Controller(near), self.world.history, "ends", states=[TrialState.ENDED], full_info=True
            )
            nursery.start_soon(ends, name="watch of the ends")
            nursery.start_soon(self.watch_from_afar)
            nursery.start_soon(probe.run)
            for fault in self.world.plan.named("idle watcher"):
                nursery.start_soon(self.watch_idly, fault)
            await trio.sleep(1)
            task_status.started(Controller(near))

    async def watch_from_afar(self) -> None:
        async with self.network.host("afar").channel("orchestrator", PORT, config=self.rpc) as channel:
            await record_states(Controller(channel), self.world.history, "afar")

    async def watch_idly(self, fault: Fault) -> None:
        """Read nothing until there have been more changes than can be kept for us."""
        config = RpcConfig(stream_window_bytes=64)
        async with self.network.host("idle").channel("orchestrator", PORT, config=config) as channel:
            try:
                async with Controller(channel).watch_trials() as watch:
                    await trio.sleep_until(fault.at)
                    self.note_fault(fault)
                    for _ in range(FLURRY):
                        with suppress(RpcError):
                            await Controller(channel).start_trial(TrialParams())
                    async for entry in watch:
                        self.world.history.record("idle", "state", entry.trial_id, state=entry.state)
            except RpcError as error:
                self.world.sometimes(f"watcher that does not read: {error.code.name}")

    def on_event(self, event: HistoryEvent) -> None:
        if event.what == "state" and event.who == "near":
            self.states[event.trial_id] = event.details["state"]
            self.changed.set()
            self.changed = trio.Event()

    # Trials

    async def trial(self, trial_id: str) -> None:
        """Start a trial and play its client actor, from hosts of their own."""
        number = trial_id.removeprefix("trial-")
        client = self.network.host(f"client-{number}")  # now: faults may hit it though the start is never answered
        await trio.sleep(self.world.stream(f"start {trial_id}").uniform(0, 2))
        await self.start(trial_id, f"control-{number}")
        self.asked += 1
        if client.up:
            with client.running():
                async with client.channel("orchestrator", PORT, config=self.rpc) as channel:
                    recorded = RecordedCalls(channel, self.world.history, client.name)
                    calls = await rare.client_calls(self.world, trial_id, recorded)
                    await self.actor.join(calls, trial_id, "cat")

    async def start(self, trial_id: str, from_host: str) -> None:
        host = self.network.host(from_host)
        if not host.up or self.closing:
            return
        self.asking += 1
        try:
            await self.ask(trial_id, host)
        finally:
            self.asking -= 1

    async def ask(self, trial_id: str, host: SimHost) -> None:
        from_host, reply = host.name, "lost"
        with host.running():
            async with host.channel("orchestrator", PORT, config=self.rpc) as channel:
                if from_host in self.starting:
                    self.starting[from_host].set()
                params = None if trial_id == HOOKED else self.params(trial_id)
                calls = RecordedCalls(channel, self.world.history, f"{from_host} {trial_id}")
                try:
                    reply = await Controller(calls).start_trial(params, trial_id=trial_id)
                except RpcError as error:
                    self.world.history.record(from_host, "refused", trial_id, code=error.code.name)
                    self.world.sometimes("start refused")
                    return
        if reply == trial_id:
            self.world.history.record(from_host, "started", trial_id)
        elif not reply:
            self.world.history.record(from_host, "taken", trial_id)
            self.world.sometimes("duplicate id race lost")

    def rng(self, name: str) -> random.Random:
        return self.world.stream(name)

    # Faults

    def note_fault(self, fault: Fault) -> None:
        """Note that it happens, and count it if it hits anything; of a disk and of a trial's end that shows later."""
        self.world.history.record("world", "fault", name=fault.name, target=fault.target)
        if fault.name in HITS_CONNECTIONS and not self.network.connections(fault.target):
            return
        if fault.name not in ("disk", "terminate", rare.TWICE, rare.RUDE):
            self.world.sometimes(f"fault: {fault.name}")

    async def happen(self, fault: Fault, orchestrator: Orchestrator) -> None:
        if fault.name in ("misbehaves", "idle watcher", rare.TIGHT, rare.LATE, rare.HALF):
            return  # it does so by itself
        await trio.sleep(fault.at)
        if fault.target in self.starting:
            await self.starting[fault.target].wait()
            await trio.sleep(float(fault.details["after"] or 0))
        self.note_fault(fault)
        if fault.name == "reset":
            for connection in self.network.connections(fault.target):
                connection.reset()
        elif fault.name == "dark":
            for connection in self.network.connections(fault.target):
                connection.go_dark()
        elif fault.name == "partition":
            await self.cut(fault)
        elif fault.name == "crash":
            self.network.host(fault.target).crash(power=bool(fault.details["power"]))
            if fault.details["power"] and fault.target in self.disks:
                self.disks[fault.target].crash()
        elif fault.name == "terminate":
            await self.terminate(fault, orchestrator)
        elif fault.name == "start again":
            await self.start(fault.target, "control-again")
        elif fault.name == "drain":
            await self.drain(fault)
        elif fault.name == "disk":
            await self.fail_disk(fault)
        elif fault.name == rare.TWICE:
            await rare.join_twice(self, fault, PORT)
        elif fault.name == rare.RUDE:
            await rare.be_rude(self, fault, PORT)

    async def cut(self, fault: Fault) -> None:
        """Cut a host off for some time; what cuts it off beside this goes on."""
        self.cuts[fault.target] += 1
        self.network.partition([fault.target])
        await trio.sleep(float(fault.details["seconds"] or 0))
        self.cuts[fault.target] -= 1
        if not self.cuts[fault.target]:
            self.network.heal([fault.target])

    async def terminate(self, fault: Fault, orchestrator: Orchestrator) -> None:
        state = fault.details.get("state")
        if state is not None:
            while self.states.get(fault.target) != TrialState.Value(str(state)):
                await self.changed.wait()
            await trio.sleep(float(fault.details["after"] or 0))
        hard = bool(fault.details["hard"])
        for trial in orchestrator.known([fault.target]):
            if not trial.over:
                self.world.sometimes("fault: terminate")
            if hard and not trial.over:
                self.world.sometimes(f"hard end in {TrialState.Name(trial.state)}")
            self.world.history.record("desk", "asked to end", fault.target, hard=hard)
            with suppress(RpcError):  # the orchestrator has stopped
                await Controller(self.near).terminate_trial(fault.target, hard=hard)
                if hard:
                    self.world.history.record("desk", "terminated", fault.target)

    async def drain(self, fault: Fault) -> None:
        """Stop a server: GOAWAY, and calls that run have their time."""
        kind, _, number = fault.target.partition("-")
        running = 0
        for event in self.world.history.of_trial(f"trial-{number}"):
            if event.who.startswith(_PARTS[kind]) and event.who != "actor cat" and f"trial-{number}" not in self.inside:
                running += {"opened": 1, "closed": -1}.get(event.what, 0)
        serving = self.serving.get(fault.target)
        if serving is not None:
            if running and self.network.host(fault.target).up:
                self.world.sometimes("GOAWAY with calls in flight")
            await serving.drain(float(fault.details["grace"] or 0))

    async def fail_disk(self, fault: Fault) -> None:
        disk = self.disks[fault.target]
        if "syncs" in fault.details:
            disk.fail_syncs(int(fault.details["syncs"] or 0))
            return
        self.full[fault.target] += 1
        disk.capacity_bytes = 0
        await trio.sleep(float(fault.details["full"] or 0))
        self.full[fault.target] -= 1
        if not self.full[fault.target]:
            disk.capacity_bytes = DISK_BYTES

    def check_disks(self) -> None:
        """Look what is on the disks after everybody's power was lost."""
        for disk in self.disks.values():
            disk.fail_syncs(0)
            disk.crash()
            disk.restart()
        self.datalog.note_kept()


class _Inside:
    """What the orchestrator finds in its process."""

    def __init__(self, channels: Mapping[str, CallOpener]) -> None:
        self._channels = channels

    def find(self, kind: ServiceKind, properties: Mapping[str, str]) -> CallOpener:
        assert kind is not ServiceKind.PRE_TRIAL_HOOK, properties
        return self._channels[properties["place"]]
