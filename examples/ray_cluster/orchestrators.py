"""Orchestrators as actors of Ray, each registered in a directory; trials run at all of them."""

import os
import threading

import trio

import ray
import trio_cogment.rl as tc
from trio_cogment import open_platform
from trio_cogment.base.services import ServiceKind
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.servers.directory import DirectoryServer, directory_services
from trio_cogment.servers.discovery import Offer, keep_registered, open_directory


@ray.remote(num_cpus=1, max_restarts=-1)
class Orchestrator:
    def __init__(self, directory: str) -> None:
        threading.Thread(target=trio.run, args=(self._serve, directory), daemon=True).start()

    async def _serve(self, directory: str) -> None:
        async with open_platform(tc.RL_SPEC) as platform, trio.open_nursery() as tasks, open_directory(directory) as at:
            platform.participants.register_environment(tc.environment("CartPole-v1"))
            listeners = await open_listeners(ray.util.get_node_ip_address())
            running = await tasks.start(serve, platform.services, listeners)
            await keep_registered(at, [Offer(kind=ServiceKind.LIFECYCLE, port=running.port)])


async def main(count: int = 2, start_seconds: float = 120) -> None:
    listeners = await open_listeners(address := ray.util.get_node_ip_address())
    async with DirectoryServer() as server, trio.open_nursery() as nursery:
        directory = f"grpc://{address}:{(await nursery.start(serve, directory_services(server), listeners)).port}"
        actors = [Orchestrator.remote(directory) for _ in range(count)]
        async with open_directory(directory) as at:
            with trio.fail_after(start_seconds):  # longer, if the cluster has no processor for one
                while len(found := await at.find_all(ServiceKind.LIFECYCLE)) < count:  # noqa: ASYNC110  they start
                    await trio.sleep(0.1)
        on, seats = [str(one.endpoint) for one in found], {"player_0": tc.random(seed=1)}
        results = await tc.run_trials_async(40, on=on, environment="cogment://discover", seats=seats, seeds=0)
        print(f"{len(results)} trials at {len(on)} orchestrators, {len(results.failures)} failed")
        actors.clear()  # Ray ends those that nobody refers to
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    ray.init(os.environ.get("RAY_ADDRESS") or "local")
    trio.run(main)
