"""A program that kills exports before each of their steps on the disk, and says what the next reader and export find.

Usage: python -m tests.rl.datasets.killing FOLDER parquet|minari
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# Once, and not in each process that is forked.
import h5py  # noqa: F401  imported to be there
import minari  # noqa: F401  imported to be there
import pyarrow.parquet  # noqa: F401  imported to be there
import trio

import trio_cogment.rl.datasets.minari
import trio_cogment.rl.datasets.minari_recordings
import trio_cogment.rl.datasets.parquet  # noqa: F401  imported to be there
from tests.rl.datasets.recorded import Duel, play, recording
from trio_cogment.base.errors import NotFoundError
from trio_cogment.rl import export, replay_environment

_STEPS = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def kill_before(step: int, root: str) -> None:
    """Kill this process when it is to take this step below a folder."""
    taken = 0

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal taken
        if event in _STEPS and (arguments[-1] != -1 or str(arguments[0]).startswith(root)):
            if taken == step:
                os.kill(os.getpid(), signal.SIGKILL)
            taken += 1

    sys.addaudithook(look)


def forked(run: Callable[[], Any]) -> tuple[int, Any]:
    """Return how a process ended that calls a function, and what that returned."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, json.dumps(run()).encode())
        except BaseException as error:  # noqa: BLE001  the end of the process
            os.write(writing, json.dumps(f"{type(error).__name__}: {error}").encode())
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        found = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), json.loads(found) if found else None


def store(path: str, trials: int) -> None:
    """Store trials of one actor."""

    async def fill() -> None:
        game = Duel(2)
        game.agents = game.agents[:1]
        async with recording(game, store=f"sqlite:{path}") as platform:
            for _ in range(trials):
                await play(platform, game)

    trio.run(fill)


def main() -> None:
    """Kill exports; print what was found, as JSON."""
    folder, kind = Path(sys.argv[1]).resolve(), sys.argv[2]
    root, before = folder / "sets", folder / "before"
    os.environ["MINARI_DATASETS_PATH"] = str(root)
    name = "solo-v0" if kind == "minari" else str(root / "solo-v0")

    def put(which: str) -> None:
        wanted: dict[str, Any] = {kind: name}
        export(f"sqlite:{folder / which}.db", **wanted, overwrite=True)

    def killed(step: int) -> None:
        kill_before(step, str(root))
        put("new")

    def come() -> dict[str, Any]:
        found: dict[str, Any] = {"left": sorted(os.listdir(root))}
        try:
            found["read"] = replay_environment(name).episodes
        except NotFoundError:
            found["read"] = None
        found["there"] = sorted(os.listdir(root))
        put("new")
        return {**found, "at_last": sorted(os.listdir(root)), "episodes": replay_environment(name).episodes}

    for which, trials in (("old", 1), ("new", 2)):
        assert forked(partial(store, str(folder / f"{which}.db"), trials)) == (0, None)
    assert forked(partial(put, "old")) == (0, None)
    root.rename(before)
    results = []
    for replacing in (True, False):
        for step in range(1000):
            shutil.rmtree(root, ignore_errors=True)
            if replacing:
                shutil.copytree(before, root)
            else:
                root.mkdir()
            ended, text = forked(partial(killed, step))
            assert ended in (0, -signal.SIGKILL), text
            code, found = forked(come)
            assert not code, found
            results.append({"replacing": replacing, "step": step, **found})
            if not ended:
                break
    print(json.dumps(results))


main()
