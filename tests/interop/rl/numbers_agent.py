"""A service actor on the SDK that plays with numbers: `python numbers_agent.py FOLDER`.

It tells its port in the file `numbers.port`, and writes a line into `numbers.lines` for each observation: the trial,
the tick, what it saw, what it did, and the rewards that came since, each with its tick.
"""

import asyncio
import json
import logging
import struct
import sys
from pathlib import Path
from typing import Any, TextIO

import cog_settings
import cogment
from spaces_pb2 import DTYPE_INT64, Action, Array


def chosen(seen: tuple[int, ...]) -> int:
    return (sum(seen) * 3 + 1) % 10


def agent(lines: TextIO) -> Any:
    async def play(session: Any) -> None:
        session.start()
        rewards: list[list[float]] = []
        async for event in session.all_events():
            rewards.extend([reward.tick_id, reward.value] for reward in event.rewards)
            if event.observation is None:
                continue
            data = event.observation.observation.value.raw_data
            seen = struct.unpack(f"<{len(data) // 8}q", data)
            number = chosen(seen) if event.type == cogment.EventType.ACTIVE else None
            line = [session.get_trial_id(), event.observation.tick_id, seen, number, rewards]
            print(json.dumps(line), file=lines, flush=True)
            rewards = []
            if number is not None:
                value = Array(dtype=DTYPE_INT64, raw_data=struct.pack("<q", number), scalar=True)
                session.do_action(Action(value=value))

    return play


async def main(folder: Path) -> None:
    with (folder / "numbers.lines").open("w") as lines:
        context = cogment.Context(user_id="numbers", cog_settings=cog_settings)
        context.register_actor(impl=agent(lines), impl_name="numbers", actor_classes=["player"])
        serving = asyncio.create_task(context.serve_all_registered(cogment.ServedEndpoint(port=0)))
        while not context.served_port and not serving.done():  # noqa: ASYNC110  the SDK has no event for it
            await asyncio.sleep(0.01)
        file = folder / "numbers.port"
        file.with_suffix(".new").write_text(str(context.served_port))
        file.with_suffix(".new").rename(file)
        await serving


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(Path(sys.argv[1])))
