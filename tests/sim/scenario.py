"""Four trials over the simulated network, with faults at any time: the orchestrator's own proof.

Safety: whatever happens, the checkers find nothing. Liveness: when the faults are over, every trial ends in time.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import trio
from purerpc import Service

from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.errors import RpcError
from trio_cogment.orchestrator import Orchestrator
from trio_cogment.rpc import InProcessChannel, RpcConfig, serve
from trio_cogment.sdk import Controller, actor_params, trial_params
from trio_cogment.testing import (
    LEAST_ACK_SECONDS,
    Behaviour,
    FakeActor,
    FakeDatalog,
    FakeEnvironment,
    FakeHook,
    Fault,
    FaultPlan,
    Link,
    Misbehaviour,
    World,
    check_history,
    record_states,
)

TRIALS = 4
MOST_TICKS = 20
PORT = 9000
HOOKED = "trial-3"
#: When the last fault is over, and everybody is asked to end.
CALM_SECONDS = 60.0
#: Patience, both kinds of acknowledgements, and some for the network.
END_SECONDS = CALM_SECONDS + 120 + 60 + 30 + 10
THINK = (0.02, 0.4)
RPC = RpcConfig()


# --- the plan ---


def draw_plan(seed: int) -> FaultPlan:
    rng = random.Random(f"{seed}/plan")
    makers: list[Callable[[random.Random], Fault]] = [
        *[_participant] * 4,
        _service_fault,
        _reset,
        _dark,
        _partition,
        _crash,
        _terminate,
        _again,
    ]
    return FaultPlan.draw(rng, makers, (0, 6))


def _trial(rng: random.Random) -> str:
    return f"trial-{rng.randrange(TRIALS)}"


def _participant(rng: random.Random) -> Fault:
    who = rng.choice(["ann", "bob", "cat", "env"])
    return _misbehaviour(rng, f"{_trial(rng)}/{who}")


def _service_fault(rng: random.Random) -> Fault:
    return _misbehaviour(rng, rng.choice([f"{_trial(rng)}/datalog", f"{HOOKED}/hook"]))


def _misbehaviour(rng: random.Random, target: str) -> Fault:
    kind = rng.choice(list(Misbehaviour))
    details: dict[str, str | int | float | bool | None] = {
        "misbehaviour": kind.value,
        "from_tick": -1 if target.endswith("/hook") else rng.choice([-1, rng.randint(0, 10)]),
    }
    if kind is Misbehaviour.SLOW:
        details["seconds"] = rng.choice([0.5, 4.9, 5.1, 8.0, 40.0])
    if kind in (Misbehaviour.FLOOD, Misbehaviour.DUPLICATE):
        details["count"] = rng.choice([2, 5, 100])
    return Fault("misbehaves", target=target, details=details)


def _host(rng: random.Random) -> str:
    kind = rng.choice(["env", "actors", "client", "log", "control"])
    return f"{kind}-{rng.randrange(TRIALS)}"


def _reset(rng: random.Random) -> Fault:
    return Fault("reset", at=round(rng.uniform(0, 12), 3), target=_host(rng))


def _dark(rng: random.Random) -> Fault:
    return Fault("dark", at=round(rng.uniform(0, 12), 3), target=_host(rng))


def _partition(rng: random.Random) -> Fault:
    seconds = rng.choice([0.5, 4.0, 10.0, 30.0])
    return Fault("partition", at=round(rng.uniform(0, 12), 3), target=_host(rng), details={"seconds": seconds})


def _crash(rng: random.Random) -> Fault:
    power = rng.random() < 0.3
    return Fault("crash", at=round(rng.uniform(0, 12), 3), target=_host(rng), details={"power": power})


def _terminate(rng: random.Random) -> Fault:
    hard = rng.random() < 0.5
    return Fault("terminate", at=round(rng.uniform(0, 12), 3), target=_trial(rng), details={"hard": hard})


def _again(rng: random.Random) -> Fault:
    at = rng.choice([0.0, round(rng.uniform(0, 12), 3)])
    return Fault("start again", at=at, target=_trial(rng))


# --- the scenario ---


class Play:
    """One run of the scenario."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.network = world.network
        self.network.set_default_link(Link(fragments=0.1, loss=0.01))
        self.ticks = {
            f"trial-{number}": world.stream(f"ticks {number}").randint(3, MOST_TICKS) for number in range(TRIALS)
        }
        self.environment = FakeEnvironment(world, self.behave, ticks=self.ticks.__getitem__)
        self.actor = FakeActor(world, self.behave)
        self.datalog = FakeDatalog(world, self.behave)
        self.hook = FakeHook(world, self.behave, change=lambda _: self.params(HOOKED))

    def behave(self, trial_id: str, name: str) -> Behaviour:
        for fault in self.world.plan.named("misbehaves", f"{trial_id}/{name}"):
            behaviour = Behaviour.from_fault(fault)
            return Behaviour(
                think_seconds=THINK,
                misbehaviour=behaviour.misbehaviour,
                from_tick=behaviour.from_tick,
                seconds=behaviour.seconds,
                count=behaviour.count,
            )
        return Behaviour(think_seconds=THINK)

    def params(self, trial_id: str) -> TrialParams:
        number = trial_id.removeprefix("trial-")
        service = f"grpc://actors-{number}:{PORT}"
        waits = {"initial_connection_timeout_seconds": 20.0, "response_timeout_seconds": 5.0}
        return trial_params(
            [
                actor_params("ann", "player", endpoint=service, **waits),  # type: ignore[arg-type]
                actor_params("bob", "player", endpoint=service, optional=True, default_action=b"default", **waits),  # type: ignore[arg-type]
                actor_params("cat", "player", endpoint="cogment://client", optional=True, **waits),  # type: ignore[arg-type]
            ],
            environment_endpoint=f"grpc://env-{number}:{PORT}",
            environment_name="env",
            datalog_endpoint=f"grpc://log-{number}:{PORT}",
            max_steps=15 if number == "2" else 0,
            max_inactivity_seconds=30 if number == "1" else 0,
        )

    async def run(self) -> None:
        world = self.world
        async with trio.open_nursery() as nursery:
            for number in range(TRIALS):
                self.host(nursery, f"env-{number}", self.environment.service())
                self.host(nursery, f"actors-{number}", self.actor.service())
                self.host(nursery, f"log-{number}", self.datalog.service())
            self.host(nursery, "hooks", self.hook.service())
            hooks = [f"grpc://hooks:{PORT}"]
            async with world.serve_orchestrator(port=PORT, rpc_config=RPC, pre_trial_hooks=hooks) as orchestrator:
                near = InProcessChannel([orchestrator.lifecycle_service()])
                async with near, trio.open_nursery() as watching:
                    watching.start_soon(record_states, Controller(near), world.history, "near")
                    watching.start_soon(self.watch_from_afar)
                    await trio.sleep(1)
                    async with trio.open_nursery() as acting:
                        for number in range(TRIALS):
                            acting.start_soon(self.trial, f"trial-{number}", name=f"trial-{number} at its starter's")
                        for fault in world.plan:
                            acting.start_soon(self.happen, fault, orchestrator, name=f"fault {fault.name}")
                        acting.start_soon(self.calm_down, orchestrator)
                        await self.all_over(Controller(near), orchestrator)
                        acting.cancel_scope.cancel()
                    check_leftovers(orchestrator)
                    known = [trial.trial_id for trial in orchestrator.trials]
                    world.history.record("orchestrator", "known", trial_ids=known)
                    await orchestrator.stop()  # which ends the watches
            nursery.cancel_scope.cancel()
        note_what_happened(world)
        check_optional_actors(world)
        check_history(world.history)

    def host(self, nursery: trio.Nursery, name: str, service: Service) -> None:
        nursery.start_soon(self.run_host, name, service, name=f"host {name}")

    async def run_host(self, name: str, service: Service) -> None:
        """Serve on a host; a second after a crash, again."""
        host = self.network.host(name)
        while True:
            with host.running():
                await serve([service], [host.listen(PORT)], config=RPC)
            await trio.sleep(1)
            host.restart()

    async def watch_from_afar(self) -> None:
        async with self.network.host("afar").channel("orchestrator", PORT, config=RPC) as channel:
            await record_states(Controller(channel), self.world.history, "afar")

    async def trial(self, trial_id: str) -> None:
        """Start a trial and play its client actor, from hosts of their own."""
        number = trial_id.removeprefix("trial-")
        await trio.sleep(self.world.stream(f"start {trial_id}").uniform(0, 2))
        await self.start(trial_id, f"control-{number}")
        client = self.network.host(f"client-{number}")
        if client.up:
            with client.running():
                async with client.channel("orchestrator", PORT, config=RPC) as channel:
                    await self.actor.join(channel, trial_id, "cat")

    async def start(self, trial_id: str, from_host: str) -> None:
        host = self.network.host(from_host)
        if not host.up:
            return
        reply = "lost"
        with host.running():
            async with host.channel("orchestrator", PORT, config=RPC) as channel:
                params = None if trial_id == HOOKED else self.params(trial_id)
                try:
                    reply = await Controller(channel).start_trial(params, trial_id=trial_id)
                except RpcError as error:
                    self.world.history.record(from_host, "refused", trial_id, code=error.code.name)
                    self.world.sometimes("start refused")
                    return
        if reply == trial_id:
            self.world.history.record(from_host, "started", trial_id)
        elif not reply:
            self.world.history.record(from_host, "taken", trial_id)
            self.world.sometimes("duplicate id lost")

    async def happen(self, fault: Fault, orchestrator: Orchestrator) -> None:
        await trio.sleep(fault.at)
        if fault.name == "misbehaves":
            return
        self.world.history.record("world", "fault", name=fault.name, target=fault.target)
        self.world.sometimes(f"fault: {fault.name}")
        details = fault.details
        if fault.name == "reset":
            for connection in self.network.connections(fault.target):
                connection.reset()
        elif fault.name == "dark":
            for connection in self.network.connections(fault.target):
                connection.go_dark()
        elif fault.name == "partition":
            self.network.partition([fault.target])
            await trio.sleep(float(details["seconds"] or 0))
            self.network.heal()
        elif fault.name == "crash":
            self.network.host(fault.target).crash(power=bool(details["power"]))
        elif fault.name == "terminate":
            for trial in orchestrator.known([fault.target]):
                if details["hard"]:
                    trial.hard_end("terminated by an external request")
                else:
                    trial.soft_end()
        elif fault.name == "start again":
            await self.start(fault.target, "control-again")

    async def calm_down(self, orchestrator: Orchestrator) -> None:
        await trio.sleep_until(CALM_SECONDS)
        self.network.heal()
        for trial in orchestrator.trials:
            trial.soft_end()

    async def all_over(self, controller: Controller, orchestrator: Orchestrator) -> None:
        """Wait until every trial that ever was is over, and what is left of it gone; in time."""
        await trio.sleep_until(4)  # all starts have been asked for
        while True:
            infos = await controller.trial_infos()
            if all(info.state == TrialState.ENDED for info in infos) and not self.starting():
                break
            late = [f"{i.trial_id} is {TrialState.Name(i.state)}" for i in infos if i.state != TrialState.ENDED]
            assert trio.current_time() < END_SECONDS, f"not over in time: {', '.join(late)}"
            await trio.sleep(1)
        # Farewells; and a data log that acknowledges each sample may take its time for each.
        with trio.move_on_after(15 + 10 * MOST_TICKS):
            while orchestrator.running_trials:  # noqa: ASYNC110  there is no event for it
                await trio.sleep(1)
        await trio.sleep(1)

    def starting(self) -> bool:
        """Whether somebody still waits for the reply to a start, or a client actor for its trial."""
        events = [event for event in self.world.history if event.who == "actor cat"]
        return sum(event.what == "opened" for event in events) > sum(event.what == "closed" for event in events) and (
            trio.current_time() < CALM_SECONDS
        )


def check_leftovers(orchestrator: Orchestrator) -> None:
    """A trial that has ended has no task left."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    tasks = [root]
    for task in tasks:
        for nursery in task.child_nurseries:
            tasks.extend(nursery.child_tasks)
    left = [task.name for task in tasks if task.name.startswith("trial trial-")]
    assert not left, f"tasks left of trials that ended: {', '.join(sorted(left))}"
    assert orchestrator.running_trials == 0


def check_optional_actors(world: World) -> None:
    """Where only optional actors were hit, the trial has come to its end in good order."""
    hit = set()
    for fault in world.plan:
        trial_id, _, who = fault.target.partition("/")
        host, _, number = fault.target.partition("-")
        if fault.name == "misbehaves":
            if who not in ("bob", "cat"):
                hit.add(trial_id)
        elif fault.name != "start again" and host != "client":
            hit.add(f"trial-{number}")
    for event in world.history:
        if event.who == "environment env" and event.what == "end" and event.trial_id not in hit:
            why = event.details["details"]
            assert not why, f"{event.trial_id} was broken off though no more than optional actors were hit: {why}"


def note_what_happened(world: World) -> None:
    """Count what some runs must come to."""
    history = world.history
    newest: dict[str, tuple[int, float]] = {}
    for event in history:
        if event.what == "state" and event.who == "near":
            before, since = newest.get(event.trial_id, (0, 0.0))
            state = event.details["state"]
            newest[event.trial_id] = state, event.seconds
            if state == TrialState.ENDED and before < TrialState.TERMINATING:
                world.sometimes(f"ended from {TrialState.Name(before)}")
            elif state == TrialState.ENDED:
                world.sometimes("ended hard from RUNNING" if event.seconds == since else "ended from TERMINATING")
        elif event.what == "end":
            world.sometimes("END with details" if event.details["details"] else "END without")
        elif event.what == "actions" and event.details["unavailable"]:
            world.sometimes("an actor unavailable")
        elif event.what == "actions" and "default" in event.details["contents"].values():
            world.sometimes("a default action")
        elif event.what == "complete":
            world.sometimes("a data log complete")
        elif (
            event.what == "closed"
            and event.who.startswith("actor")
            and event.details["outcome"] not in ("left", "cancelled")
        ):
            world.sometimes("an actor lost")
    late_acks(world)


def late_acks(world: World) -> None:
    """Count the orderly ends that had to wait for an acknowledgement that never came."""
    showed: dict[str, float] = {}
    for event in world.history:
        if event.what == "showed":
            showed[event.trial_id] = event.seconds
        elif event.what == "end" and not event.details["details"]:
            waited = event.seconds - showed.get(event.trial_id, event.seconds)
            if waited > LEAST_ACK_SECONDS:
                world.sometimes("an acknowledgement that timed out")


async def scenario(world: World) -> None:
    await Play(world).run()
