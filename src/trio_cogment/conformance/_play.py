"""Plays cases with a server, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import trio

from trio_cogment.base.errors import RpcError
from trio_cogment.base.services import ServiceKind
from trio_cogment.conformance import _directory, _model_registry, _orchestrator, _trial_datastore
from trio_cogment.conformance._case import Case, Result, judged
from trio_cogment.conformance._server import Server
from trio_cogment.conformance._stage import NothingCameError

_CASES = {
    "orchestrator": (ServiceKind.LIFECYCLE, _orchestrator.CASES),
    "trial_datastore": (ServiceKind.DATASTORE, _trial_datastore.CASES),
    "model_registry": (ServiceKind.MODEL_REGISTRY, _model_registry.CASES),
    "directory": (ServiceKind.DIRECTORY, _directory.CASES),
}

#: The services that have cases, as in `trio-cogment services`, and what each is known by.
SERVICES = {name: kind for name, (kind, _) in _CASES.items()}

_AT_ONCE = 6
#: A case that has not come to its end by then never will: no wait within it is that long.
_CASE_SECONDS = 90.0


def cases_of(services: Iterable[str] = SERVICES) -> list[Case]:
    """Return the cases of some services.

    Raises:
        KeyError: there is no such service.
    """
    return [case for service in services for case in _CASES[service][1]]


async def play_cases(
    server: Server, cases: Sequence[Case], seen: Callable[[Result], None] = lambda _result: None
) -> list[Result]:
    """Play cases: several at a time, but those that might end the server last, and one after the other.

    Args:
        server: what is tested.
        cases: what is played.
        seen: is called with each result as soon as it is there.

    Returns:
        The results, in the order of the cases. A call that fails within a case makes its status the outcome; something
        that does not come makes that the outcome.

    After `Cancelled` the trials that the kit has started are ended, as far as the server answers.
    """
    results: dict[str, Result] = {}
    limit = trio.CapacityLimiter(_AT_ONCE)

    async def play(case: Case) -> None:
        async with limit:
            result = judged(case, await _outcome(server, case))
        results[case.key] = result
        seen(result)

    async with trio.open_nursery() as nursery:
        for case in cases:
            if not case.may_end:
                nursery.start_soon(play, case)
    for case in cases:
        if case.may_end:
            await play(case)
    return [results[case.key] for case in cases]


async def _outcome(server: Server, case: Case) -> str:
    outcome = "no end"
    with trio.move_on_after(_CASE_SECONDS):
        try:
            outcome = await case.play(server)
        # From nurseries of a case, too. An answer that lacks what a case looks for is an outcome like others.
        except* (RpcError, NothingCameError, LookupError, ValueError) as errors:
            outcome = _said(errors)
    return outcome


def _said(errors: BaseExceptionGroup[BaseException]) -> str:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    if isinstance(first, RpcError):
        return first.code.name
    return str(first) if isinstance(first, NothingCameError) else f"an answer that lacks something ({first})"
