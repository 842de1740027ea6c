"""A platform for pages: an environment that counts, one client actor; `python -m tests.interop.browser.server`.

Prints its port when it serves, and what it has seen of each trial when it ends with its standard input. With --tokens
it asks for them, and prints an operator's after the port.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial

import trio

from trio_cogment import EnvironmentSession, actor_params, open_platform, trial_params
from trio_cogment.access import AccessControl, Grant, Keys, Role, Rules
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.host import Host
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.web import WebSide

seen: list[dict[str, object]] = []


async def counter(session: EnvironmentSession) -> None:
    """Count ticks, reward each action, and send each message back."""
    record: dict[str, object] = {"actions": 0, "messages": 0, "details": None}
    seen.append(record)
    actions = messages = 0
    await session.start([("*", b"\x00")])
    async for event in session.all_events():
        if event.message is not None:
            messages += 1
            await session.send_message(event.message.payload, ["web"])
        if event.actions is not None:
            actions += 1
            await session.add_reward(1.0, 1.0, "web")
            await session.produce_observations([("*", bytes([(event.tick_id + 1) % 256]))])
    record |= {"actions": actions, "messages": messages, "details": session.details}


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", action="store_true")
    arguments = parser.parse_args()
    host = Host()
    access = AccessControl(Rules(keys=Keys((bytes(32),))), wall_clock=host.wall_clock, new_id=host.new_id)
    params = trial_params([actor_params("web", "player", endpoint="cogment://client")])
    async with open_platform(config=PlatformConfig(default_params=params)) as platform:
        platform.participants.register_environment(counter)
        served = partial(serve, web=WebSide(), access=access if arguments.tokens else None)
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")
            serving = await nursery.start(served, platform.services, listeners)
            print(serving.port, flush=True)
            if arguments.tokens:
                print(access.mint(Grant(name="ann", roles=frozenset([Role.OPERATOR])), 3600, ()), flush=True)
            await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
            await platform.stop()
            await serving.drain(2)
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    trio.run(main)
