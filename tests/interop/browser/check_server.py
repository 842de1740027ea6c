"""The services of the conformance kit, for clients that are not Python: `python -m tests.interop.browser.check_server`.

Prints its port, and ends with its standard input.
"""

from __future__ import annotations

import sys
from functools import partial

import trio

from trio_cogment.rpc import open_listeners, serve
from trio_cogment.testing.conformance.channel import CheckService
from trio_cogment.web import WebSide


async def main() -> None:
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        serving = await nursery.start(partial(serve, web=WebSide()), [CheckService().service()], listeners)
        print(serving.port, flush=True)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        await serving.drain(1)


if __name__ == "__main__":
    trio.run(main)
