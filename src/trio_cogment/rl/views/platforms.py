"""The platform that the trials of a view run on: its own, or an orchestrator elsewhere."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.endpoints import CLIENT, DISCOVER
from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    RpcError,
    StatusCode,
    UnavailableError,
)
from trio_cogment.base.host import Host
from trio_cogment.base.host.files import LockedError
from trio_cogment.base.taking_up import Past
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.platform import Platform, open_platform
from trio_cogment.play.clients import serve_clients
from trio_cogment.rl.views.drivers import Driver, open_driver
from trio_cogment.rl.views.options import PlatformOptions, is_address
from trio_cogment.rl.views.rounds import Round
from trio_cogment.rpc import OwnNursery, RunningServer
from trio_cogment.sdk import (
    ActorSession,
    Controller,
    EnvironmentSession,
    ModelRegistryClient,
    Participants,
    connect,
    serve_participants,
)
from trio_cogment.seats.base import Seat
from trio_cogment.seats.remote import HumanSeat

#: What the participants of views are registered as.
IMPLEMENTATION = "view"
_USER_ID = "trio-cogment"
#: An ended trial is looked at so often without a pause, and then at this interval.
_QUICK_LOOKS = 20
_LOOK_SECONDS = 0.002
_DISCARDED = "the view was reset in the middle of the episode"


@dataclass(slots=True)
class _Opened:
    """What is open, in Trio.

    Attributes:
        platform: the view's own, if it has one.
        endpoint: of the participants of this process, for the parameters of trials.
        mine: the endpoint of the actors whom a view drives.
    """

    controller: Controller
    nursery: trio.Nursery
    platform: Platform | None
    endpoint: str = DISCOVER
    mine: str = DISCOVER
    join: Callable[..., Any] | None = None


@asynccontextmanager
async def _open_own(participants: Participants, options: PlatformOptions, host: Host) -> AsyncIterator[Platform]:
    async with AsyncExitStack() as stack:
        opened = open_platform(
            participants,
            config=options.config,
            host=host,
            store=None if is_address(options.store) else options.store,
            model_registry=options.model_registry,
            directory=options.directory,
        )
        try:
            platform = await stack.enter_async_context(opened)
        except FailedPreconditionError as error:
            lock = error.__cause__
            if not (isinstance(lock, LockedError) and lock.holder == os.getpid()):
                raise
            text = f"{error}: use make_vec for several environments, or platform= with the view that has it open"
            raise FailedPreconditionError(text) from error
        yield platform


async def _playing(round_: Round, part: Awaitable[None], with_caller: dict[int, bool]) -> None:
    try:
        await part
    except Exception as error:
        if round_.is_raised_by(error):
            with_caller[id(error)] = True
        raise


class ViewPlatform:
    """Runs trials for the views that share it; `release` of the last one closes it.

    Args:
        options: where.
        remote: some participant is elsewhere.
        seats: those whose clients are to be served.

    Attributes:
        options: those of the argument.
        driver: calls into Trio.
        remote: a participant, the orchestrator or the datastore is elsewhere.
        users: how many views share it; 0: it is closed.
    """

    def __init__(self, options: PlatformOptions, *, remote: bool = False, seats: Sequence[Seat] = ()) -> None:
        options.check(seats)
        self.options = options
        self._seats = seats
        self._host = Host()
        self.users = 1
        self._rounds: dict[str, Round] = {}
        #: Exceptions of participants that a view raises as causes of its own, until the participants have ended.
        with_caller = self._with_caller = dict[int, bool]()
        self._labels = {IMPLEMENTATION}
        # It is asked right after an exception was raised; by then its round may be over and forgotten.
        self._participants = Participants(
            RL_SPEC, host=self._host, has_caller=lambda _trial_id, error: with_caller.pop(id(error), False)
        )
        self._serves_environment = False
        self._participants.register_actor(self._play_actor, IMPLEMENTATION, [PLAYER])
        thread = options.thread
        self.remote = remote or bool(options.orchestrator) or is_address(options.store)
        with_page = any(isinstance(seat, HumanSeat) and seat.page is not None for seat in seats)
        if thread is None and (self.remote or with_page):  # connections have to be kept alive
            thread = True
        self.driver: Driver[_Opened] = open_driver(self._open(), thread=thread)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[_Opened]:
        options = self.options
        async with AsyncExitStack() as stack:
            if options.orchestrator:
                opened = await self._connect(stack)
            else:
                platform = await stack.enter_async_context(_open_own(self._participants, options, self._host))
                await stack.enter_async_context(serve_clients(platform, self._seats))
                nursery = await stack.enter_async_context(OwnNursery())
                opened = _Opened(platform.controller, nursery, platform)
            yield opened
            if opened.platform is not None:
                # While clients are served still: those of the last trial may not have heard of its end.
                await opened.platform.orchestrator.stop()
            opened.nursery.cancel_scope.cancel()

    async def _connect(self, stack: AsyncExitStack) -> _Opened:
        options = self.options
        config = options.config or PlatformConfig()
        client = await stack.enter_async_context(
            connect(
                options.orchestrator,
                spec=RL_SPEC,
                directory=options.directory or "",
                tls=config.client_tls,
                config=config.rpc,
                host=self._host,
            )
        )
        controller = await client.controller()
        nursery = await stack.enter_async_context(OwnNursery())
        serving = partial(serve_participants, self._participants, port=options.port, address=options.address)
        server: RunningServer = await nursery.start(serving)
        endpoint = f"grpc://{options.address}:{server.port}"
        return _Opened(controller, nursery, None, endpoint, CLIENT, client.join_trial)

    @property
    def opened(self) -> _Opened:
        """What is open, for the parameters of trials."""
        return self.driver.value

    @property
    def platform(self) -> Platform | None:
        """The platform of the view's own, if it has one."""
        return self.driver.value.platform

    def serve_environment(self) -> str:
        """Register the environments of the views, if they are in this process; return the name.

        Otherwise nothing may be found here when an environment is looked for that somebody else serves.
        """
        if not self._serves_environment:
            self._serves_environment = True
            self._participants.register_environment(self._play_environment, IMPLEMENTATION)
        return IMPLEMENTATION

    def register_seat(self, label: str) -> str:
        """Make known that there are seats of this label; return the name of their implementation."""
        if label not in self._labels:
            self._labels.add(label)
            self._participants.register_actor(self._play_actor, label, [PLAYER])
        return label

    def registry(self) -> ModelRegistryClient | None:
        """Return a client of the model registry of the view's own platform, if it has one."""
        own = self.platform
        return None if own is None or own.model_registry is None else own.model_registry_client()

    def new_trial_id(self) -> str:
        """Return an id for a new trial."""
        return self._host.new_id()

    # In Trio's thread

    def launch(self, round_: Round, params: TrialParams) -> None:
        """Begin to start a trial; the round learns what comes of it."""
        self._rounds[round_.trial_id] = round_
        round_.launched_at = trio.current_time()
        self.opened.nursery.start_soon(self._start, round_, params, name=f"start of trial {round_.trial_id}")

    async def _start(self, round_: Round, params: TrialParams) -> None:
        opened, seating = self.opened, round_.seating
        began = trio.current_time()
        try:
            round_.chosen = await seating.choose()
            if round_.discarded:
                return  # there was no trial yet that could be ended
            params = seating.params(params, round_.chosen)
            if opened.platform is None:
                await opened.controller.start_trial(params, trial_id=round_.trial_id)
            else:  # the same without a call
                orchestrator = opened.platform.orchestrator
                await orchestrator.start_trial(
                    trial_id=round_.trial_id, user_id=_USER_ID, params=params, taken_up=round_.start_with()
                )
            if opened.join is not None:
                for actor in params.actors:
                    if actor.endpoint == CLIENT and actor.implementation == IMPLEMENTATION:
                        opened.nursery.start_soon(self._join, round_, actor.name)
        except Exception as error:  # noqa: BLE001  who chooses may be the user's; it ends this trial and nothing else
            round_.failure = error
            if opened.platform is None and isinstance(error, RpcError) and error.code is StatusCode.UNAVAILABLE:
                waited = trio.current_time() - began
                text = (
                    f"orchestrator {self.options.orchestrator!r}: no trial has been started in {waited:.1f} s: {error}"
                )
                round_.failure = UnavailableError(text)
            self.driver.notify()
        finally:
            round_.launched.set()

    async def _join(self, round_: Round, actor: str) -> None:
        assert self.opened.join is not None
        try:
            await self.opened.join(round_.trial_id, round_.play_actor, actor_name=actor)
        except CogmentError as error:
            if round_.failure is None:
                round_.failure = error
            self.driver.notify()

    async def _play_environment(self, session: EnvironmentSession[Any, Any, Any]) -> None:
        round_ = self._rounds.get(session.trial_id)
        if round_ is not None:
            await _playing(round_, round_.play_environment(session), self._with_caller)

    async def _play_actor(self, session: ActorSession[Any, Any, Any]) -> None:
        round_ = self._rounds.get(session.trial_id)
        if round_ is not None:
            await _playing(round_, round_.play_part(session), self._with_caller)

    def forget(self, round_: Round) -> None:
        """Keep no more of a round that is over, or given up."""
        self._rounds.pop(round_.trial_id, None)

    def end_now(self, round_: Round) -> None:
        """End a trial hard, without waiting."""
        round_.discard()
        platform = self.platform
        if platform is None:
            self.opened.nursery.start_soon(self._terminate, round_.trial_id)
        else:
            for trial in platform.orchestrator.known([round_.trial_id]):
                trial.hard_end(_DISCARDED)

    async def wait_gone(self, round_: Round) -> None:
        """Wait until nobody takes part in an ended trial any more; of one that runs elsewhere, nobody knows."""
        platform = self.platform
        if platform is None:
            return
        looks = 0
        while any(run.trial.trial_id == round_.trial_id for run in platform.orchestrator.runs):
            # Mostly everybody goes at once; who does not is given up after the orchestrator's farewell.
            await trio.sleep(0 if looks < _QUICK_LOOKS else _LOOK_SECONDS)
            looks += 1

    async def _terminate(self, trial_id: str) -> None:
        try:
            await self.opened.controller.terminate_trial(trial_id, hard=True)
        except CogmentError:
            pass  # the orchestrator is away: so is the trial

    async def outcome(self, round_: Round) -> tuple[str, Exception | None]:
        """Wait until a trial has ended, and return how.

        Returns:
            A text, which says how long was waited if the trial never began; and what the participant raised because of
            whom it failed, if that was in this process.
        """
        outcome = await self.opened.controller.wait_trial(round_.trial_id, check=False)
        text = str(outcome)
        if not outcome.ticks:
            text = f"not begun after {trio.current_time() - round_.launched_at:.1f} s: {text}"
        participant = outcome.failed_participant
        return text + round_.seating.advice(participant), round_.raised.get(participant)

    async def withdraw(self, round_: Round) -> None:
        """End a trial that was started ahead and never began; it is not stored."""
        round_.discard()
        platform = self.platform
        if platform is not None:
            await round_.launched.wait()  # before that it cannot be ended
        self.end_now(round_)
        self.forget(round_)  # not before: an actor who finds nothing to take part in leaves the trial, with a warning
        if platform is not None and platform.datastore is not None:
            try:
                await platform.controller.wait_trial(round_.trial_id, check=False)
            except NotFoundError:
                pass  # it could not be started
            await platform.datastore_client().delete_trials([round_.trial_id])

    # Its users

    def is_up_to_date(self, round_: Round) -> bool:
        """Whether a trial that was started ahead is what would be started now; it is withdrawn if not."""
        if not round_.seating.chooses:
            return not round_.is_broken()
        if not round_.is_parked():
            self.driver.exchange(lambda: None, round_.is_parked)
        if not round_.is_broken() and self.driver.call(round_.seating.choose, round_.chosen) == round_.chosen:
            return True
        self.driver.call(self.withdraw, round_)
        return False

    def read_past(self, trial_id: str, tick_id: int) -> tuple[TrialParams, Past]:
        """Return what is needed of a stored trial to go on with it; see `Orchestrator.read_past`.

        Raises:
            FailedPreconditionError: the platform is none of the view's own.
        """
        platform = self.platform
        if platform is None:
            raise FailedPreconditionError(
                f"trial {trial_id!r}: expected a platform of the view's own: an orchestrator elsewhere starts branches "
                "by Controller.start_branch"
            )
        orchestrator, store = platform.orchestrator, self.options.store
        return self.driver.call(
            partial(orchestrator.read_past, datalog=store if is_address(store) else None), trial_id, tick_id
        )

    def store_model(self, environment: str, name: str, data: bytes) -> int:
        """Store a version of a model; return its number.

        Args:
            environment: the name of the view's environment, for errors.
            name: of the model.
            data: the version.

        Raises:
            FailedPreconditionError: the view has no registry of its own.
        """
        registry = self.registry()
        if registry is None:
            here = "give model_registry= when the view is made"
            elsewhere = "its trials run elsewhere: connect to theirs"
            raise FailedPreconditionError(
                f"environment {environment!r}: store_model: expected a model registry, and the view has none; "
                f"{elsewhere if self.platform is None else here}"
            )
        return self.driver.call(registry.store, name, data).version_number

    def share(self, *, remote: bool, seats: Sequence[Seat]) -> ViewPlatform:
        """Return it for one more view.

        Args:
            remote: some participant of that view is elsewhere.
            seats: of that view.

        Raises:
            InvalidArgumentError: the view needs what only its own platform has.
        """
        self.options.check(seats)
        if remote and not self.remote and self.options.thread is not True:
            raise InvalidArgumentError(
                "platform: expected one that runs in a thread, because a participant is elsewhere: make the view whose "
                "platform it is with thread=True"
            )
        for seat in seats:
            if isinstance(seat, HumanSeat) and seat.port is not None and seat not in self._seats:
                raise InvalidArgumentError(
                    f"seats: human: expected port=None, or a seat of the view whose platform it is; got {seat.port}"
                )
        self.users += 1
        return self

    def release(self) -> None:
        """Count one view less; the last one closes it."""
        self.users -= 1
        if self.users == 0:
            self.driver.close()

    def abandon(self) -> None:
        """Count one view less, which nobody has closed; the last one begins to close it. From any thread."""
        self.users -= 1
        if self.users == 0:
            self.driver.abandon()
