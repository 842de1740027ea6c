"""The plugin for pytest: simulated tests, over many seeds, beside pytest-trio.

A test that asks for the fixture `sim` runs once for each seed; it is a plain function and calls ``sim(scenario)``. A
test of pytest-trio may ask for `trial_platform`: ``async with trial_platform() as platform``. See `docs/simulation.md`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:  # importing them only when a test needs them keeps every other run of pytest fast
    from trio_cogment.platform import Platform
    from trio_cogment.testing import FaultPlan, Outcome

T = TypeVar("T")

DEFAULT_SEEDS = 10
#: One seed in this many is run twice, and the runs are compared.
CHECKED_ONCE_IN = 20
_COUNTERS = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("trio-cogment", "simulated tests (trio-cogment)")
    group.addoption(
        "--sim-seeds",
        type=_at_least_one,
        metavar="N",
        help=f"run each simulated test with the seeds 0 to N-1, instead of its marker's number or {DEFAULT_SEEDS}",
    )
    group.addoption(
        "--sim-seed", type=int, action="append", metavar="N", help="run simulated tests with this seed only; repeatable"
    )


def _at_least_one(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:  # no test would run, and none fail
        raise argparse.ArgumentTypeError(f"expected a number of seeds, at least 1, got {text!r}")
    return number


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line(
        "markers", "sim(seeds=N): run this simulated test with N seeds unless --sim-seeds says else"
    )
    config.stash[_COUNTERS] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test out of each seed."""
    if "sim" in metafunc.fixturenames:
        metafunc.parametrize("sim", _seeds(metafunc), indirect=True, ids=lambda seed: f"seed{seed}")
    elif any(marker.name == "sim" for marker in metafunc.definition.own_markers):
        # A module or a class may have the marker for those of its tests that are simulated.
        pytest.fail(
            f"{metafunc.definition.nodeid}: marked with @pytest.mark.sim, but it does not ask for the fixture `sim`: "
            "no seed would be run",
            pytrace=False,
        )


def _seeds(metafunc: pytest.Metafunc) -> list[int]:
    marked = _marked(metafunc)  # what it says is looked at in any case
    chosen: list[int] | None = metafunc.config.getoption("--sim-seed")
    if chosen:
        return list(dict.fromkeys(chosen))
    number: int | None = metafunc.config.getoption("--sim-seeds")
    return list(range(marked if number is None else number))


def _marked(metafunc: pytest.Metafunc) -> int:
    """Return the number of seeds that a test's marker asks for."""
    marker = metafunc.definition.get_closest_marker("sim")
    if marker is None:
        return DEFAULT_SEEDS
    seeds: object = marker.kwargs.get("seeds", DEFAULT_SEEDS)
    if marker.args or marker.kwargs.keys() - {"seeds"} or type(seeds) is not int or seeds < 1:
        given = [*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())]
        pytest.fail(
            f"{metafunc.definition.nodeid}: expected @pytest.mark.sim(seeds=N) with N at least 1, got "
            f"@pytest.mark.sim({', '.join(given)})",
            pytrace=False,
        )
    return seeds


class Sim:
    """The value of the fixture `sim`: call it with a scenario.

    Attributes:
        seed: this test's.
    """

    def __init__(self, seed: int, counters: dict[str, int], test: str) -> None:
        self.seed = seed
        self._counters = counters
        self._test = test

    def __call__(
        self,
        async_fn: Callable[..., Awaitable[T]],
        *args: Any,
        budget: int | None = None,
        plan: FaultPlan | None = None,
    ) -> Outcome[T]:
        """Run ``async_fn(world, *args)`` as `trio_cogment.testing.simulate` does, with this test's seed.

        One seed in twenty is run twice, to check that the run is deterministic. The error of a run has a note that says
        how to repeat it.
        """
        from trio_cogment.testing import DEFAULT_BUDGET, check_determinism, simulate
        from trio_cogment.testing.sim.failures import noting

        run = check_determinism if self.seed % CHECKED_ONCE_IN == 0 else simulate
        with noting(f"again: pytest {self._test} --sim-seed {self.seed}"):
            outcome = run(self.seed, async_fn, *args, budget=DEFAULT_BUDGET if budget is None else budget, plan=plan)
        for name in +outcome.counters:
            self._counters[name] = self._counters.get(name, 0) + 1
        return outcome


@pytest.fixture
def sim(request: pytest.FixtureRequest) -> Sim:
    """Run scenarios on a virtual clock, in an order that the seed decides: ``sim(scenario)``."""
    return Sim(request.param, request.config.stash[_COUNTERS], _as_argument(request.node))


def _as_argument(item: pytest.Item) -> str:
    """Return a test as one gives it to pytest in a shell, in the directory in which pytest was started."""
    # Node ids begin at the root directory, which may be another one.
    path = os.path.relpath(item.path, item.config.invocation_params.dir)
    _, _, name = item.nodeid.partition("::")
    return shlex.quote(f"{path}::{name}")


@pytest.fixture
def trial_platform(request: pytest.FixtureRequest) -> Callable[..., AbstractAsyncContextManager[Platform]]:
    """Open platforms whose ids, and with `autojump_clock` the wall clock, are the same in every run.

    Use it as ``async with trial_platform() as platform`` in the test itself.

    What it gives takes the arguments of `trio_cogment.open_platform`. With `mock_clock`, who waits for which time is
    printed when the clock stands still and nobody can go on. It is not an async fixture because
    pytest-trio starts those in an order that no seed decides.
    """
    from trio_cogment.testing import World
    from trio_cogment.testing.sim.standing_clock import told_when_time_stands_still

    def tell(hint: str) -> None:
        capturing = request.config.pluginmanager.getplugin("capturemanager")
        with nullcontext() if capturing is None else capturing.global_and_fixture_disabled():
            print(f"\n{request.node.nodeid}: {hint}", file=sys.stderr, flush=True)  # while it hangs

    @asynccontextmanager
    async def opened(*args: Any, **kwargs: Any) -> AsyncIterator[Platform]:
        async with told_when_time_stands_still(tell), World(0).open_platform(*args, **kwargs) as platform:
            yield platform

    return opened


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print in how many runs each `World.sometimes` was reached."""
    counters = config.stash.get(_COUNTERS, {})
    if counters:
        terminalreporter.section("reached in simulated runs")
        for name, count in sorted(counters.items()):
            terminalreporter.write_line(f"{count:7} {name}")
