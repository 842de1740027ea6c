"""Workers for tests, as programs of Python, and runs of them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests.trainer.bench import Client, serving
from trio_cogment.access import AccessControl
from trio_cogment.base.config import WorkersConfig
from trio_cogment.base.host.processes import processes
from trio_cogment.trainer import Trainer
from trio_cogment.trainer.dispatch.admission import Capacity
from trio_cogment.trainer.dispatch.command import Surroundings
from trio_cogment.trainer.dispatch.dispatcher import RunDispatcher
from trio_cogment.trainer.dispatch.workers import Workers

#: Writes two steps and an episode.
WRITES = """
import json
for step in range(2):
    print(json.dumps({"type": "step", "step": step, "reward": 1.0, "action": [step]}))
print("hello")
print(json.dumps({"type": "episode", "total_reward": 2.0, "steps": 2}))
"""
#: Ignores SIGTERM, as do its child, its child in another group, and a grandchild; then says that all are there.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
read, write = os.pipe()
if os.fork() == 0:
    os.fork()
    os.write(write, b"x")
    time.sleep(600)
if os.fork() == 0:
    os.setsid()
    os.write(write, b"x")
    time.sleep(600)
count = 0
while count < 3:
    count += len(os.read(read, 3))
print('{"event": "run_started"}')
time.sleep(600)
"""
SLEEPS = 'import time; print(\'{"event": "run_started"}\'); time.sleep(600)'


def program(text: str, *arguments: str, **changes: Any) -> dict[str, Any]:
    """Return the changes of a configuration that make it run a program."""
    return {"entry_point": "python", "arguments": ["-c", text, *arguments], **changes}


@asynccontextmanager
async def dispatching(
    folder: Path,
    *,
    storage: str = "memory:",
    capacity: Capacity | None = None,
    access: AccessControl | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Client, Trainer, RunDispatcher]]:
    names = WorkersConfig.__dataclass_fields__
    config = WorkersConfig(**{name: value for name, value in settings.items() if name in names})
    others = {name: value for name, value in settings.items() if name not in names}
    workers = Workers(str(folder), Surroundings(), config, access=access)
    capacity = capacity or Capacity(cpus=100, memory_mb=100_000, gpus=(0, 1))
    async with (
        RunDispatcher(capacity, workers=workers) as dispatcher,
        serving(storage, dispatcher, **others) as (client, trainer),
    ):
        with trio.fail_after(60):
            yield client, trainer, dispatcher


async def until(client: Client, run_id: str, *wanted: str) -> str:
    """Wait until a run is in one of these states; return which."""
    with trio.fail_after(20):
        async with client.watch() as call:
            while (status := await client.status(run_id)) not in wanted:
                await call.receive()
    return status


def marked_by(mark: str) -> list[int]:
    """Return the processes that have a text in their command line."""
    found = []
    for process in processes() or ():
        try:
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in line and not process.ended and process.pid != os.getpid():
            found.append(process.pid)
    return found
