"""Participants in browsers in simulated worlds; see `play`.

300 seeds are a proof of `nox -s soak`; alone: `pytest -m soak tests/web/test_simulated.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.play import Play
from trio_cogment.testing import World, check_history, simulate

pytestmark = pytest.mark.usefixtures("quiet")


async def judged(world: World) -> None:
    await Play(world).run()
    check_history(world.history)


@pytest.mark.sim(seeds=8)
def test_browsers_that_vanish_hang_and_send_rubbish(sim: Any) -> None:
    sim(judged)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.sim(seeds=300)
def test_many_that_vanish_hang_and_send_rubbish(sim: Any) -> None:
    sim(judged)


async def undisturbed(world: World) -> None:
    await Play(world, disturbed=False).run()
    check_history(world.history)


def test_the_neighbour_alone() -> None:
    simulate(1, undisturbed)
