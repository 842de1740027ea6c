"""The trials that old clients have parts in, and for a while those that they had."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping

import trio

from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.base.endpoints import is_client_endpoint
from trio_cogment.base.errors import CogmentError, NotFoundError, RpcError, StatusCode
from trio_cogment.base.host import Host
from trio_cogment.gateways.callers import Caller
from trio_cogment.gateways.legacy.actor_ids import ActorIds, ids_in
from trio_cogment.gateways.legacy.client_seat import ClientSeat
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.gateways.legacy.trials import TrialSource
from trio_cogment.sdk import Controller

_log = logging.getLogger(__name__)

#: How long a trial that is over is known: clients end trials also after their end.
TOMBSTONE_SECONDS = 600.0
#: How many such trials are known.
MAX_TOMBSTONES = 10_000


class ClientTrial:
    """A trial in which old clients have parts, or may have.

    Args:
        trial_id: of the trial.
        owner: the account that it belongs to.
        caller: whose it is.
        ids: of the trial.
        seats: the places for old clients, by the ids of the actors.
        max_inactivity_seconds: how long no old client may call; 0: no limit.

    Attributes:
        trial_id, owner, caller, ids, seats: see above.
        controller: asks about it in the owner's name.
    """

    def __init__(
        self,
        trial_id: str,
        owner: str,
        caller: Caller,
        ids: ActorIds,
        seats: Mapping[int, ClientSeat],
        max_inactivity_seconds: float,
    ) -> None:
        self.trial_id = trial_id
        self.owner = owner
        self.caller = caller
        self.controller = Controller(caller.opener())
        self.ids = ids
        self.seats = seats
        self.max_inactivity_seconds = max_inactivity_seconds
        self._called_at = trio.current_time()

    def note_call(self) -> None:
        """Note that a client calls, or has got its answer."""
        self._called_at = trio.current_time()

    @property
    def stale_at(self) -> float:
        """When no client will have called for too long, on Trio's clock."""
        return self._called_at + self.max_inactivity_seconds


class ClientTrials:
    """The trials of old clients.

    Args:
        nursery: where the clients' streams are.
        profile: the project.
        source: tells the parameters of trials.
        host: gives the wall clock.
        owner_of: tells whose a trial is; None: whoever the orchestrator tells of it.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        profile: LegacyProfile,
        source: TrialSource,
        host: Host,
        owner_of: Callable[[str], str] | None = None,
    ) -> None:
        self._owner_of = owner_of
        self._nursery = nursery
        self._profile = profile
        self._source = source
        self._host = host
        self._trials: dict[str, ClientTrial] = {}
        #: Those that are over, the oldest first, with the time of their end.
        self._tombstones: OrderedDict[str, tuple[ClientTrial, float]] = OrderedDict()

    @property
    def running(self) -> Mapping[str, ClientTrial]:
        """The trials that go on, by id."""
        return self._trials

    async def find(self, trial_id: str, caller: Caller) -> ClientTrial:
        """Return a trial: one that an old client started, or one of the orchestrator that an old client may join.

        Raises:
            InvalidArgumentError: it has an actor class that the project does not have.
            NotFoundError: there is none.
            PermissionDeniedError: it is somebody else's.
        """
        found = self._known(trial_id)
        if found is None:
            return await self.watch(trial_id, caller)
        caller.check_owns(found.owner, f"trial {trial_id!r}")
        return found

    def _known(self, trial_id: str) -> ClientTrial | None:
        self._forget()
        if trial_id in self._tombstones:
            return self._tombstones[trial_id][0]
        return self._trials.get(trial_id)

    def _forget(self) -> None:
        now = trio.current_time()
        while self._tombstones:
            ended_at = next(iter(self._tombstones.values()))[1]
            if now - ended_at < TOMBSTONE_SECONDS and len(self._tombstones) <= MAX_TOMBSTONES:
                break
            self._tombstones.popitem(last=False)

    async def watch(self, trial_id: str, caller: Caller, *, max_inactivity_seconds: float = 0.0) -> ClientTrial:
        """Know a trial of the orchestrator from now on.

        Args:
            trial_id: of the trial.
            caller: who asks for it.
            max_inactivity_seconds: end it when no old client calls for so long; 0: never.

        Raises:
            InvalidArgumentError: it has an actor class that the project does not have.
            NotFoundError: the orchestrator does not know it.
            PermissionDeniedError: it is somebody else's.
        """
        opener = caller.opener()
        owner = self._owner_of(trial_id) if self._owner_of is not None else None
        if owner is None:
            # The orchestrator tells a caller of its own trials only, unless it may see all.
            if caller.owner and not await Controller(opener).trial_infos([trial_id]):
                raise NotFoundError(f"there is no trial {trial_id!r}")
            owner = "" if caller.identity.admin else caller.owner
        caller.check_owns(owner, f"trial {trial_id!r}")
        params = await self._source(trial_id)
        known = self._known(trial_id)
        if known is not None:  # found by two calls at once
            return known
        ids = ids_in(params, self._profile.classes, params.environment.name)
        seats = {
            member.actor_id: ClientSeat(
                self._nursery,
                opener,
                trial_id,
                ids,
                member,
                _config(params, member.place),
                self._host,
            )
            for member in ids.members
            if self._is_for_old_clients(params, member.place)
        }
        trial = self._trials[trial_id] = ClientTrial(trial_id, owner, caller, ids, seats, max_inactivity_seconds)
        self._nursery.start_soon(self._attend, trial, name=f"old clients' trial {trial_id}")
        return trial

    def _is_for_old_clients(self, params: TrialParams, place: int) -> bool:
        actor = params.actors[place]
        if self._profile.clients:
            return actor.name in self._profile.clients
        return is_client_endpoint(actor.endpoint)

    async def _attend(self, trial: ClientTrial) -> None:
        """Wait for the end of a trial, and end it if no client calls for too long; then it is a tombstone."""
        try:
            async with trio.open_nursery() as nursery:
                if trial.max_inactivity_seconds:
                    nursery.start_soon(self._watch_activity, trial)
                await trial.controller.wait_trial(trial.trial_id, check=False)
                nursery.cancel_scope.cancel()
        except* CogmentError as errors:
            _log.warning(
                "trial %r: the orchestrator cannot be asked any more: %s", trial.trial_id, errors.exceptions[0]
            )
            if any(
                isinstance(error, RpcError) and error.code is StatusCode.UNAUTHENTICATED for error in errors.exceptions
            ):
                # Nobody else would end it when no client calls any more.
                await self.give_up(trial.trial_id, trial.caller)
        except* trio.Cancelled:
            for seat in trial.seats.values():
                seat.leave()  # it has no task that is cancelled
            raise
        except* Exception:  # noqa: BLE001  the boundary of a trial
            _log.exception("trial %r: the gateway failed", trial.trial_id)
        finally:
            self._trials.pop(trial.trial_id, None)
            self._tombstones[trial.trial_id] = trial, trio.current_time()
            self._forget()

    async def _watch_activity(self, trial: ClientTrial) -> None:
        while True:
            stale_at = trial.stale_at
            if stale_at <= trio.current_time():
                break
            await trio.sleep_until(stale_at)
        _log.warning("trial %r: no client has called for %g s", trial.trial_id, trial.max_inactivity_seconds)
        await trial.caller.end_trial(trial.trial_id, hard=True)

    async def wait_running(self, trial: ClientTrial) -> None:
        """Wait until a trial runs, or is over."""
        await trial.controller.wait_trial_state(trial.trial_id, TrialState.RUNNING)

    async def end(self, trial: ClientTrial) -> None:
        """End a trial for a client: softly, if all who may still act for it are there."""
        seats = trial.seats.values()
        if all(seat.is_over for seat in seats) and trial.trial_id not in self._trials:
            await trio.lowlevel.checkpoint()
            return
        # A place that nobody has taken: the trial may never begin.
        hard = not all(seat.is_joined or seat.is_over for seat in seats)
        await trial.caller.end_trial(trial.trial_id, hard=hard)
        for seat in seats:
            seat.drain()

    async def give_up(self, trial_id: str, caller: Caller) -> None:
        """End a trial whose starter has gone, or whose owner the orchestrator does not know any more."""
        with trio.move_on_after(self._profile.end_timeout_seconds, shield=True):
            try:
                await caller.end_trial(trial_id, hard=True)
            except CogmentError as error:
                _log.warning("trial %r: it cannot be ended: %s", trial_id, error)


def _config(params: TrialParams, place: int) -> bytes | None:
    actor = params.actors[place]
    return actor.config.content if actor.HasField("config") else None
