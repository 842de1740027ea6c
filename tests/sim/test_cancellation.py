"""A host that is cancelled before any step of a small trial: nothing is left, and everybody has heard END."""

from __future__ import annotations

import itertools

import pytest

from tests.sim.cancellation import embedded, in_process, over_the_wire
from trio_cogment.testing import cancel_at_every_step

#: Room for a frame or so on the way, as in a lockstep stream.
TIGHT = 256
SOAK = [pytest.mark.soak, pytest.mark.timeout(1200)]


pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=SOAK) for seed in range(2, 20))])
def test_a_platform_in_process(seed: int) -> None:
    result = cancel_at_every_step(seed, embedded)
    assert len(result.tried) == result.steps > 40
    # Participants of the process are cancelled with it: there is nobody to wait for.
    assert result.slowest_seconds == 0


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=SOAK) for seed in range(2, 20))])
def test_an_orchestrator_beside_its_participants(seed: int) -> None:
    result = cancel_at_every_step(seed, in_process)
    assert len(result.tried) == result.steps > 40


@pytest.mark.parametrize("buffer_bytes", [64 * 1024, TIGHT])
def test_an_orchestrator_on_a_network_now_and_then(buffer_bytes: int) -> None:
    first = 0 if buffer_bytes == TIGHT else 12
    result = cancel_at_every_step(1, over_the_wire, buffer_bytes, steps=itertools.count(first, 24))
    assert result.steps > 200
    assert len(result.tried) > 10


@pytest.mark.parametrize("buffer_bytes", [64 * 1024, TIGHT])
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=SOAK) for seed in range(1, 5)])
def test_an_orchestrator_on_a_network(seed: int, buffer_bytes: int) -> None:
    result = cancel_at_every_step(seed, over_the_wire, buffer_bytes)
    assert len(result.tried) == result.steps > 200
