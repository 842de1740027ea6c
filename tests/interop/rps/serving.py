"""Serve what a context has registered, and say so."""

import asyncio
from typing import Any

import cogment


async def serve(context: Any, port: int) -> None:
    task = asyncio.create_task(context.serve_all_registered(cogment.ServedEndpoint(port=port)))
    while not context.served_port and not task.done():  # noqa: ASYNC110 - the SDK has no event for it
        await asyncio.sleep(0.01)
    print(f"serving on {context.served_port}", flush=True)
    await task
