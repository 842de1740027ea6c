"""The service `TrialAttempts`: orchestrators in other processes go on with the trials of a datastore.

It is for orchestrators alone. Participants know the tokens that an orchestrator makes for one trial, so those do not
count here: only a token for all trials does.
"""

from __future__ import annotations

import math
from typing import Final

import trio
from trio_util import AsyncBool

from trio_cogment.access import Role
from trio_cogment.api.attempts_pb2 import (
    GiveUpReply,
    GiveUpRequest,
    LeftTrial,
    ReleaseReply,
    ReleaseRequest,
    TakeOverReply,
    TakeOverRequest,
    WatchLeftRequest,
)
from trio_cogment.base.endpoints import parse_server_endpoint
from trio_cogment.base.errors import InvalidArgumentError, PermissionDeniedError
from trio_cogment.rpc import ServerCall
from trio_cogment.servers.datastore._datastore import LEFT_PAUSE_SECONDS, Datastore
from trio_cogment.servers.datastore._write_rules import MAX_NUMBER
from trio_cogment.servers.datastore.storage import ELSEWHERE, StoredTrial, Watch

#: After this time a trial that nobody has taken over is told of again.
_AGAIN_SECONDS: Final = 2.0


class AttemptsService:
    """The service, in front of a datastore."""

    def __init__(self, datastore: Datastore) -> None:
        self._datastore = datastore

    async def WatchLeft(self, request: WatchLeftRequest, call: ServerCall) -> None:
        """Tell of the trials that nobody runs, indefinitely."""
        check_counts(call)
        endpoint = _endpoint(request.orchestrator)
        datastore = self._datastore
        with datastore.waited_elsewhere():
            await call.send(LeftTrial())
            async with datastore.store.watch() as watch, trio.open_nursery() as nursery:
                woken = AsyncBool()
                nursery.start_soon(_wake_by_store, watch, woken)
                nursery.start_soon(_wake_by_streams, datastore, woken)
                told: set[tuple[int, int]] = set()
                told_at = trio.current_time()
                while True:
                    woken.value = False
                    if trio.current_time() >= told_at + _AGAIN_SECONDS:
                        told, told_at = set(), trio.current_time()
                    trials = await datastore.left_open(endpoint, elsewhere=True)
                    for trial in trials:
                        if (trial.number, trial.attempt) not in told:
                            await call.send(_left(trial))
                    told = {(trial.number, trial.attempt) for trial in trials}
                    with trio.move_on_at(told_at + _AGAIN_SECONDS if trials else math.inf):
                        await woken.wait_value(True)
                    await trio.sleep(LEFT_PAUSE_SECONDS)

    async def TakeOver(self, request: TakeOverRequest, call: ServerCall) -> TakeOverReply:
        """Compare the attempt that has a trial with the one that is said, and give the trial to the next one."""
        check_counts(call)
        endpoint = _endpoint(request.orchestrator)
        before = _attempt(request.attempt)
        trial = await self._datastore.store.trial(request.trial_id)
        if trial is None or trial.attempt != before:
            return TakeOverReply()
        return TakeOverReply(attempt=await self._datastore.take_over(trial, ELSEWHERE + endpoint) or 0)

    async def GiveUp(self, request: GiveUpRequest, call: ServerCall) -> GiveUpReply:
        """End a trial that was taken over; the second time nothing happens."""
        check_counts(call)
        await self._datastore.give_up(request.trial_id, _attempt(request.attempt), request.end)
        return GiveUpReply()

    async def Release(self, request: ReleaseRequest, call: ServerCall) -> ReleaseReply:
        """Let others take over a trial, unless another attempt has it."""
        check_counts(call)
        await self._datastore.release(request.trial_id, _attempt(request.attempt))
        return ReleaseReply()


async def _wake_by_store(watch: Watch, woken: AsyncBool) -> None:
    while True:
        await watch.changed()
        woken.value = True


async def _wake_by_streams(datastore: Datastore, woken: AsyncBool) -> None:
    seen = -1
    while True:
        seen = await datastore.left_changed(seen)
        woken.value = True


def check_counts(call: ServerCall) -> None:
    """Refuse a caller that may not say who has a trial: its participants know the token for that trial.

    Raises:
        PermissionDeniedError: it has no token for all trials.
    """
    grant = call.identity.grant
    if not (call.identity.admin or (Role.ORCHESTRATOR in grant.roles and not (grant.trials or grant.owner))):
        raise PermissionDeniedError("expected the token of an orchestrator, for all trials")


def _endpoint(text: str) -> str:
    return str(parse_server_endpoint(text, field_name="orchestrator")) if text else ""


def _attempt(number: int) -> int:
    if not 0 < number <= MAX_NUMBER:
        raise InvalidArgumentError(f"attempt: expected a number from 1 on, got {number}")
    return number


def _left(trial: StoredTrial) -> LeftTrial:
    return LeftTrial(
        trial_id=trial.trial_id,
        user_id=trial.user_id,
        params=trial.params,
        owner=trial.owner,
        attempt=trial.attempt,
        samples_count=trial.samples_count,
    )
