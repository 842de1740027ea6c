"""Every storage against the same conformance kit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from tests.servers.datastore.stores import Make, in_memory, in_sqlite, in_sqlite_by_batch, in_sqlite_inline
from trio_cogment.servers.datastore.storage import TrialStore
from trio_cogment.testing import World, check_determinism, simulate
from trio_cogment.testing.conformance.trial_store import (
    CASES,
    KEEPING_CASES,
    OpenStore,
    check_case,
    check_trial_store,
)

Case = Callable[[TrialStore], Awaitable[None]]


def name(item: Callable[..., object]) -> str:
    return item.__name__


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("backend", [in_memory, in_sqlite, in_sqlite_by_batch], ids=name)
async def test_conformance(backend: Callable[[Path], Make], case: Case, tmp_path: Path) -> None:
    await check_case(backend(tmp_path)(), case)


@pytest.mark.parametrize("case", KEEPING_CASES, ids=name)
@pytest.mark.parametrize("backend", [in_sqlite, in_sqlite_by_batch], ids=name)
async def test_what_is_kept(
    backend: Callable[[Path], Make], case: Callable[[OpenStore], Awaitable[None]], tmp_path: Path
) -> None:
    await case(backend(tmp_path)())


@pytest.mark.parametrize("backend", [in_memory, in_sqlite_inline], ids=name)
def test_simulated(backend: Callable[[Path], Make], tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await check_trial_store(backend(tmp_path), keeps=backend is not in_memory)

    simulate(1, scenario)
    check_determinism(2, scenario)


async def test_names_the_case() -> None:
    def make() -> OpenStore:
        raise AssertionError("no storage")

    with pytest.raises(AssertionError, match="no storage") as caught:
        await check_trial_store(make)
    assert caught.value.__notes__ == ["check_trial_store: case nothing_there"]
    await trio.lowlevel.checkpoint()
