"""Orders that a program gets: lines of JSON on stdin, each with its `number` and what to `do`.

They are carried out side by side; the answer is written to `<NAME>.<number>.answer.json`.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
from recording import save


class Servant:
    """Carries out orders; each public method of a subclass is one, and returns its answer."""

    def __init__(self) -> None:
        self._seen: dict[str, list[Any]] = {}
        self._errors: dict[str, dict[str, str] | None] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Condition()

    def _follow(self, name: str, stream: AsyncIterator[Any]) -> None:
        """Write down in the background what a stream yields, and how it ended."""
        self._seen[name] = []

        async def run() -> None:
            error = None
            try:
                async for entry in stream:
                    self._seen[name].append(entry)
                    await self._tell()
            except Exception as caught:  # noqa: BLE001 - whatever it is, it is told
                error = _error_of(caught)
            self._errors[name] = error
            await self._tell()

        self._tasks[name] = asyncio.create_task(run())

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _wait_for(self, condition: Any) -> None:
        async with self._news:
            await self._news.wait_for(condition)

    async def followed(self, name: str, least: int | None = None) -> Any:
        """Wait until a stream has yielded at least this many, or has ended."""

        def enough() -> bool:
            return name in self._errors or (least is not None and len(self._seen[name]) >= least)

        await self._wait_for(enough)
        return {"seen": self._seen[name], "over": name in self._errors, "error": self._errors.get(name)}

    def stop(self) -> None:
        """Give up what is followed."""
        for task in self._tasks.values():
            task.cancel()


async def serve_orders(servant: Servant, folder: str, name: str) -> None:
    """Carry out orders until there are no more."""
    orders = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    tasks = set()
    while line := await orders.readline():
        tasks.add(asyncio.create_task(_carry_out(servant, json.loads(line), folder, name)))
    servant.stop()
    await asyncio.gather(*tasks)


async def _carry_out(servant: Servant, order: dict[str, Any], folder: str, name: str) -> None:
    number = order.pop("number")
    try:
        answer = {"done": await getattr(servant, order.pop("do"))(**order)}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        answer = _error_of(error)
    save(os.path.join(folder, f"{name}.{number}.answer.json"), answer)


def _error_of(error: Exception) -> dict[str, str]:
    if isinstance(error, grpc.aio.AioRpcError):
        return {"error": error.code().name, "text": error.details()}
    return {"error": type(error).__name__, "text": str(error)}
