"""A registry as a process of its own: `python -m tests.servers.model_registry.serve ROOT` prints its port."""

from __future__ import annotations

import sys

import trio

from trio_cogment.rpc import RunningServer, open_listeners, serve
from trio_cogment.servers.model_registry import ModelRegistry, model_registry_services


async def main(root: str) -> None:
    async with ModelRegistry(root) as registry, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)

        async def run(*, task_status: trio.TaskStatus[RunningServer]) -> None:
            await serve(model_registry_services(registry), listeners, task_status=task_status)

        serving = await nursery.start(run)
        print(serving.port, flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
