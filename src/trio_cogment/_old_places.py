"""Old places of modules and names: where 0.2.0 had them, they can still be imported, with a `DeprecationWarning`.

An old name is a second name of the module itself, not a copy: its classes and its state are the same under both. This
goes with the release after 0.3.0.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import warnings

TYPE_CHECKING = False  # as type checkers know it; importing `typing` takes longer than everything else here
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Any

#: Where a module, or a package with all that is in it, was in 0.2.0, and where it is.
MOVED = {
    "about": "base.about",
    "access.byte_pool": "budget.byte_pool",
    "access.peer_limits": "budget.peer_limits",
    "access.quotas": "budget.quotas",
    "access.shares": "budget.shares",
    "addressing": "base.addressing",
    "backoff": "base.backoff",
    "compiling": "base.compiling",
    "config": "base.config",
    "datastore": "servers.datastore",
    "demo": "cli.demonstration",
    "directory": "servers.directory",
    "discovery": "servers.discovery",
    "endpoints": "base.endpoints",
    "errors": "base.errors",
    "host": "base.host",
    "launch": "cli.launching",
    "log_context": "base.log_context",
    "metrics": "base.metrics",
    "metrics.endpoint": "web.metrics_endpoint",
    "metrics.refusals": "base.metrics.calls",
    "model_registry": "servers.model_registry",
    "orchestrator": "servers.orchestrator",
    "outcome": "base.outcome",
    "play.house": "play.server",
    "play.seat_machine": "seats.presence",
    "play.stand_in": "play.bots",
    "plugins": "base.plugins",
    "recording": "trial.recording",
    "recount": "base.recount",
    "rewards": "base.rewards",
    "rl.datasets.columns": "rl.datasets.tables",
    "rl.environments": "environments",
    "rl.environments.aec": "environments.pettingzoo",
    "rl.environments.dm_specs": "environments.dm_env",
    "rl.environments.parallel": "environments.pettingzoo",
    "rl.openenv": "gateways.openenv",
    "rl.people": "play.environment_games",
    "rl.seats": "seats",
    "rl.seats.clients": "play.clients",
    "rl.seats.doors": "play.human_pages",
    "rl.seats.errors": "seats.base",
    "rl.seats.player": "seats.local",
    "rl.spec": "environments.spec",
    "rl.trial_seeds": "environments.trial_seeds",
    "rpc.memory": "budget.memory",
    "rpc.refusals": "budget.refusals",
    "rpc.transfer_slots": "budget.transfer_slots",
    "services": "base.services",
    "shared_message": "base.shared_message",
    "shared_observation": "base.shared_message",
    "spec": "sdk.spec",
    "sqlite_file": "base.sqlite_file",
    "sqlite_hold": "base.sqlite_hold",
    "stand_ins": "base.stand_ins",
    "suggestions": "base.suggestions",
    "testing.fakes.hook": "testing.fakes.participants",
    "testing.sim.runner": "testing.sim.world",
    "trainer.dispatch.listening": "trainer.dispatch.workers",
    "trainer.dispatch.machine": "trainer.extension",
    "trainer.run_ids": "trainer._trainer",
    "trainer.trials.episodes": "trainer.trials.following",
    "trainer.trials.params": "trainer.trials.starter",
}
_ROOT = "trio_cogment."
_NOT_USERS = (
    *(__name__, "importlib", "_frozen_importlib", "trio_cogment.base.lazy_names"),
    *("trio_cogment.platform", "trio_cogment.sync", "trio_cogment.aio"),
)


def new_place(name: str) -> str | None:
    """Return where a module is whose name in 0.2.0 was this; None if it was nowhere else."""
    if not name.startswith(_ROOT):
        return None
    parts = name[len(_ROOT) :].split(".")
    for number in range(len(parts), 0, -1):  # of a module and its package, the module's row counts
        home = MOVED.get(".".join(parts[:number]))
        if home is not None:
            return ".".join([_ROOT + home, *parts[number:]])
    return None


def old_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return `__getattr__` of a package for names that it had in 0.2.0.

    Args:
        package: the package's `__name__`.
        homes: what each name is now, from `trio_cogment` on.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].rpartition(".")
        warn_of_old_name(f"{package}.{name}", f"{_ROOT}{homes[name]}")
        return getattr(importlib.import_module(_ROOT + module), attribute)

    return get


class _SameModule:
    """Loads an old name: as the module that has another name now."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the old name's there


class OldPlaces:
    """Finds modules by the names that they had in 0.2.0."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how to import an old name, and warn of it; None for all other names."""
        name = new_place(fullname)
        if name is None:
            return None
        warn_of_old_name(fullname, name)
        loader: Any = _SameModule(name)  # without the base class, as importing `importlib.abc` takes long
        return importlib.machinery.ModuleSpec(fullname, loader, is_package=True)


def warn_of_old_name(old: str, new: str) -> None:
    """Warn at the line that uses a name: below this module, the import system, and what imports on first use."""
    text = f"{old} is {new} now; its old name goes with the next release"
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_NOT_USERS):
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__", "<unknown>")
    warnings.warn_explicit(text, DeprecationWarning, frame.f_code.co_filename, frame.f_lineno, module, registry)


def install() -> None:
    """Let old names be found, before others: what moved with its package lies on the path of the old name, too."""
    sys.meta_path.insert(0, OldPlaces())
