"""Services beside the four trials: datastore, model registry and directory, each with its storage, in trouble.

The scenarios are those of the services' own tests, which run some seeds of each, and of `tests.sim.orchestrators`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from tests.models.runs import FAULTY
from tests.servers.datastore import test_simulated as datastore
from tests.servers.directory import test_simulated as directory
from tests.servers.directory.limits_and_loads import by_load, within_limits
from tests.servers.model_registry import test_simulated as registry
from tests.sim.asked import asked_and_told
from tests.sim.followed import followed_closely
from tests.sim.orchestrators.crowded import crowded_trials
from tests.sim.orchestrators.guarded import guarded_trials
from tests.sim.orchestrators.logged import logged_trials
from tests.sim.orchestrators.measured import measured_trials
from tests.sim.orchestrators.parting import parting_trials
from tests.sim.orchestrators.rated import rated_trials
from tests.sim.recounting import check_counts, count_now_and_then
from tests.sim.stored import clients_on_a_file, few_are_kept, on_a_file
from trio_cogment.testing import Counts, World, check_history

Scenario = Callable[[World], Awaitable[Any]]


def judged(scenario: Scenario) -> Scenario:
    """Let the checkers judge what a scenario has noted, too."""

    async def both(world: World) -> None:
        counts = Counts()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_now_and_then, counts)
            await scenario(world)
            check_counts(counts, at_rest=True)
            nursery.cancel_scope.cancel()
        check_history(world.history)

    return both


def in_turn(*scenarios: Scenario) -> Scenario:
    """Play several, one after the other, in one world."""

    async def all_of_them(world: World) -> None:
        for scenario in scenarios:
            await scenario(world)

    return all_of_them


#: What one trial alone does not show.
ORCHESTRATORS: dict[str, Scenario] = {
    "orchestrator with little room": measured_trials,
    "orchestrator short of memory": crowded_trials,
    "orchestrator that asks for tokens": guarded_trials,
    "orchestrator's data logs": logged_trials,
    "orchestrator's farewells": parting_trials,
    "orchestrator with ticks at a rate": rated_trials,
    "orchestrator that stops": partial(parting_trials, stops=True),
}
FILES: dict[str, Scenario] = {
    "datastore on a file": in_turn(on_a_file, followed_closely),
    "datastore's clients on a file": clients_on_a_file,
    "datastore that keeps few": few_are_kept,
    "datastore asked for some": asked_and_told,
}
#: Each of them finds out by itself what is wrong; faults are drawn from the seed as it goes along.
_FINDING_OUT: dict[str, Scenario] = {
    "datastore in process": datastore.in_one_process,
    "datastore over a network": datastore.over_a_network,
    "datastore after a crash": partial(datastore.orchestrators_end, power=False),
    "datastore after a power loss": partial(datastore.orchestrators_end, power=True),
    "registry": registry.scenario,
    "registry with a storage that fails": registry.storage_that_fails,
    "directory in trouble": directory.anything,
    "directory's disk": in_turn(directory.acknowledged, within_limits, by_load),
    "directory alone": directory.a_partition_of_the_directory,
    **ORCHESTRATORS,
    **FILES,
    # Judged by the models of the services.
    **{name: run.judged for name, run in FAULTY.items()},
}

SERVICE_SUITES = {name: judged(scenario) for name, scenario in _FINDING_OUT.items()}
