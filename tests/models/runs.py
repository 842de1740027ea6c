"""Runs of several clients at once, and the models that judge them."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from tests.models import datastore_clients, directory, directory_clients, registry, registry_clients, trial_store
from trio_cogment.testing import CallLog, SequentialModel, World, check_linearizable
from trio_cogment.testing.checkers.linearizable import DEFAULT_BUDGET

#: Clients in one process, and the steps of each.
SCRIPTS, STEPS = 3, 10


class Run(NamedTuple):
    """A run.

    Attributes:
        play: lets clients call a service, and returns what they were answered.
        rules: the module that says what is right.
        model: makes the model, of that module, for these calls.
    """

    play: Callable[[World], Awaitable[CallLog]]
    rules: ModuleType
    model: Callable[[Any, CallLog], SequentialModel[Any]]

    async def judged(self, world: World) -> None:
        """Play and judge."""
        self.judge(await self.play(world))

    def judge(self, log: CallLog, rules: Any = None, *, budget: int = DEFAULT_BUDGET) -> None:
        """Judge what clients were answered, by the rules or by others."""
        check_linearizable(log, self.model(rules or self.rules, log), budget=budget)


def of_trial_store(rules: Any, _log: CallLog) -> SequentialModel[Any]:
    """Return the model of a datastore."""
    return rules.TrialStoreModel()  # type: ignore[no-any-return]  # of a module that may be an edited one


def of_registry(rules: Any, log: CallLog) -> SequentialModel[Any]:
    """Return the model of a registry with room for all."""
    return rules.RegistryModel(log)  # type: ignore[no-any-return]  # as above


def of_small_registry(rules: Any, log: CallLog) -> SequentialModel[Any]:
    """Return the model of a registry that has no room for all."""
    return rules.RegistryModel(log, evicts=True)  # type: ignore[no-any-return]  # as above


def of_directory(rules: Any, _log: CallLog) -> SequentialModel[Any]:
    """Return the model of a directory in which everything is permanent."""
    return rules.DirectoryModel()  # type: ignore[no-any-return]  # as above


def of_checking_directory(rules: Any, _log: CallLog) -> SequentialModel[Any]:
    """Return the model of a directory that checks services."""
    return rules.DirectoryModel(hides=True)  # type: ignore[no-any-return]  # as above


def _scripts(world: World, draw: Callable[[random.Random], Any]) -> Sequence[Sequence[Any]]:
    rng = world.stream("scripts")
    return [[draw(rng) for _ in range(STEPS)] for _ in range(SCRIPTS)]


async def _datastore_calmly(world: World) -> CallLog:
    return await datastore_clients.in_one_process(world, _scripts(world, datastore_clients.draw), faults=False)


async def _registry_calmly(world: World) -> CallLog:
    return await registry_clients.in_one_process(world, _scripts(world, registry_clients.draw))


async def _directory_calmly(world: World) -> CallLog:
    return await directory_clients.in_one_process(world, _scripts(world, directory_clients.draw))


#: Over a network, with faults.
FAULTY = {
    "datastore's clients": Run(datastore_clients.over_a_network, trial_store, of_trial_store),
    "registry's clients": Run(registry_clients.that_crashes, registry, of_small_registry),
    "clients of a registry with a storage that fails": Run(
        registry_clients.with_a_storage_that_fails, registry, of_small_registry
    ),
    "directory's clients": Run(directory_clients.that_crashes, directory, of_checking_directory),
}
#: In one process, where everything is answered: the models leave nothing open there.
CALM = {
    "datastore in process": Run(_datastore_calmly, trial_store, of_trial_store),
    "registry in process": Run(_registry_calmly, registry, of_registry),
    "directory in process": Run(_directory_calmly, directory, of_directory),
}
RUNS = FAULTY | CALM
