"""An orchestrator that asks for tokens: who may start, end, see and join trials, and whom it finds to play in them.

Callers with tokens of all kinds ask for everything, one after the other, while trials go on; what each of them must be
answered is worked out from whose trials there are, and what the directory knew at their start. Participants ask for
tokens too: only the orchestrator of a trial gets in.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import trio

from tests.access.keys import KEYS
from tests.helpers import END, HEARTBEAT, LAST, LAST_ACK, NORMAL, Script, actor_that_acts, environment_of
from trio_cogment.access import AccessControl, Grant, Role, Rules, Token
from trio_cogment.api.common_pb2 import Action, ActorInitialOutput, ActorRunTrialOutput, TrialState
from trio_cogment.api.directory_pb2 import ServiceEndpoint, ServiceType
from trio_cogment.api.orchestrator_pb2 import TrialListRequest
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.rpc import Call, Channel, InProcessChannel, ServerCall, methods_of, serve
from trio_cogment.sdk import Controller, actor_params, trial_params
from trio_cogment.servers.discovery import DirectoryClient
from trio_cogment.servers.orchestrator import Orchestrator, orchestrator_services
from trio_cogment.servers.orchestrator._fair_turns import FairTurns
from trio_cogment.testing import World
from trio_cogment.testing.fakes.directory import FakeDirectory

PORT = 9000
STEPS = 70
JOIN_SECONDS = 5.0
IDS = [f"{letter}{number}" for letter in "xy" for number in range(5)]
#: Who there is, and what each may do.
GRANTS = {
    "alice": Grant(name="alice", roles=frozenset([Role.OPERATOR])),
    "bob": Grant(name="bob", roles=frozenset([Role.OPERATOR])),
    "root": Grant(name="root", roles=frozenset([Role.ADMIN])),
    "seat": Grant(name="seat", roles=frozenset([Role.SEAT]), trials=("=x1",), actors=("=cat",)),
    "player": Grant(name="player", roles=frozenset([Role.PARTICIPANT]), trials=("x*",), classes=("player",)),
    "anybody": Grant(name="anybody", roles=frozenset([Role.PARTICIPANT])),
    "observer": Grant(name="observer", roles=frozenset([Role.OBSERVER])),
}
STARTERS = ("alice", "bob", "root")
#: Client actors of every trial, and their classes; `dog` may never come.
CLIENTS = {"cat": "player", "dog": "pet"}
#: How long each is waited for.
WAITS = {"cat": 15.0, "dog": 6.0}
PLACES = ("one", "two", "three")
JOIN = methods_of(SERVICES[ServiceKind.CLIENT_ACTOR].descriptor())["RunTrial"]
WATCH = methods_of(SERVICES[ServiceKind.LIFECYCLE].descriptor())["WatchTrials"]
DENIED, NOT_FOUND, PRECONDITION = StatusCode.PERMISSION_DENIED, StatusCode.NOT_FOUND, StatusCode.FAILED_PRECONDITION


@dataclass(eq=False)
class Guarded:
    """A trial.

    Attributes:
        owner: who has started it.
        joined: those of `CLIENTS` who have come.
        began: when.
        place: where its environment has to be.
    """

    trial_id: str
    owner: str
    began: float
    place: str
    joined: set[str] = field(default_factory=set)


def names(patterns: tuple[str, ...], name: str) -> bool:
    """Tell whether a grant's patterns mean a name."""
    return not patterns or any(
        name == pattern.removeprefix("=") or (pattern.endswith("*") and name.startswith(pattern[:-1]))
        for pattern in patterns
    )


class Play:
    """Callers, and what they must be answered."""

    def __init__(self, world: World, orchestrator: Orchestrator, nursery: trio.Nursery, fake: FakeDirectory) -> None:
        self._world = world
        self._rng: random.Random = world.rng
        self._orchestrator = orchestrator
        self._nursery = nursery
        self._fake = fake
        self._trials: dict[str, Guarded] = {}
        self._channels: dict[str, Channel] = {}
        #: What each watcher was told: states, by trial.
        self._told: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        #: Of which trials each has asked to be told.
        self._watched: dict[str, list[str]] = {}
        #: Who has started a trial with some id, or has failed to.
        self._starters: dict[str, list[str]] = defaultdict(list)
        self._asked_to_end: set[str] = set()
        #: Where environments were called, by trial.
        self.called: dict[str, str] = {}

    # Callers

    async def run(self) -> None:
        """Let everybody ask for everything."""
        for name in GRANTS:
            await self._nursery.start(self._connect, name)
        for name in STARTERS:
            self._nursery.start_soon(self._watch, name)
            self._nursery.start_soon(self._watch_some, name, self._rng.sample(IDS, 4))
        near = InProcessChannel(orchestrator_services(self._orchestrator))
        self._nursery.start_soon(self._watch_from, "near", near)
        await trio.sleep(1)
        steps = [self._start, self._start, self._end, self._look, *[self._join] * 6, self._register]
        for _ in range(STEPS):
            await self._rng.choice(steps)()
            await trio.sleep(self._rng.choice([0.05, 0.2, 0.6]))
        await trio.sleep(30)
        for guarded in self._trials.values():
            await Controller(self._channels["root"]).terminate_trial(guarded.trial_id)
        await trio.sleep(30)
        await self._look()
        self._check_told()

    async def _connect(self, name: str, *, task_status: trio.TaskStatus[None]) -> None:
        token = KEYS.sign(Token(token_id=name, grant=GRANTS[name], expires_at=0))
        async with self._world.network.host(name).channel("orchestrator", PORT, token=token) as channel:
            self._channels[name] = channel
            task_status.started()
            await trio.sleep_forever()

    async def _code(self, asked: Awaitable[object]) -> StatusCode:
        try:
            await asked
        except RpcError as error:
            return error.code
        return StatusCode.OK

    async def _watch(self, name: str) -> None:
        async with Controller(self._channels[name]).watch_trials() as watch:
            async for entry in watch:
                self._told[name][entry.trial_id].append(entry.state)

    async def _watch_some(self, name: str, trial_ids: list[str]) -> None:
        """Watch some trials only, and only when they run or have ended."""
        self._watched[name] = trial_ids
        wanted = TrialListRequest(filter=[TrialState.RUNNING, TrialState.ENDED], trial_ids=trial_ids)
        async with self._channels[name].call(WATCH) as watch:
            await watch.send(wanted)
            await watch.done_sending()
            async for entry in watch:
                self._told[f"{name} of some"][entry.trial_id].append(entry.state)

    async def _watch_from(self, name: str, near: InProcessChannel) -> None:
        async with near, Controller(near).watch_trials() as watch:
            async for entry in watch:
                self._told[name][entry.trial_id].append(entry.state)

    def _check_told(self) -> None:
        """Everybody has been told of their own trials what was told in the process, of failed starts too."""
        for name in STARTERS:
            expected: dict[str, list[int]] = defaultdict(list)
            for trial_id, states in self._told["near"].items():
                starters = iter(self._starters[trial_id])
                starter = ""
                for state in states:
                    starter = next(starters) if state == TrialState.INITIALIZING else starter
                    if name in ("root", starter):
                        expected[trial_id].append(state)
            assert self._told[name] == expected, f"{name} was told {self._told[name]}, not {expected}"
            wanted = {
                one: [state for state in expected[one] if state in (TrialState.RUNNING, TrialState.ENDED)]
                for one in self._watched[name]
            }
            some = {one: states for one, states in wanted.items() if states}
            told = self._told[f"{name} of some"]
            assert told == some, f"{name} was told {told} of some, not {some}"

    def _reaches(self, name: str, trial_id: str) -> bool:
        return name == "root" or (trial_id in self._trials and self._trials[trial_id].owner == name)

    # What they ask

    async def _register(self) -> None:
        """Let one of the places come, or go."""
        if self._rng.random() < 0.3 and self._fake.entries:
            del self._fake.entries[self._rng.choice(list(self._fake.entries))]
            return
        kinds = [ServiceEndpoint.GRPC] * 4 + [ServiceEndpoint.GRPC_SSL]
        self.register(self._rng.choice(PLACES), self._rng.choice(kinds))

    def register(self, place: str, protocol: int = ServiceEndpoint.GRPC) -> None:
        """Register an environment and an actor of a place."""
        for kind in (ServiceType.ENVIRONMENT_SERVICE, ServiceType.ACTOR_SERVICE):
            properties = {"__actor_class": "service"} if kind == ServiceType.ACTOR_SERVICE else {}
            self._fake.add(kind, place, PORT, {**properties, "at": place}, protocol=protocol)

    def _found(self, kind: int, place: str) -> int | None:
        """Return the protocol of the newest that is registered for a place, None for none."""
        found = [one for one in self._fake.of_type(kind) if place in ("", one.details.properties["at"])]
        return found[-1].endpoint.protocol if found else None

    async def _start(self) -> None:
        """Start a trial: it needs a free id, and somebody to play in it whom the directory knows."""
        rng = self._rng
        name, trial_id, place = rng.choice(list(GRANTS)), rng.choice(IDS), rng.choice(["", *PLACES])
        where = f"cogment://discover?at={place}" if place else "cogment://discover"
        services = [actor_params(f"s{number}", "service", endpoint=where) for number in range(rng.randint(1, 3))]
        clients = [
            actor_params(
                client,
                actor_class,
                endpoint="cogment://client",
                optional=client == "dog",
                initial_connection_timeout_seconds=WAITS[client],
            )
            for client, actor_class in CLIENTS.items()
        ]
        params = trial_params([*clients, *services], environment_endpoint=where, environment_name="env")
        protocols = {self._found(kind, place) for kind in (ServiceType.ENVIRONMENT_SERVICE, ServiceType.ACTOR_SERVICE)}
        newest = [one.details.properties["at"] for one in self._fake.of_type(ServiceType.ENVIRONMENT_SERVICE)]
        guarded = Guarded(trial_id, name, trio.current_time(), place or (newest[-1] if newest else ""))
        expected = StatusCode.OK
        if name not in STARTERS:
            expected = DENIED
        elif trial_id not in self._trials and protocols != {ServiceEndpoint.GRPC}:
            expected = PRECONDITION
        if name in STARTERS and trial_id not in self._trials:
            self._starters[trial_id].append(name)
        answer: list[str] = []

        async def ask() -> None:
            answer.append(await Controller(self._channels[name]).start_trial(params, trial_id=trial_id))

        code = await self._code(ask())
        assert code is expected, f"{name} starts {trial_id} at {place!r}: {code.name}, expected: {expected.name}"
        if code is StatusCode.OK:
            assert answer == ["" if trial_id in self._trials else trial_id], answer
            self._trials.setdefault(trial_id, guarded)
            self._world.sometimes("started" if answer[0] else "taken")

    async def _end(self) -> None:
        """End a trial, which is for its owner."""
        rng = self._rng
        name, trial_id = rng.choice(list(GRANTS)), rng.choice(IDS)
        trial = self._orchestrator.trials.get(trial_id)
        if name in STARTERS:
            self._asked_to_end.add(trial_id)
        code = await self._code(Controller(self._channels[name]).terminate_trial(trial_id, hard=rng.random() < 0.3))
        may = name in STARTERS and (trial_id not in self._trials or self._reaches(name, trial_id))
        assert code is (StatusCode.OK if may else DENIED), f"{name} ends {trial_id}: {code.name}"
        # While the call was under way, somebody else may have ended it.
        if trial is not None and not may and trial.over and trial_id not in self._asked_to_end:
            assert trial.outcome is not None
            assert "external request" not in trial.outcome.reason, f"{name} has ended {trial_id}"

    async def _look(self) -> None:
        """Everybody sees their own trials, with all of their actors."""
        for name in STARTERS:
            controller = Controller(self._channels[name])
            infos = {info.trial_id: info for info in await controller.trial_infos()}
            expected = {trial_id for trial_id in self._trials if self._reaches(name, trial_id)}
            assert infos.keys() == expected, f"{name} sees {sorted(infos)}, not {sorted(expected)}"
            some = self._rng.sample(IDS, 3)
            named = {info.trial_id for info in await controller.trial_infos(some)}
            assert named == expected & {*some}, f"{name} asks for {some}, and sees {sorted(named)}"
        for trial_id, place in self.called.items():
            if trial_id in self._trials:
                assert place == self._trials[trial_id].place, f"{trial_id} is played at {place}"

    # Who joins

    async def _join(self) -> None:
        """Join a trial: by name or by class, with what comes first, or without."""
        rng = self._rng
        pending = [one.trial_id for one in self._orchestrator.trials if one.state == TrialState.PENDING]
        name, trial_id = rng.choice(list(GRANTS)), rng.choice([*pending * 20, *self._trials, *IDS, ""])
        actor = rng.choice([*CLIENTS, *CLIENTS, "s0", "nobody"])
        by_class = actor in CLIENTS and rng.random() < 0.4
        asked = ActorInitialOutput(actor_class=CLIENTS[actor]) if by_class else ActorInitialOutput(actor_name=actor)
        first = rng.choice(["init", "init", "init", "init", "heartbeat", "end", "action", "last", "nothing"])
        trial, is_pending, is_late = self._orchestrator.trials.get(trial_id), False, False
        if trial_id in self._trials:
            assert trial is not None
            is_pending, waited = trial.state == TrialState.PENDING, trio.current_time() - self._trials[trial_id].began
            if any(abs(waited - limit) < 0.5 for limit in WAITS.values()):
                return  # it would be a matter of milliseconds
            is_late = waited > WAITS.get(actor, 0.0)
        expected = self._expected(name, trial_id, actor, first, is_pending=is_pending, is_late=is_late)
        began = trio.current_time()
        joined: list[StatusCode] = []
        played = partial(self._play, name, trial_id, asked, first)
        await self._nursery.start(self._joined, played, joined)
        took = trio.current_time() - began
        what = f"{name} joins {trial_id} as {actor} with {first}"
        assert joined == [expected], f"{what}: {[one.name for one in joined]}, expected: {expected.name}"
        if expected is StatusCode.DEADLINE_EXCEEDED:
            assert JOIN_SECONDS <= took < JOIN_SECONDS + 1, f"{what}: refused after {took} s"
        self._world.sometimes(f"join: {expected.name}")
        if expected is StatusCode.OK and first in ("init", "heartbeat"):
            self._trials[trial_id].joined.add(actor)

    def _expected(
        self, name: str, trial_id: str, actor: str, first: str, *, is_pending: bool, is_late: bool
    ) -> StatusCode:
        grant = GRANTS[name]
        if name == "observer":
            return DENIED  # of this service, whatever is asked of it
        if not trial_id:
            return StatusCode.INVALID_ARGUMENT
        plays = not grant.roles.isdisjoint([Role.PARTICIPANT, Role.SEAT])
        if not self._reaches(name, trial_id) and not (plays and names(grant.trials, trial_id)):
            return DENIED
        if trial_id not in self._trials:
            return NOT_FOUND
        if first in ("action", "last"):
            return StatusCode.INVALID_ARGUMENT
        if first == "nothing":
            return StatusCode.DEADLINE_EXCEEDED
        if first == "end":
            return StatusCode.OK
        if not is_pending:
            return PRECONDITION
        if actor == "nobody":
            return NOT_FOUND
        if actor not in CLIENTS or is_late or actor in self._trials[trial_id].joined:
            return PRECONDITION
        fits = self._reaches(name, trial_id) or (names(grant.classes, CLIENTS[actor]) and names(grant.actors, actor))
        return StatusCode.OK if fits else DENIED

    async def _joined(
        self,
        play: Callable[[trio.TaskStatus[None]], Awaitable[None]],
        joined: list[StatusCode],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Play in a task of its own, which tells when it is known whether it may."""

        class Status:
            def started(self, _value: None = None) -> None:
                joined.append(StatusCode.OK)
                task_status.started()

        status = Status()
        try:
            await play(status)
        except RpcError as error:
            if not joined:
                joined.append(error.code)
                task_status.started()

    async def _play(
        self, name: str, trial_id: str, asked: ActorInitialOutput, first: str, status: trio.TaskStatus[None]
    ) -> None:
        metadata = [(TRIAL_ID, trial_id)] if trial_id else []
        async with self._channels[name].call(JOIN, metadata=metadata) as call:
            if first == "heartbeat":
                await call.send(ActorRunTrialOutput(state=HEARTBEAT))
                answer = await call.receive()
                assert answer.state == HEARTBEAT, answer
            if first in ("init", "heartbeat"):
                await call.send(ActorRunTrialOutput(state=NORMAL, init_output=asked))
            elif first == "action":
                await call.send(ActorRunTrialOutput(state=NORMAL, action=Action(content=b"x")))
            elif first in ("end", "last"):
                await call.send(ActorRunTrialOutput(state=END if first == "end" else LAST))
            got = await call.receive()
            if first == "end":
                assert got is None, got
                status.started()
                return
            assert asked.actor_name in ("", got.init_input.actor_name), got
            assert asked.actor_class in ("", got.init_input.actor_class), got
            status.started()
            await _act(call)

    # Those who are called

    def environment_at(self, place: str) -> Callable[[ServerCall], Awaitable[None]]:
        """Return the environment of a place."""

        async def run(call: ServerCall) -> None:
            self._check_caller(call)
            trial_id = call.metadata.texts(TRIAL_ID)[0]
            self.called[trial_id] = place
            await environment_of(self._world.stream(f"ticks {trial_id}").randint(1, 6), seconds_per_tick=0.3)(call)

        return run

    async def actor(self, call: ServerCall) -> None:
        """Play the actors of all places."""
        self._check_caller(call)
        await actor_that_acts()(call)

    def _check_caller(self, call: ServerCall) -> None:
        """It is the orchestrator, for this trial, in the name of its owner."""
        trial_id = call.metadata.texts(TRIAL_ID)[0]
        grant = call.identity.grant
        assert grant.trials == (f"={trial_id}",), grant
        owner = self._orchestrator.trials.get(trial_id)
        assert owner is not None
        assert grant.owner == owner.owner, (grant, owner.owner)


async def _act(call: Call) -> None:
    """Act at once, and play an end by the book."""
    ending = False
    async for message in call:
        ending = ending or message.state == LAST
        if message.state == END:
            return
        if message.HasField("observation"):
            action = Action(tick_id=message.observation.tick_id, content=b"a")
            said = ActorRunTrialOutput(state=LAST_ACK) if ending else ActorRunTrialOutput(state=NORMAL, action=action)
            await call.send(said)


async def guarded_trials(world: World) -> None:
    """Play, with participants on three hosts."""
    config = OrchestratorConfig(
        client_join_timeout_seconds=JOIN_SECONDS,
        max_connecting=world.rng.choice([1, 2, 256]),
        max_peer_connecting=world.rng.choice([1, 128]),
    )
    host, fake = world.host("orchestrator"), FakeDirectory()
    access = AccessControl(Rules(keys=KEYS), wall_clock=host.wall_clock, new_id=host.new_id)
    async with InProcessChannel([fake.service()]) as directory, trio.open_nursery() as nursery:
        orchestrator = Orchestrator(config=config, directory=DirectoryClient(directory), access=access, host=host)
        async with orchestrator, trio.open_nursery() as inner:
            play = Play(world, orchestrator, inner, fake)
            listener = world.network.host("orchestrator").listen(PORT)
            await inner.start(partial(serve, orchestrator_services(orchestrator), [listener], access=access))
            for place in PLACES:
                there = world.host(place)
                rules = AccessControl(Rules(keys=KEYS), wall_clock=there.wall_clock, new_id=there.new_id)
                services = [Script(play.environment_at(place)).environment(), Script(play.actor).actor()]
                listener = world.network.host(place).listen(PORT)
                await nursery.start(partial(serve, services, [listener], access=rules))
            play.register("one")
            await play.run()
            turns: FairTurns = orchestrator._connections._turns
            assert (turns.taken, turns.waiting) == (0, 0)
            inner.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
