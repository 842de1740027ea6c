"""The host of a program: the clock, ids, randomness, connections, files and worker threads.

`Host()` is the system. A simulation gives its programs hosts of its own (`trio_cogment.testing.World.host`), in which
all of this comes from the seed. `files` and `blocking` have the interfaces of files and of blocking work.

The names below are resolved when they are first used: `binding` needs no Trio.
"""

from __future__ import annotations

from trio_cogment.base.lazy_names import lazy_names as _lazy_names

TYPE_CHECKING = False  # as type checkers know it; a server opens its port before it imports `typing`
if TYPE_CHECKING:
    from trio_cogment.base.host._host import Connect as Connect
    from trio_cogment.base.host._host import Host as Host
    from trio_cogment.base.host.blocking import Runner as Runner
    from trio_cogment.base.host.blocking import ThreadRunner as ThreadRunner
    from trio_cogment.base.host.blocking import inline_runner as inline_runner
    from trio_cogment.base.host.blocking import run_inline as run_inline
    from trio_cogment.base.host.files import Files as Files
    from trio_cogment.base.host.files import SystemFiles as SystemFiles
    from trio_cogment.base.host.files import replace_durably as replace_durably

_HOMES = {
    "Connect": "_host",
    "Files": "files",
    "Host": "_host",
    "Runner": "blocking",
    "SystemFiles": "files",
    "ThreadRunner": "blocking",
    "inline_runner": "blocking",
    "replace_durably": "files",
    "run_inline": "blocking",
}

__getattr__, __dir__ = _lazy_names(__name__, globals(), _HOMES)
__all__ = sorted(_HOMES)  # noqa: PLE0605  the names are texts
