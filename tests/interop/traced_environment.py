"""An environment of our SDK with tracing: `python traced_environment.py ENDPOINT`."""

from __future__ import annotations

import sys

import trio

from trio_cogment.base.config import TracingConfig
from trio_cogment.base.tracing import open_tracing
from trio_cogment.sdk import EnvironmentSession, Participants, run_participants

TICKS = 5


async def field(session: EnvironmentSession) -> None:
    await session.start([("*", b"")])
    async for event in session.all_events():
        if event.actions:
            await (session.end if session.tick_id >= TICKS else session.produce_observations)([("*", b"")])


async def main(endpoint: str) -> None:
    participants = Participants()
    participants.register_environment(field)
    async with open_tracing(TracingConfig(endpoint=endpoint, flush_seconds=10.0), service="our-environment"):
        await run_participants(participants, port=0, address="127.0.0.1", variables={})


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
