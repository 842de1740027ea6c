"""Serve what a context has registered, and tell on which port."""

import asyncio
from typing import Any

import cogment
from recording import save


async def serve(context: Any, port_file: str, endpoint: Any = None) -> None:
    endpoint = endpoint or cogment.ServedEndpoint(port=0)
    # The host matters only where there is a directory to register at.
    serving = asyncio.create_task(context.serve_all_registered(endpoint, directory_registration_host="127.0.0.1"))
    while not context.served_port and not serving.done():  # noqa: ASYNC110 - the SDK has no event for it
        await asyncio.sleep(0.01)
    save(port_file, context.served_port)
    await serving
