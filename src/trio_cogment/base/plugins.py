"""Plugins: environments, actors and storages of trials that other installed packages offer, found by name.

A package offers them as entry points (Python packaging guide, "Entry points specification") in one of three groups:

```toml
[project.entry-points."trio_cogment.environments"]   # async def maze(session: EnvironmentSession) -> None
maze = "maze_package.environment:maze"

[project.entry-points."trio_cogment.actors"]         # async def walker(session: ActorSession) -> None
walker = "maze_package.actors:walker"

[project.entry-points."trio_cogment.stores"]         # a StoreOpener; the name is the scheme of addresses
mariadb = "trio_cogment_mariadb:open_store"
```

Nothing of a package is imported before one of its plugins is used for the first time. A plugin that cannot be loaded
concerns only who asked for it.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from trio_cogment.base.errors import CogmentError, FailedPreconditionError, NotFoundError
from trio_cogment.base.host import Host

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENVIRONMENTS = "trio_cogment.environments"
ACTORS = "trio_cogment.actors"
STORES = "trio_cogment.stores"

#: A URI scheme (RFC 3986, section 3.1), which is also how a name of a storage looks.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")

_log = logging.getLogger(__name__)


class StoreOpener(Protocol):
    """What an entry point in the group `trio_cogment.stores` refers to."""

    def __call__(self, address: str, *, durability: str, host: Host) -> AbstractAsyncContextManager[Any]:
        """Return a context manager that opens a `trio_cogment.servers.datastore.TrialStore`.

        Args:
            address: the whole address, with its scheme.
            durability: one of the datastore's `DURABILITIES`; raise `InvalidArgumentError` for one that
                the storage does not have.
            host: runs what blocks.
        """


class PluginError(FailedPreconditionError):
    """A plugin cannot be loaded; the text names its package and entry point, and the log has the traceback."""


def installed(group: str) -> list[str]:
    """Return the names of the plugins in a group, sorted; nothing is imported."""
    return sorted(_entry_points(group, tuple(sys.path)))


def implementation(group: str, name: str, host: Host | None = None) -> Callable[[Any], Awaitable[None]] | None:
    """Return an environment or actor that a plugin implements; None if there is no plugin of that name.

    The plugin is imported in a worker thread when the first session begins, so that an import that takes its time
    delays no other trial.

    Args:
        group: `ENVIRONMENTS` or `ACTORS`.
        name: the name of the entry point.
        host: has the worker thread; by default the system.

    The implementation that is returned raises `PluginError` if the plugin cannot be loaded.
    """
    found = _entry_points(group, tuple(sys.path)).get(name)
    if found is None:
        return None
    run_blocking = (host or Host()).runner(1)

    async def run(session: Any) -> None:
        loaded = await run_blocking(_load, group, found)
        await loaded(session)

    return run


def environment(name: str, host: Host | None = None) -> Callable[[Any], Awaitable[None]]:
    """Return an environment that a plugin implements, to be registered; see `implementation`.

    Raises:
        NotFoundError: there is no such plugin; the text lists those that are installed.
    """
    return _existing(ENVIRONMENTS, name, host)


def actor(name: str, host: Host | None = None) -> Callable[[Any], Awaitable[None]]:
    """Return an actor that a plugin implements, to be registered; see `implementation`.

    Raises:
        NotFoundError: there is no such plugin; the text lists those that are installed.
    """
    return _existing(ACTORS, name, host)


async def store_opener(address: str, host: Host) -> StoreOpener | None:
    """Return what opens the storages of an address's scheme; None if no installed plugin does.

    Raises:
        PluginError: the plugin cannot be loaded.
    """
    scheme = scheme_of(address)
    found = _entry_points(STORES, tuple(sys.path)).get(scheme)
    if found is None:
        return None
    opener: StoreOpener = await host.runner(1)(_load, STORES, found)
    return opener


def scheme_of(address: str) -> str:
    """Return the scheme of an address, in small letters; empty if it has none."""
    scheme, colon, _ = address.partition(":")
    return scheme.lower() if colon and _SCHEME.fullmatch(scheme) else ""


def _existing(group: str, name: str, host: Host | None) -> Callable[[Any], Awaitable[None]]:
    found = implementation(group, name, host)
    if found is None:
        known = ", ".join(installed(group)) or "none"
        raise NotFoundError(f"no installed package has an entry point {name!r} in {group}; installed: {known}")
    return found


@lru_cache(maxsize=16)
def _entry_points(group: str, _path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Return the entry points of a group by name; more than one if packages compete.

    Reading the metadata of all packages takes milliseconds: it is done once for each `sys.path`.
    """
    from importlib.metadata import entry_points  # imports `email` and more; most programs have no plugins

    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=group):
        name = entry.name.lower() if group == STORES else entry.name
        # A package that is on the path twice is not competition to itself.
        if entry not in found.setdefault(name, []):
            found[name].append(entry)
    return found


def _load(group: str, entries: list[EntryPoint]) -> Any:
    entry = entries[0]
    if len(entries) > 1:
        places = ", ".join(_described(other) for other in entries)
        raise PluginError(
            f"plugin {entry.name!r} of {group}: several packages have it: {places}; uninstall all but one"
        )
    where = f"plugin {entry.name!r} of {group} ({_described(entry)})"
    try:
        loaded = entry.load()
    except CogmentError:
        raise
    except Exception as error:
        _log.exception("%s cannot be loaded", where)
        raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(loaded):
        raise PluginError(f"{where}: expected a function, got {type(loaded).__name__}")
    return loaded


def _described(entry: EntryPoint) -> str:
    package = "unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
    return f"{package}, entry point {entry.value}"
