"""Finds the orchestrator of a trial: the datastore knows it, or else all orchestrators are asked at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfoReply, TrialInfoRequest
from trio_cogment.base.errors import NotFoundError, RpcError, StatusCode, UnavailableError
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.rpc import CallOpener, methods_of
from trio_cogment.sdk._datastore import DatastoreClient

_GET_TRIAL_INFO = methods_of(SERVICES[ServiceKind.LIFECYCLE].descriptor())["GetTrialInfo"]
#: How long one orchestrator may take: others may have it.
_PATIENCE_SECONDS = 5.0
#: How long the answers of the others are waited for when one has it.
_OTHERS_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class FoundTrial:
    """Where a trial is.

    Attributes:
        trial_id: its id.
        endpoint: of its orchestrator, `grpc://host:port`; empty: it is not known, as of a trial that has long ended.
        state: its `TrialState`, as whoever was asked knows it.
        is_stored: a datastore has it.
    """

    trial_id: str
    endpoint: str
    state: int
    is_stored: bool

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.state == TrialState.ENDED


async def find_trial(
    trial_id: str,
    datastore: DatastoreClient | None,
    orchestrators: Callable[[], Awaitable[Mapping[str, CallOpener]]],
) -> FoundTrial:
    """Return where a trial is.

    Args:
        trial_id: its id.
        datastore: is asked first; None: there is none.
        orchestrators: returns who is asked if the datastore does not know it, by endpoint.

    Raises:
        NotFoundError: nobody knows such a trial.
        UnavailableError: nobody who has answered knows it, and somebody has not answered; the text says who.
        RpcError: somebody refuses to say.
    """
    silent: dict[str, str] = {}
    stored = None
    if datastore is not None:
        try:
            stored = await datastore.trial(trial_id)
        except RpcError as error:
            if error.code not in (StatusCode.UNAVAILABLE, StatusCode.UNIMPLEMENTED, StatusCode.DEADLINE_EXCEEDED):
                raise
            if error.code is not StatusCode.UNIMPLEMENTED:  # an orchestrator that has no datastore beside it
                silent["the datastore"] = error.message
    if stored is not None and (stored.orchestrator or stored.ended):
        return FoundTrial(trial_id, stored.orchestrator, stored.state, is_stored=True)
    found = await _ask_all(trial_id, await orchestrators(), silent, is_stored=stored is not None)
    if found is not None:
        return found
    if stored is not None:  # its orchestrator is gone, and the datastore has not given it up yet
        return FoundTrial(trial_id, "", stored.state, is_stored=True)
    if silent:
        who = "; ".join(f"{name}: {why}" for name, why in silent.items())
        raise UnavailableError(f"trial {trial_id!r}: nobody who has answered knows it, but not all have: {who}")
    raise NotFoundError(f"trial {trial_id!r}: no datastore and no orchestrator knows it")


async def _ask_all(
    trial_id: str, orchestrators: Mapping[str, CallOpener], silent: dict[str, str], *, is_stored: bool
) -> FoundTrial | None:
    """Return what the first orchestrator says that knows a trial; the others are hardly waited for."""
    found: list[FoundTrial] = []
    refusals: list[RpcError] = []

    async def ask(endpoint: str, opener: CallOpener) -> None:
        try:
            reply: TrialInfoReply = await opener.unary(
                _GET_TRIAL_INFO, TrialInfoRequest(), metadata=[(TRIAL_ID, trial_id)], timeout=_PATIENCE_SECONDS
            )
        except RpcError as error:
            if error.code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED):
                silent[endpoint or "the orchestrator"] = error.message
            else:
                refusals.append(error)
            return
        if reply.trial:
            found.append(FoundTrial(trial_id, endpoint, reply.trial[0].state, is_stored))
            # The others answer at about the same time; calls that are broken off again and again would be an attack.
            nursery.cancel_scope.deadline = trio.current_time() + _OTHERS_SECONDS

    async with trio.open_nursery() as nursery:
        for endpoint, opener in orchestrators.items():
            nursery.start_soon(ask, endpoint, opener)
    if found:
        return found[0]
    if refusals:
        raise refusals[0]
    return None
