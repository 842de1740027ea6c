"""Attempts at the trials of a datastore in another process: its service `TrialAttempts`, for an orchestrator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from trio_cogment.api.attempts_pb2 import (
    DESCRIPTOR,
    GiveUpRequest,
    LeftTrial,
    ReleaseRequest,
    TakeOverRequest,
    WatchLeftRequest,
)
from trio_cogment.api.common_pb2 import EndOfTrial
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, RpcError, StatusCode
from trio_cogment.base.services import ATTEMPTS
from trio_cogment.rpc import methods_of
from trio_cogment.servers.orchestrator._connections import OWN_TOKEN_SECONDS, Connections, Target

_METHODS = methods_of(DESCRIPTOR.services_by_name[ATTEMPTS])


def not_counted(datastore: str) -> str:
    """Return why nobody can go on with the trials of a datastore that has no such service."""
    return (
        f"resume: the trial datastore at {datastore} does not count the attempts of trials (it is an older one, or of "
        "another make), so they cannot go on; leave out --resume, or use the trial datastore of this version"
    )


class Attempts:
    """What a datastore elsewhere does for orchestrators that go on with its trials.

    Everything may raise what a call may (`RpcError`), and `FailedPreconditionError` where the datastore has no such
    service.

    Args:
        connections: lends channels.
        target: where the datastore is.
        name: of the datastore, for errors.
    """

    def __init__(self, connections: Connections, target: Target, name: str) -> None:
        self._connections = connections
        self._target = target
        self._name = name

    async def check(self) -> None:
        """Learn that the datastore has the service."""
        await self._watch("", None)

    async def watch_left(self, orchestrator: str, found: Callable[[LeftTrial], None]) -> None:
        """Tell of the trials that nobody runs, each again from time to time, until the call ends: at some time it does.

        Args:
            orchestrator: the endpoint of this one; empty: nobody knows it.
            found: is told.
        """
        with trio.move_on_after(OWN_TOKEN_SECONDS / 2):  # the server would end it when its token has expired
            await self._watch(orchestrator, found)

    async def _watch(self, orchestrator: str, found: Callable[[LeftTrial], None] | None) -> None:
        who = self._connections.own_authorization()
        try:
            async with (
                self._connections.open(self._target, watched=True) as opener,
                opener.call(_METHODS["WatchLeft"], metadata=who) as call,
            ):
                await call.send(WatchLeftRequest(orchestrator=orchestrator))
                await call.done_sending()
                async for trial in call:
                    if found is None:
                        return  # the first one, which says that the service is there
                    if trial.trial_id:
                        found(trial)
        except RpcError as error:
            raise self._meant(error) from error

    async def take_over(self, trial_id: str, attempt: int, orchestrator: str) -> int:
        """Take a trial over; return the number of the attempt that has it now, 0: somebody else has it, or it ended.

        After an error it may be taken over nevertheless.

        Args:
            trial_id: of the trial.
            attempt: that had it when it was found.
            orchestrator: as in `watch_left`.
        """
        request = TakeOverRequest(trial_id=trial_id, attempt=attempt, orchestrator=orchestrator)
        reply = await self._unary("TakeOver", request)
        return int(reply.attempt)

    async def give_up(self, trial_id: str, attempt: int, end: EndOfTrial) -> None:
        """End a trial that was taken over and cannot be gone on with; the second time nothing happens."""
        await self._unary("GiveUp", GiveUpRequest(trial_id=trial_id, attempt=attempt, end=end))

    async def release(self, trial_id: str, attempt: int) -> None:
        """Hand a trial over: its attempt runs no more, and whoever goes on with trials may take it over."""
        await self._unary("Release", ReleaseRequest(trial_id=trial_id, attempt=attempt))

    async def _unary(self, method: str, request: Any) -> Any:
        who = self._connections.own_authorization()
        try:
            async with self._connections.open(self._target, watched=True) as opener:
                return await opener.unary(_METHODS[method], request, metadata=who)
        except RpcError as error:
            raise self._meant(error) from error

    def _meant(self, error: RpcError) -> CogmentError:
        return FailedPreconditionError(not_counted(self._name)) if error.code is StatusCode.UNIMPLEMENTED else error
