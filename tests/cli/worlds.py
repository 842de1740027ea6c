"""A process that serves an environment and registers it: `python -m tests.cli.worlds grpc://directory:9005 NAME`.

The environment sends its name in the first observation, which is the last one too.
"""

from __future__ import annotations

import sys
from functools import partial

import trio

from trio_cogment.sdk import EnvironmentSession, Participants, serve_participants
from trio_cogment.servers.discovery import open_directory


async def world(name: str, session: EnvironmentSession) -> None:
    await session.start([("*", name.encode())])
    async for event in session.all_events():
        if event.actions is not None:
            await session.end([("*", name.encode())])


async def main(endpoint: str, name: str) -> None:
    participants = Participants()
    participants.register_environment(partial(world, name))
    async with open_directory(endpoint) as directory:
        await serve_participants(participants, address="127.0.0.1", directory=directory)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
