"""Orchestrators as actors of Ray, each registered in a directory; trials run at all of them."""

import os
import threading

import trio
from trio_util import periodic

import ray
import trio_cogment.rl as tc
from trio_cogment import open_platform
from trio_cogment.base.services import ServiceKind
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.servers.directory import DirectoryServer
from trio_cogment.servers.discovery import Offer, keep_registered, open_directory

KINDS = (ServiceKind.LIFECYCLE, ServiceKind.CLIENT_ACTOR)


@ray.remote(num_cpus=1, max_restarts=-1)
class Orchestrator:
    def __init__(self, directory: str) -> None:
        threading.Thread(target=trio.run, args=(self._serve, directory), daemon=True).start()

    async def _serve(self, directory: str) -> None:
        address, spec = ray.util.get_node_ip_address(), tc.RL_SPEC
        async with open_platform(spec) as platform, trio.open_nursery() as nursery, open_directory(directory) as at:
            platform.participants.register_environment(tc.environment("CartPole-v1"))
            running = await nursery.start(serve, platform.services, await open_listeners(address))
            await keep_registered(at, [Offer(kind=kind, port=running.port) for kind in KINDS])


async def main(count: int = 2) -> None:
    address = ray.util.get_node_ip_address()
    async with DirectoryServer() as server, open_platform(directory=server) as platform, trio.open_nursery() as nursery:
        running = await nursery.start(serve, platform.services, await open_listeners(address))
        actors = [Orchestrator.remote(f"grpc://{address}:{running.port}") for _ in range(count)]
        async with open_directory(f"grpc://{address}:{running.port}") as at:
            async for _ in periodic(0.1):
                if len(found := await at.inquire(KINDS[0])) == count:
                    break
        on = [f"grpc://{one.endpoint.host}:{one.endpoint.port}" for one in found]
        seats = {"player_0": tc.random(seed=1)}
        results = await tc.run_trials_async(40, on=on, environment="cogment://discover", seats=seats, seeds=0)
        print(f"{len(results)} trials at {len(on)} orchestrators, {len(results.failures)} failed")
        actors.clear()  # Ray ends those that nobody refers to
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    if not ray.is_initialized():
        ray.init(os.environ.get("RAY_ADDRESS") or "local")
    trio.run(main)
