"""Finds the orchestrator of a trial: the datastore knows it, or else all orchestrators are asked at once.

Whom a directory names is remembered for some seconds. Only that one of them knows a trial is believed then; before it
is said that nobody does, the directory and all whom it names are asked again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfoReply, TrialInfoRequest
from trio_cogment.base.errors import CogmentError, NotFoundError, RpcError, StatusCode, UnavailableError
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.rpc import CallOpener, methods_of
from trio_cogment.sdk._datastore import DatastoreClient

_GET_TRIAL_INFO = methods_of(SERVICES[ServiceKind.LIFECYCLE].descriptor())["GetTrialInfo"]
#: How long one orchestrator may take: others may have it.
_PATIENCE_SECONDS = 5.0
#: How long the answers of the others are waited for when one has it.
_OTHERS_SECONDS = 0.05
#: How long who can be asked is remembered.
_REMEMBERED_SECONDS = 10.0


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


@dataclass(frozen=True, slots=True)
class Informants:
    """Who can be asked for trials.

    Attributes:
        datastore: is asked first; None: there is none.
        orchestrators: are asked if the datastore does not know a trial, by endpoint.
    """

    datastore: DatastoreClient | None
    orchestrators: Mapping[str, CallOpener]


class TrialFinder:
    """Finds trials.

    Args:
        look_up: returns who can be asked.
    """

    def __init__(self, look_up: Callable[[], Awaitable[Informants]]) -> None:
        self._look_up = look_up
        self._remembered: Informants | None = None
        self._until = 0.0

    async def find(self, trial_id: str) -> FoundTrial:
        """Return where a trial is.

        Raises:
            NotFoundError: nobody knows such a trial.
            UnavailableError: nobody who has answered knows it, and somebody has not answered; the text says who.
            RpcError: somebody refuses to say.
        """
        if self._remembered is not None and trio.current_time() < self._until:
            try:
                found = await _ask(trial_id, self._remembered)
            except CogmentError:
                pass  # somebody may have come since, or gone
            else:
                if found.endpoint or found.ended:
                    return found
        self._remembered = await self._look_up()
        self._until = trio.current_time() + _REMEMBERED_SECONDS
        return await _ask(trial_id, self._remembered)


async def _ask(trial_id: str, informants: Informants) -> FoundTrial:
    silent: dict[str, str] = {}
    stored = None
    if informants.datastore is not None:
        try:
            stored = await informants.datastore.trial(trial_id)
        except RpcError as error:
            if error.code not in (StatusCode.UNAVAILABLE, StatusCode.UNIMPLEMENTED, StatusCode.DEADLINE_EXCEEDED):
                raise
            if error.code is not StatusCode.UNIMPLEMENTED:  # an orchestrator that has no datastore beside it
                silent["the datastore"] = error.message
    if stored is not None and (stored.orchestrator or stored.ended):
        return FoundTrial(trial_id, stored.orchestrator, stored.state, is_stored=True)
    found = await _ask_all(trial_id, informants.orchestrators, silent, is_stored=stored is not None)
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
    unanswered = set(orchestrators)
    enough = trio.Event()
    request, metadata = TrialInfoRequest(), [(TRIAL_ID, trial_id)]

    def on_reply(endpoint: str, reply: TrialInfoReply | None, error: RpcError | None) -> None:
        unanswered.discard(endpoint)
        if error is not None:
            if error.code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED):
                silent[endpoint or "the orchestrator"] = error.message
            else:
                refusals.append(error)
        elif reply is not None and reply.trial:
            found.append(FoundTrial(trial_id, endpoint, reply.trial[0].state, is_stored))
        if found or not unanswered:
            enough.set()

    async def ask(endpoint: str, opener: CallOpener) -> None:
        try:
            reply: TrialInfoReply = await opener.unary(
                _GET_TRIAL_INFO, request, metadata=metadata, timeout=_PATIENCE_SECONDS
            )
        except RpcError as error:
            on_reply(endpoint, None, error)
        else:
            on_reply(endpoint, reply, None)

    async with trio.open_nursery() as nursery:
        for endpoint, opener in orchestrators.items():
            # Those that are connected answer without a task each, and nobody waits for the slow ones among them.
            reply_to = partial(on_reply, endpoint)
            try:
                asked = opener.unary_nowait(
                    _GET_TRIAL_INFO, request, reply_to, metadata=metadata, timeout=_PATIENCE_SECONDS
                )
            except RpcError as error:
                on_reply(endpoint, None, error)
                continue
            if asked is None:
                nursery.start_soon(ask, endpoint, opener)
        if unanswered:
            await enough.wait()
        # The others answer at about the same time; calls that are broken off again and again would be an attack.
        nursery.cancel_scope.deadline = trio.current_time() + _OTHERS_SECONDS
    if found:
        return found[0]
    if refusals:
        raise refusals[0]
    return None
