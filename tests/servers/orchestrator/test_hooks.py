"""Pre-trial hooks: each is asked with what the one before has made of the parameters, and named when it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
import trio.testing

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.base.errors import EndpointError, RpcError, StatusCode, UnavailableError
from trio_cogment.base.services import ServiceKind
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.servers.orchestrator._connections import Connections
from trio_cogment.servers.orchestrator._starting import ON_PRE_TRIAL, run_hooks

PLACES = ("grpc://one:1", "grpc://two:2")


async def nothing(_place: str) -> None:
    await trio.lowlevel.checkpoint()


class Hooks:
    """Connections to hooks that each add their place to the properties.

    Attributes:
        hindrance: what a call has to pass.
        asked: who was asked with which properties.
    """

    def __init__(self) -> None:
        self.hindrance: Callable[[str], Any] = nothing
        self.asked: list[tuple[str, list[str]]] = []
        self.metadata: list[Any] = []
        self.looked_for: list[tuple[Any, ...]] = []

    def authorization(self, trial_id: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"for {trial_id}"),)

    async def resolve(self, text: str, kind: ServiceKind, field_name: str) -> str:
        self.looked_for.append((text, kind, field_name))
        return text

    @asynccontextmanager
    async def open(self, target: str) -> AsyncIterator[Hook]:
        yield Hook(self, target)


class Hook:
    def __init__(self, hooks: Hooks, place: str) -> None:
        self._hooks = hooks
        self._place = place

    async def unary(self, method: object, request: PreTrialParams, *, metadata: Any) -> PreTrialParams:
        assert method is ON_PRE_TRIAL
        self._hooks.metadata.append(metadata)
        self._hooks.asked.append((self._place, sorted(request.params.properties)))
        await self._hooks.hindrance(self._place)
        reply = PreTrialParams()
        reply.params.CopyFrom(request.params)
        reply.params.properties[self._place] = "was here"
        return reply


async def run(hooks: Hooks, *places: str) -> TrialParams:
    return await run_hooks(
        cast(Connections, hooks), places, TrialParams(), trial_id="t", user_id="me", timeout_seconds=3
    )


async def test_each_gets_what_the_one_before_has_made() -> None:
    hooks = Hooks()
    params = await run(hooks, *PLACES)
    assert hooks.asked == [(PLACES[0], []), (PLACES[1], [PLACES[0]])]
    assert sorted(params.properties) == list(PLACES)
    assert hooks.metadata == [(("trial-id", "t"), ("user-id", "me"), ("authorization", "for t"))] * 2
    kind = ServiceKind.PRE_TRIAL_HOOK
    assert hooks.looked_for == [(place, kind, f"pre_trial_hooks[{n}]") for n, place in enumerate(PLACES)]


async def test_without_hooks_nothing_changes() -> None:
    assert await run(Hooks()) == TrialParams()


async def fails(place: str) -> None:
    if place == PLACES[1]:
        raise RpcError(StatusCode.INTERNAL, "no")


async def hangs(place: str) -> None:
    if place == PLACES[1]:
        await trio.sleep_forever()


async def takes_its_time(_place: str) -> None:
    await trio.sleep(2)


@pytest.mark.parametrize(
    ("hindrance", "told", "seconds"),
    [
        (fails, "pre-trial hook 2 (grpc://two:2): INTERNAL: no", 0),
        (hangs, "pre-trial hook 2 (grpc://two:2): no reply in 3 s", 3),
    ],
)
async def test_one_that_fails_is_named(
    hindrance: Callable[[str], Any], told: str, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    hooks = Hooks()
    hooks.hindrance = hindrance
    with pytest.raises(UnavailableError) as failed:
        await run(hooks, *PLACES)
    assert (str(failed.value), trio.current_time()) == (told, seconds)


async def test_each_has_its_own_time(autojump_clock: trio.testing.MockClock) -> None:
    hooks = Hooks()
    hooks.hindrance = takes_its_time
    await run(hooks, *PLACES)
    assert trio.current_time() == 4


async def test_an_endpoint_that_is_none_is_named() -> None:
    with pytest.raises(EndpointError, match=r"pre_trial_hooks\[1\]"):
        await run(Hooks(), PLACES[0], "nonsense")


def test_a_hook_that_no_endpoint_leads_to_is_told_at_the_start() -> None:
    with pytest.raises(EndpointError, match=r"^pre_trial_hooks\[1\]: "):
        Orchestrator(pre_trial_hooks=["grpc://here:1", "somewhere"])
