"""A world of a dm_env_rpc server between and during trials: a connection per actor, stepped side by side."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import trio

from trio_cogment.base.errors import CogmentError, UnavailableError, of_peer
from trio_cogment.base.shared_message import Content
from trio_cogment.environments.episode import Turn
from trio_cogment.environments.hosts import CLOSE_SECONDS
from trio_cogment.environments.stage import Opening
from trio_cogment.gateways.dm_env_rpc.bridge.agents import Agent, View
from trio_cogment.gateways.dm_env_rpc.bridge.plans import Plan
from trio_cogment.gateways.dm_env_rpc.bridge.rounds import Player, Rounds, named, too_late, turn_of
from trio_cogment.gateways.dm_env_rpc.client.addresses import parse_address
from trio_cogment.gateways.dm_env_rpc.client.connection import Connection, open_connection
from trio_cogment.gateways.dm_env_rpc.client.specs import Specs
from trio_cogment.gateways.dm_env_rpc.client.states import State
from trio_cogment.rpc import CallOpener, OwnNursery, open_channel
from trio_cogment.spaces import Observation

_log = logging.getLogger(__name__)


class World:
    """A world that the actors of a trial, and of those that follow, have joined: a `environments.hosts.SteppedHost`.

    Its connections live in a task of the Trio run, because they outlive trials. At the end the world is left, and
    destroyed if it was created here; so they are when the run ends.
    """

    def __init__(self, plan: Plan) -> None:
        """Prepare a world, which `open` opens."""
        self._plan = plan
        self._players: list[Player] = []
        self._name = ""
        self._connections: list[Connection] = []
        self._creator: Connection | None = None
        self._creating: trio.Event | None = None
        self._refusal: CogmentError | None = None
        self._ready = trio.Event()
        self._closed = trio.Event()
        self._closing = trio.Event()
        self._shield = trio.CancelScope(shield=True)
        self._joining = trio.CancelScope()
        #: What the server is asked for while actors join.
        self._asked = ""
        self._failure: Exception | None = None
        self._idle = True
        #: Of the sequence that is played.
        self._rounds: Rounds | None = None

    @property
    def usable(self) -> bool:
        """See `Host.usable`."""
        settled = self._rounds is None or self._rounds.settled
        return self._idle and settled and all(player.connection.failure is None for player in self._players)

    @classmethod
    async def open(cls, plan: Plan) -> World:
        """Create or join a world. After `Cancelled` nothing is left of it, within `CLOSE_SECONDS`.

        Raises:
            CogmentError: the server cannot be reached, refuses, or has specifications without counterparts.
        """
        world = cls(plan)
        trio.lowlevel.spawn_system_task(world._run)
        try:
            await world._ready.wait()
        finally:
            if not world._ready.is_set():  # it was cancelled
                world._close()
        if world._failure is not None:
            raise world._failure
        return world

    async def begin(self, opening: Opening) -> Turn:
        """Begin a sequence; see `SteppedHost.begin`.

        Args:
            opening: the plan of the trial, with the key of this world.

        Raises:
            CogmentError: the server is lost, refuses, or breaks the protocol.
        """
        assert isinstance(opening, Plan)
        self._plan = opening
        self._rounds = Rounds(opening, self._players)
        with self._busy():
            await self._reset()
            told: dict[str, Observation] = {}

            async def begin(player: Player) -> None:
                step = await player.connection.step({}, player.agent.view.wanted)
                told[player.agent.name] = player.agent.begin(step)

            await self._side_by_side("step", begin, self._players)
            return turn_of(self._players, told, begins=True)

    def step(self, actions: Sequence[Content | None], cut: bool, on_turn: Callable[[Turn], None]) -> None:
        """Begin a step; see `Rounds.step`."""
        assert self._rounds is not None
        self._rounds.step(actions, cut, on_turn)

    async def wait_over(self) -> None:
        """Wait for the end of the sequence; see `Rounds.wait_over`."""
        assert self._rounds is not None
        await self._rounds.wait_over()

    async def aclose(self) -> None:
        """See `Host.aclose`."""
        self._close()
        await self._closed.wait()

    def _close(self) -> None:
        self._idle = False
        self._closing.set()
        self._joining.cancel()
        self._shield.deadline = min(self._shield.deadline, trio.current_time() + CLOSE_SECONDS)

    # A sequence

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """Be unusable for the time of the block, and indefinitely if it raises or is cancelled."""
        self._idle = False
        yield
        self._idle = not self._plan.single_use

    async def _reset(self) -> None:
        """Let the next steps begin a sequence, with the settings that the trial wants."""
        settings = self._plan.reset_settings
        alone = len(self._players) == 1

        async def reset(player: Player) -> None:
            specs = await player.connection.reset(settings if alone else {})
            if specs is not player.agent.view.specs:
                player.agent.look(self._view(player.agent.name, specs))

        async def reset_world(player: Player) -> None:
            await player.connection.reset_world(settings=settings)

        running = [player for player in self._players if player.connection.state is State.RUNNING]
        await self._side_by_side("reset", reset, self._players if alone and settings else running)
        if settings and not alone:
            await self._side_by_side("reset_world", reset_world, self._players[:1])

    async def _side_by_side(
        self, what: str, ask: Callable[[Player], Awaitable[None]], players: Sequence[Player]
    ) -> None:
        """Ask for something on several connections; the first error is raised alone, and ends the waiting of all."""
        errors: list[CogmentError] = []

        async def one(player: Player, others: trio.CancelScope | None = None) -> None:
            try:
                await ask(player)
            except CogmentError as error:
                errors.append(named(self._plan, player.agent.name, error))
                if others is not None:
                    others.cancel()

        seconds = self._plan.link.step_timeout_seconds
        with trio.move_on_after(seconds) as scope:
            if len(players) == 1:  # a task of its own takes a fifth of the time of a step
                await one(players[0])
            else:
                async with trio.open_nursery() as nursery:
                    for player in players:
                        nursery.start_soon(one, player, nursery.cancel_scope)
        if errors:
            raise errors[0]
        if scope.cancelled_caught:
            raise too_late(self._plan, what)

    # The connections

    async def _run(self) -> None:
        """Keep the connections; a task of the Trio run, which must not raise."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._guard)
            try:
                with self._shield:
                    await self._live()
            except Exception as error:  # noqa: BLE001  whoever opens the world gets the error
                self._failure = error
            finally:
                self._idle = False
                if self._failure is None:
                    text = f"environment {self._plan.server_name!r}: the world was closed"
                    self._failure = UnavailableError(text)
                self._ready.set()
                self._closed.set()
            nursery.cancel_scope.cancel()

    async def _guard(self) -> None:
        """Receive the end of the Trio run instead of the connections, which are needed for the goodbye."""
        try:
            await trio.sleep_forever()
        finally:
            self._close()

    async def _live(self) -> None:
        plan = self._plan
        async with OwnNursery() as nursery:
            try:
                nursery.start_soon(self._limit_joining)
                with self._joining:
                    await self._join(nursery)
                if self._joining.cancelled_caught and not self._closing.is_set():
                    text = _unanswered(plan, self._asked)
                    _log.warning("%s", text)
                    raise of_peer(UnavailableError(text))
                if not self._closing.is_set():
                    self._ready.set()
                await self._closing.wait()
            finally:
                with trio.CancelScope(deadline=trio.current_time() + CLOSE_SECONDS, shield=True):
                    await self._say_goodbye()
                nursery.cancel_scope.cancel()

    async def _limit_joining(self) -> None:
        # Not a deadline of the scope: calls that are opened in it would have that deadline for good.
        await trio.sleep(self._plan.link.connect_timeout_seconds)
        self._joining.cancel()

    async def _join(self, nursery: trio.Nursery) -> None:
        plan = self._plan
        # Each in a task of its own, because it stays open when the time for joining is over.
        opener: CallOpener = await nursery.start(self._hold_channel)
        for actor in plan.actors:
            try:
                connection: Connection = await nursery.start(self._hold_connection, opener)
                self._connections.append(connection)
                if len(self._connections) == 1:
                    # Servers may know a world only where it was created.
                    self._asked = f"CreateWorld of actor {actor!r}"
                    self._name = (
                        await self._created(nursery, connection) if plan.world_name is None else plan.world_name
                    )
                self._asked = f"JoinWorld of actor {actor!r}"
                specs = await connection.join_world(self._name, plan.join_settings[actor])
            except CogmentError as error:
                raise named(self._plan, actor, error) from error
            agent = Agent(server=plan.server_name, name=actor, view=self._view(actor, specs))
            self._players.append(Player(connection, agent))

    async def _hold_channel(self, *, task_status: trio.TaskStatus[CallOpener]) -> None:
        server, link = self._plan.server, self._plan.link
        if not isinstance(server, str):
            task_status.started(server)
            return
        endpoint = parse_address(server, field_name="environment config: server")
        # Less than for everything: then the error says why the server cannot be reached.
        seconds = min(link.config.connect_timeout_seconds, 0.8 * link.connect_timeout_seconds)
        config = replace(link.config, connect_timeout_seconds=seconds)
        async with open_channel(link.host, endpoint.host, endpoint.port, tls=link.tls, config=config) as channel:
            task_status.started(channel)
            await trio.sleep_forever()

    async def _hold_connection(self, opener: CallOpener, *, task_status: trio.TaskStatus[Connection]) -> None:
        plan = self._plan
        async with open_connection(opener, metadata=plan.link.metadata, name=plan.server_name) as connection:
            task_status.started(connection)
            await trio.sleep_forever()

    async def _created(self, nursery: trio.Nursery, connection: Connection) -> str:
        # In a task of its own: when the joining is given up meanwhile, the world is still to be destroyed.
        self._creating = trio.Event()
        nursery.start_soon(self._create, connection, self._creating)
        await self._creating.wait()
        if self._refusal is not None:
            raise self._refusal
        return self._name

    async def _create(self, connection: Connection, done: trio.Event) -> None:
        try:
            self._name = await connection.create_world(self._plan.create_settings)
            self._creator = connection
        except CogmentError as error:
            self._refusal = error
        finally:
            done.set()

    def _view(self, actor: str, specs: Specs) -> View:
        return View.of(self._plan.server_name, actor, specs, self._plan.observations)

    async def _say_goodbye(self) -> None:
        """Leave the world, and destroy it if it was created here; a server that is gone needs no goodbye."""
        try:
            if self._creating is not None:
                await self._creating.wait()
            for connection in self._connections:
                await connection.leave_world()
            if self._creator is not None:
                await self._creator.destroy_world(self._name)
        except CogmentError as error:
            _log.info("environment %r: no world was destroyed: %s", self._plan.server_name, error)


def _unanswered(plan: Plan, asked: str) -> str:
    """Return why a world could not be joined in time.

    Args:
        plan: of the trial.
        asked: the request that has no answer; empty: there is no connection yet.
    """
    seconds = f"within {plan.link.connect_timeout_seconds:g} s"
    if not asked:
        return f"{plan.server_name} could not be reached {seconds}"
    advice = "a Python server needs a thread for each connection (ThreadPoolExecutor(max_workers=...))"
    return f"{plan.server_name} did not answer {asked} {seconds}; {advice}"
