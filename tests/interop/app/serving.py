"""Serve what a context has registered, and tell on which port."""

import asyncio
from typing import Any

import cogment
from recording import save


async def serve(context: Any, port_file: str) -> None:
    serving = asyncio.create_task(context.serve_all_registered(cogment.ServedEndpoint(port=0)))
    while not context.served_port and not serving.done():  # noqa: ASYNC110 - the SDK has no event for it
        await asyncio.sleep(0.01)
    save(port_file, context.served_port)
    await serving
