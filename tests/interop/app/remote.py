"""A controller, and client actors, on a string: `python remote.py --records FOLDER --name NAME ...`.

Each line on stdin is one order, as JSON with its `number` and what to `do`; the answer is written to
`<NAME>.<number>.answer.json`. Orders are carried out side by side. Without URLs the orchestrator is discovered.
"""

import argparse
import asyncio
import json
import logging
import os
import sys
from typing import Any

import cog_settings
import cogment
import data_pb2
import grpc
import players
from connecting import add_options, connecting, endpoint
from google.protobuf.json_format import ParseDict
from parameters import build
from recording import save


def told(info: Any) -> dict[str, Any]:
    return {
        "trial": info.trial_id,
        "state": info.state.name,
        "env_name": info.env_name,
        "tick": info.tick_id,
        "properties": None if info.properties is None else dict(info.properties),
        "duration": info.duration,
    }


class Remote:
    """Carries out orders; each method is one, and returns its answer."""

    def __init__(self, context: Any, controller: Any, actors: Any) -> None:
        self._context = context
        self._controller = controller
        self._actors = actors
        self._watched: dict[str, list[Any]] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Condition()

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
        self._watched[name] = []

        async def run() -> None:
            async for info in stream:
                self._watched[name].append(told(info))
                async with self._news:
                    self._news.notify_all()

        self._watches[name] = asyncio.create_task(run())

    async def watched(self, name: str, until: list[list[str]]) -> Any:
        """Wait for these trials in these states, and return all that was seen."""
        wanted = {(trial, state) for trial, state in until}
        async with self._news:
            await self._news.wait_for(
                lambda: wanted <= {(entry["trial"], entry["state"]) for entry in self._watched[name]}
            )
        return self._watched[name]

    def stop(self) -> None:
        for task in self._watches.values():
            task.cancel()


async def carry_out(remote: Remote, order: dict[str, Any], folder: str, name: str) -> None:
    number = order.pop("number")
    try:
        answer = {"done": await getattr(remote, order.pop("do"))(**order)}
    except grpc.aio.AioRpcError as error:
        answer = {"error": error.code().name, "text": error.details()}
    except cogment.CogmentError as error:
        answer = {"error": "CogmentError", "text": str(error)}
    save(os.path.join(folder, f"{name}.{number}.answer.json"), answer)


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
    remote = Remote(context, controller, actors)

    orders = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    tasks = set()
    while line := await orders.readline():
        tasks.add(asyncio.create_task(carry_out(remote, json.loads(line), args.records, args.name)))
    remote.stop()
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
