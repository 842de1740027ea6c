"""A client on the SDK that takes a seat in one trial after the other: `python player.py ENDPOINT ACTOR RECORD`.

It plays what beats the move that it sees, and writes a line into the record for each observation.
"""

import asyncio
import json
import logging
import struct
import sys
from typing import Any, TextIO

import cog_settings
import cogment
from spaces_pb2 import DTYPE_INT64, Action, Array


def number(value: Array) -> int:
    """Return the number in an observation of a `Discrete` space."""
    (found,) = struct.unpack("<q", value.raw_data)
    return int(found)


def action(chosen: int) -> Action:
    return Action(value=Array(dtype=DTYPE_INT64, raw_data=struct.pack("<q", chosen), scalar=True))


def player(record: TextIO) -> Any:
    async def play(session: Any) -> None:
        moves = 0
        session.start()
        async for event in session.all_events():
            if event.observation is None:
                continue
            seen = event.observation.observation
            if seen.HasField("action_space"):
                moves = seen.action_space.discrete.n
            told = [number(seen.value), seen.reward, seen.active, seen.alive, event.type.name]
            print(json.dumps([session.get_trial_id(), *told]), file=record, flush=True)
            if event.type == cogment.EventType.ACTIVE:
                asked = seen.active and seen.alive
                session.do_action(action((number(seen.value) + 1) % moves) if asked else Action())

    return play


async def main(endpoint: str, actor: str, record: TextIO) -> None:
    context = cogment.Context(user_id="player", cog_settings=cog_settings)
    context.register_actor(impl=player(record), impl_name="player", actor_classes=["player"])
    where = cogment.Endpoint(endpoint)
    controller = context.get_controller(where)
    async for trial in controller.watch_trials(trial_state_filters=[cogment.TrialState.PENDING]):
        await context.join_trial(trial_id=trial.trial_id, endpoint=where, actor_name=actor)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    with open(sys.argv[3], "a", encoding="utf-8") as lines:
        asyncio.run(main(*sys.argv[1:3], lines))
