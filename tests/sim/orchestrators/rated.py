"""Trials with ticks at a rate: when each tick ends, who is late, and what is stored in place of an action.

Everybody is in one process, where messages take no time. So the times at which ticks end, the actions that come too
late, and the ticks that have to be made up follow from what participants did and were told: they are worked out here
from that alone, beside the account of each trial, and compared with what the orchestrator counts and stores.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from tests.account.beside import AccountedMachine
from tests.helpers import END, LAST, LAST_ACK, NORMAL, Everything, Script, observation_set, start_environment
from trio_cogment.api.common_pb2 import (
    Action,
    ActorInitialOutput,
    ActorRunTrialOutput,
    TrialParams,
    TrialState,
)
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import EnvRunTrialOutput
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import TRIAL_ID
from trio_cogment.rpc import InProcessChannel, ServerCall
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.testing import World
from trio_cogment.trial import TrialRules

TRIALS = 8
NAMES = ("a", "b", "c")
DEFAULT = b"default"
#: Of two times that are the same.
PRECISION = 1e-6


@dataclass(eq=False)
class Rated:
    """One trial: how it is to go, and what has been seen of it.

    Attributes:
        hz: ticks a second.
        ticks: after which its environment ends it.
        every: every how manieth tick each actor is observed.
        holds: whose last action is taken again.
        vanishes: who leaves at its fourth observation; empty: nobody.
        began: when the first observations were sent.
        ended: when each tick's actions came to the environment.
        taken: those actions.
        shown: when each tick's observations were sent.
        sent: what actors have sent, and when, by actor: the tick, the time and the content.
        seen: the ticks that each actor was shown.
        samples: what was stored.
        state: the newest that has been announced.
    """

    hz: float
    ticks: int
    every: dict[str, int]
    holds: set[str]
    vanishes: str
    began: float = 0.0
    ended: dict[int, float] = field(default_factory=dict)
    taken: dict[int, list[bytes]] = field(default_factory=dict)
    shown: dict[int, float] = field(default_factory=dict)
    sent: dict[str, list[tuple[int, float, bytes]]] = field(default_factory=dict)
    seen: dict[str, list[int]] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)
    samples: list[DatalogSample] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return list(self.every)

    def check_times(self) -> int:
        """Check that ticks end at their times; return how many times were missed."""
        slots = []
        for tick, at in self.ended.items():
            slot = (at - self.began) * self.hz
            assert abs(slot - round(slot)) < PRECISION * self.hz, f"tick {tick} ended at {slot} periods"
            slots.append(round(slot))
            # The first time after its observations is the one at which a tick ends.
            least = (self.shown[tick] - self.began) * self.hz
            assert least - PRECISION <= round(slot) <= least + 1 + PRECISION, f"tick {tick}: {least}, {slot}"
        assert slots == sorted(set(slots)), "no two ticks end at one time"
        return slots[-1] - len(slots) if slots else 0

    def check_actions(self, name: str) -> tuple[int, int]:
        """Check what was taken for an actor; return how many of its actions were late, and how often it was absent."""
        late = absent = 0
        index, every = self.names.index(name), self.every[name]
        took: bytes | None = None
        for tick, at in self.ended.items():
            asked = tick - tick % every
            given = [one for one in self.sent.get(name, ()) if one[0] == asked and one[1] <= at + PRECISION]
            before = [one for one in self.sent.get(name, ()) if one[1] <= at + PRECISION and self._in_time(name, one)]
            # It leaves when it is shown something, and that may be as soon as a tick has ended.
            gone = self.gone.get(name, float("inf")) < at - PRECISION
            if given and not gone:
                took = given[0][2]
            elif gone:
                took = DEFAULT
            else:
                absent += 1
                took = before[-1][2] if before and name in self.holds else DEFAULT
            assert self.taken[tick][index] == took, f"{name}, tick {tick}: {self.taken[tick][index]!r}, not {took!r}"
        for one in self.sent.get(name, ()):
            late += not self._in_time(name, one)
        return late, absent

    def _in_time(self, name: str, one: tuple[int, float, bytes]) -> bool:
        """Whether an action came before the last tick that it could be for had ended."""
        last = one[0] + self.every[name] - 1
        return last not in self.ended or one[1] < self.ended[last] - PRECISION

    def check_samples(self) -> None:
        """Check that the samples have what was taken, and say whose it was."""
        for sample in self.samples:
            tick = sample.info.tick_id
            if tick not in self.taken:
                continue  # the last one, or one in which the trial was broken off
            for index, action in enumerate(sample.actions):
                made_up = index in sample.default_actors
                content = DEFAULT if made_up else action.content
                assert self.taken[tick][index] == content, f"tick {tick}, actor {index}"
                if index in sample.held_actors:
                    assert action.tick_id < tick, "a held action says for which tick it was"


class Play:
    """Everything of one run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.machines: dict[str, AccountedMachine] = {}
        self.trials: dict[str, Rated] = {}

    def machine(self, trial_id: str, *, rules: TrialRules) -> AccountedMachine:
        machine = self.machines[trial_id] = AccountedMachine(trial_id, rules=rules)
        return machine

    def _of(self, call: ServerCall) -> Rated:
        return self.trials[call.metadata.texts(TRIAL_ID)[0]]

    def draw(self) -> Rated:
        rng = self.rng
        names = NAMES[: rng.randint(1, 3)]
        return Rated(
            hz=rng.choice([1.0, 7.3, 30.0, 60.0]),
            ticks=rng.randint(3, 40),
            every={name: rng.choice([1, 1, 2, 5]) for name in names},
            holds={name for name in names if rng.random() < 0.5},
            vanishes=rng.choice(["", "", "", *names]),
        )

    def params(self, rated: Rated) -> TrialParams:
        actors = [
            actor_params(
                name,
                "player",
                optional=True,
                observe_every=every,
                hold_action=name in rated.holds,
                default_action=DEFAULT,
            )
            for name, every in rated.every.items()
        ]
        return trial_params(actors, environment_name="env", tick_hz=rated.hz, datalog_endpoint="cogment://discover")

    async def environment(self, call: ServerCall) -> None:
        rated, rng = self._of(call), self.rng
        actors = await start_environment(call)
        lazy = rng.choice([0.0, 0.0, 0.3, 1.4])
        rated.began = rated.shown[0] = trio.current_time()
        await call.send(observation_set(actors, b"0"))
        async for message in call:
            if message.state == END:
                return
            if not message.HasField("action_set"):
                continue
            now, tick = trio.current_time(), message.action_set.tick_id
            rated.ended[tick], rated.taken[tick] = now, [*message.action_set.actions]
            await trio.sleep(rng.uniform(0, 2 * lazy) / rated.hz)
            if tick + 1 == rated.ticks:
                await call.send(EnvRunTrialOutput(state=LAST))
            rated.shown[tick + 1] = trio.current_time()
            await call.send(observation_set(actors, b"%d" % (tick + 1)))
            if tick + 1 == rated.ticks:
                await call.send(EnvRunTrialOutput(state=LAST_ACK))

    async def actor(self, call: ServerCall) -> None:
        rated, rng = self._of(call), self.rng
        name = (await call.receive()).init_input.actor_name
        await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
        # Within what it has for an answer on average, or it would fall behind for good.
        pace = rng.choice([0.1, 0.4, 0.8]) * rated.every[name]
        ending = False
        async for message in call:
            if message.state == END:
                return
            ending = ending or message.state == LAST
            if not message.HasField("observation"):
                continue
            tick = message.observation.tick_id
            rated.seen.setdefault(name, []).append(tick)
            if ending:
                await call.send(ActorRunTrialOutput(state=LAST_ACK))
                continue
            if rated.vanishes == name and len(rated.seen[name]) == 4:
                rated.gone[name] = trio.current_time()
                raise RpcError(StatusCode.ABORTED, "it leaves")
            await trio.sleep(rng.uniform(0, 2 * pace) / rated.hz)
            if rated.ticks in rated.shown:
                continue  # nobody wants it any more
            content = b"%s%d" % (name.encode(), tick)
            rated.sent.setdefault(name, []).append((tick, trio.current_time(), content))
            await call.send(ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=tick, content=content)))

    async def datalog(self, call: ServerCall) -> None:
        rated = self._of(call)
        async for message in call:
            if message.HasField("sample"):
                rated.samples.append(message.sample)

    def check(self) -> None:
        for trial_id, rated in self.trials.items():
            machine = self.machines[trial_id]
            machine.beside.check()
            missed = rated.check_times()
            counts = [rated.check_actions(name) for name in rated.every]
            late, absent = sum(one for one, _ in counts), sum(one for _, one in counts)
            told = machine.missed_ticks, machine.late_actions, machine.absent_actions
            assert told == (missed, late, absent), f"{trial_id}: {told} are counted, there were {missed, late, absent}"
            rated.check_samples()
            for name, seen in rated.seen.items():
                due = [tick for tick in range(rated.ticks) if tick % rated.every[name] == 0]
                assert seen[:-1] == due[: len(seen) - 1], f"{trial_id}, {name}: it saw {seen}"
            for what, count in (("missed", missed), ("late", late), ("absent", absent)):
                if count:
                    self.world.sometimes(what)


async def rated_trials(world: World) -> None:
    """Play, and compare."""
    play = Play(world)
    services = [Script(play.environment).environment(), Script(play.actor).actor(), Script(play.datalog).datalog()]
    async with InProcessChannel(services) as local:
        orchestrator = Orchestrator(local=Everything(local), host=world.host("orchestrator"))
        orchestrator.make_machine = play.machine
        async with orchestrator:
            for number in range(TRIALS):
                rated = play.draw()
                play.trials[f"t{number}"] = rated
                await orchestrator.start_trial(trial_id=f"t{number}", params=play.params(rated))
                await trio.sleep(world.rng.uniform(0, 1))
            with trio.fail_after(1000):
                while orchestrator.running_trials:  # noqa: ASYNC110  virtual time is free
                    await trio.sleep(0.5)
            assert all(trial.state == TrialState.ENDED for trial in orchestrator.trials)
    play.check()
