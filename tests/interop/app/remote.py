"""A controller, and client actors, on a string: `python remote.py --records FOLDER --name NAME ...`.

It takes orders, see orders.py. Without URLs the orchestrator is discovered.
"""

import argparse
import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import cog_settings
import cogment
import data_pb2
import players
from connecting import add_options, connecting, endpoint
from google.protobuf.json_format import ParseDict
from orders import Servant, serve_orders
from parameters import build


def told(info: Any) -> dict[str, Any]:
    return {
        "trial": info.trial_id,
        "state": info.state.name,
        "env_name": info.env_name,
        "tick": info.tick_id,
        "properties": None if info.properties is None else dict(info.properties),
        "duration": info.duration,
    }


class Remote(Servant):
    """Starts, watches, ends and joins trials."""

    def __init__(self, context: Any, controller: Any, actors: Any) -> None:
        super().__init__()
        self._context = context
        self._controller = controller
        self._actors = actors

    async def start(
        self, trial: str | None = None, parameters: dict[str, Any] | None = None, config: dict[str, Any] | None = None
    ) -> Any:
        return await self._controller.start_trial(
            trial_config=None if config is None else ParseDict(config, data_pb2.TrialConfig()),
            trial_params=None if parameters is None else build(parameters),
            trial_id_requested=trial,
        )

    async def terminate(self, trials: list[str], hard: bool = False) -> None:
        await self._controller.terminate_trial(trials, hard=hard)

    async def info(self, trials: list[str]) -> Any:
        return [told(info) for info in await self._controller.get_trial_info(trials)]

    async def actors(self, trial: str) -> Any:
        return [[actor.actor_name, actor.actor_class_name] for actor in await self._controller.get_actors(trial)]

    async def versions(self) -> Any:
        return await self._controller.get_remote_versions()

    async def join(self, trial: str, actor_name: str | None = None, actor_class: str | None = None) -> None:
        await self._context.join_trial(
            trial_id=trial, endpoint=self._actors, actor_name=actor_name, actor_class=actor_class
        )

    async def watch(self, name: str, states: list[str], full_info: bool = False) -> None:
        """Watch in the background; the SDK does not tell when that has begun."""
        stream = self._controller.watch_trials([cogment.TrialState[state] for state in states], full_info=full_info)

        async def entries() -> AsyncIterator[Any]:
            async for info in stream:
                yield told(info)

        self._follow(name, entries())

    async def watched(self, name: str, until: list[list[str]]) -> Any:
        """Wait for these trials in these states, and return all that was seen."""
        wanted = {(trial, state) for trial, state in until}
        await self._wait_for(lambda: wanted <= {(entry["trial"], entry["state"]) for entry in self._seen[name]})
        return self._seen[name]


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--lifecycle")
    parser.add_argument("--actors")
    add_options(parser)
    args = parser.parse_args()

    context = cogment.Context(user_id=args.name, cog_settings=cog_settings, **connecting(args))
    context.register_actor(impl=players.actor(args.records), impl_name="scripted", actor_classes=["player", "referee"])
    controller = await context.get_controller(endpoint(args, *([args.lifecycle] if args.lifecycle else [])))
    actors = endpoint(args, *([args.actors] if args.actors else []))
    await serve_orders(Remote(context, controller, actors), args.records, args.name)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
