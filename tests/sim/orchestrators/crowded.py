"""Trials that want more memory than there is: who gives way, who does not, and what is kept and given back.

What is held of ticks, what waits for those who do not read, and which observations are kept is worked out beside the
orchestrator, after each step of anybody.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import trio
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.helpers import Bench, Everything, Script
from tests.servers.orchestrator.puppets import Puppet, Stage, settle
from trio_cogment.api.common_pb2 import Message, TrialParams, TrialState
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.base.config import OrchestratorConfig, RpcConfig
from trio_cogment.base.outcome import EndCause
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.rpc import InProcessChannel
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.orchestrator import Orchestrator, orchestrator_services
from trio_cogment.servers.orchestrator._outboxes import outbox_memory
from trio_cogment.testing import World

KIB = 1024
TOTAL = 1024 * KIB
#: As in `trio_cogment.servers.orchestrator._tick_bytes`: what is free, the steps of a loan, what ticks always get.
FREE, STEP, RESERVED = 16 * KIB, 64 * KIB, TOTAL // 8
#: Observations of this size are always kept.
SMALL_OBSERVATION = 32 * KIB
ACCOUNTS = ("", "alice", "bob")
SIZES = (10, 10, 5 * KIB, 20 * KIB, 40 * KIB, 150 * KIB, 400 * KIB)
STEPS = 120
MOST_TRIALS = 5
#: An actor of some trials, who is optional and never reads.
DEAF = "deaf"


@dataclass(eq=False)
class Playing:
    """A trial, and what it should hold.

    Attributes:
        puppets: its participants that are left, by name.
        count: of its actors, those that were given up too.
        acted: who has, in this tick.
        held: the bytes of this tick's actions and messages.
        since: since when it has borrowed anything for this tick.
        shown: the newest observation.
        kept: its size, if it is a large one that is kept.
    """

    trial_id: str
    account: str
    puppets: dict[str, Puppet]
    count: int
    tick_id: int = -1
    acted: set[str] = field(default_factory=set)
    held: int = 0
    since: float = 0.0
    shown: ObservationSet | None = None
    kept: int = 0

    @property
    def borrowed(self) -> int:
        return 0 if self.held <= FREE else math.ceil((self.held - FREE) / STEP) * STEP

    @property
    def actors(self) -> list[str]:
        return [name for name in self.puppets if name != "env"]


class _Crowd(Stage):
    """Puppets, of which some are deaf."""

    async def _contacted(self, name: str, puppet: Puppet) -> None:
        if name == DEAF:
            self.puppets[name] = puppet
            await trio.sleep_forever()
        await super()._contacted(name, puppet)


class Play:
    """Steps of anybody, and what should come of them."""

    def __init__(self, world: World, stage: _Crowd, config: OrchestratorConfig) -> None:
        self._world = world
        self._rng: random.Random = world.rng
        self._stage = stage
        self._config = config
        self._playing: dict[str, Playing] = {}
        self._started = 0
        self._pool = memory_of_run().messages
        #: What was lent before this step, and the size of what is sent in it.
        self._used = 0
        self._size = 0

    async def step(self) -> None:
        """Let somebody do something."""
        rng = self._rng
        if len(self._playing) < MOST_TRIALS and rng.random() < 0.2:
            await self._start()
            return
        if not self._playing:
            return
        playing = rng.choice(list(self._playing.values()))
        before, self._used = self._borrowed(), self._pool.used
        if playing.shown is None or len(playing.acted) == len(playing.actors):
            await self._observe(playing)
        else:
            act = rng.choice([self._act, self._act, self._tell, self._tell, self._end])
            await act(playing)
        await settle()
        self._check(playing, before)

    async def _start(self) -> None:
        self._started += 1
        trial_id, account = f"t{self._started}", self._rng.choice(ACCOUNTS)
        names = ["a", "b", *([DEAF] if self._rng.random() < 0.4 else [])]
        actors = [actor_params(name, "player", optional=name == DEAF, response_timeout_seconds=0) for name in names]
        params: TrialParams = trial_params(actors, environment_name="env")
        await self._stage.table.orchestrator.start_trial(trial_id=trial_id, account=account, params=params)
        await settle()
        puppets = {}
        for name in [*names, "env"]:  # which comes when all others have
            puppets[name] = self._stage.puppets.pop(name)
            await puppets[name].ready()
        self._playing[trial_id] = Playing(trial_id, account, puppets, len(names))

    async def _observe(self, playing: Playing) -> None:
        size = self._size = self._rng.choice(SIZES)
        playing.tick_id += 1
        playing.acted = set()
        playing.held = 0
        shown = ObservationSet(
            tick_id=playing.tick_id, timestamp=1, observations=[bytes(size)], actors_map=[0] * playing.count
        )
        playing.shown = shown
        self._keep(playing, shown.ByteSize())
        await playing.puppets["env"].say(observation_set=shown)

    def _keep(self, playing: Playing, size: int) -> None:
        """Work out whether there is room for an observation."""
        size = 0 if size <= SMALL_OBSERVATION else size
        others = [other for other in self._playing.values() if other is not playing]
        of_account = sum(other.kept for other in others if other.account == playing.account)
        fits = sum(other.kept for other in others) + size <= self._config.max_observations_bytes and (
            not playing.account or of_account + size <= self._config.max_peer_observations_bytes
        )
        playing.kept = size if fits or size <= playing.kept else 0

    async def _act(self, playing: Playing) -> None:
        name = self._rng.choice([name for name in playing.actors if name not in playing.acted])
        content = bytes(self._rng.choice(SIZES))
        self._hold(playing, len(content))
        playing.acted.add(name)
        await playing.puppets[name].act(content)

    async def _tell(self, playing: Playing) -> None:
        pairs = [("a", "b"), ("b", "env"), ("env", "*"), ("env", "a")]
        if DEAF in playing.puppets:
            pairs += [("env", DEAF)] * 4
        sender, receiver = self._rng.choice(pairs)
        text = bytes(self._rng.choice(SIZES))
        self._hold(playing, _said_bytes(receiver, text))
        await playing.puppets[sender].tell(receiver, text)

    def _hold(self, playing: Playing, size: int) -> None:
        if not playing.borrowed:
            playing.since = trio.current_time()
        playing.held += size
        self._size = size

    async def _end(self, playing: Playing) -> None:
        if self._rng.random() < 0.2:
            await self._stage.hard(playing.trial_id)

    async def end(self) -> None:
        """End all trials."""
        for trial_id in self._playing:
            await self._stage.hard(trial_id)
        await trio.sleep(10)

    # What should be

    def _borrowed(self) -> dict[str, float]:
        """Return what each trial has borrowed for its tick, weighed with how long it has."""
        now = trio.current_time()
        return {one.trial_id: one.borrowed * (now - one.since) for one in self._playing.values()}

    def _check(self, actor: Playing, weighed: dict[str, float]) -> None:
        trials = self._stage.table.orchestrator.trials
        wanted = sum(one.borrowed for one in self._playing.values())
        outboxes = sum(one.borrowed for one in outbox_memory().borrowers)
        ended = {trial.trial_id for trial in trials if trial.state == TrialState.ENDED}
        left = max(
            (weight for name, weight in weighed.items() if name not in ended and name != actor.trial_id), default=0
        )
        for playing in list(self._playing.values()):
            trial = trials.get(playing.trial_id)
            assert trial is not None
            if trial.state != TrialState.ENDED:
                self._check_observation(playing, trial)
                continue
            del self._playing[playing.trial_id]
            assert trial.outcome is not None
            if trial.outcome.cause == EndCause.PARTICIPANT_REFUSED:
                self._world.sometimes("a trial gives way")
                assert "held too much of a tick" in trial.outcome.reason, trial.outcome
                assert wanted + outboxes > TOTAL, f"{wanted + outboxes} bytes are wanted, there are {TOTAL}"
                assert playing is actor or weighed[playing.trial_id] >= left, (
                    f"{playing.trial_id} gave way with {weighed[playing.trial_id]:.0f}, and there is {left:.0f}"
                )
        outboxes = sum(one.borrowed for one in outbox_memory().borrowers)
        held = sum(one.borrowed for one in self._playing.values())
        assert self._pool.used == held + outboxes, (
            f"{self._pool.used} are lent: {held} to ticks, {outboxes} to outboxes"
        )
        assert self._pool.used <= TOTAL + 2 * RESERVED, self._pool.used

    def _check_observation(self, playing: Playing, trial: Any) -> None:
        info = trial.info(latest_observation=True, actors=True)
        shown = playing.shown
        if shown is None:
            return
        is_kept = shown.ByteSize() <= SMALL_OBSERVATION or playing.kept > 0
        kept = shown if is_kept else ObservationSet(tick_id=shown.tick_id, timestamp=shown.timestamp)
        assert info.latest_observation == kept, f"{playing.trial_id}: the observation of {shown.ByteSize()} bytes"
        self._world.sometimes("an observation is kept" if is_kept else "an observation is not kept")
        present = {actor.name for actor in info.actors_in_trial}
        assert present >= {"a", "b"}, f"{playing.trial_id}: {present} are left"
        for name in ("a", "b", "env"):
            puppet = playing.puppets[name]
            assert not puppet.over, f"{playing.trial_id}: {name} was given up"
            if name != "env":
                seen = [got.observation.tick_id for got in puppet.got if got.HasField("observation")]
                assert seen == [*range(playing.tick_id + 1)], f"{playing.trial_id}: {name} has seen {seen}"
        if DEAF in playing.puppets and trial.machine.actors[playing.actors.index(DEAF)].gone:
            self._world.sometimes("who does not read is given up")
            (loss,) = trial.machine.losses
            assert loss.participant == DEAF, loss
            assert "server_memory_bytes: it does not read" in loss.reason, loss
            assert self._used + 2 * self._size + 2 * STEP > TOTAL, f"{self._used} were lent, {self._size} were sent"
            del playing.puppets[DEAF]
            playing.acted.discard(DEAF)


def _said_bytes(receiver: str, text: bytes) -> int:
    payload = AnyMessage(type_url="type.googleapis.com/x.Y", value=text)
    return Message(tick_id=-1, sender_name="forged", receiver_name=receiver, payload=payload).ByteSize()


async def crowded_trials(world: World) -> None:
    """Play, and look after each step."""
    memory = memory_of_run().messages
    memory.total = TOTAL
    config = OrchestratorConfig(
        max_observations_bytes=500 * KIB, max_peer_observations_bytes=world.rng.choice([100 * KIB, 300 * KIB])
    )
    stage = _Crowd()
    services = Script(stage.environment).environment(), Script(stage.actor).actor()
    async with InProcessChannel(services, config=RpcConfig(call_outbox_messages=1)) as local:
        orchestrator = Orchestrator(config=config, local=Everything(local), host=world.host("orchestrator"))
        own = InProcessChannel(orchestrator_services(orchestrator))
        async with orchestrator, own, trio.open_nursery() as nursery:
            stage.table = Bench(orchestrator, own)
            play = Play(world, stage, config)
            for _ in range(STEPS):
                await play.step()
                await trio.sleep(world.rng.choice([0.01, 0.5, 3]))
            await play.end()
            nursery.cancel_scope.cancel()
    assert memory.used == 0, f"{memory.used} bytes are still borrowed"
