"""Two players: `python3 -m actors.main PORT`."""

import asyncio
import random
import sys
from typing import Any

import cog_settings
import cogment
from data_pb2 import NONE, PAPER, ROCK, SCISSORS, PlayerAction
from serving import serve

MOVES = (ROCK, PAPER, SCISSORS)
BEATEN_BY = {ROCK: PAPER, PAPER: SCISSORS, SCISSORS: ROCK}


async def random_player(session: Any) -> None:
    session.start()
    async for event in session.all_events():
        if event.observation and event.type == cogment.EventType.ACTIVE:
            session.do_action(PlayerAction(move=random.choice(MOVES)))


async def beats_the_last_move(session: Any) -> None:
    """Make the move that would have won the round before."""
    session.start()
    async for event in session.all_events():
        if event.observation and event.type == cogment.EventType.ACTIVE:
            last = event.observation.observation.them.last_move
            session.do_action(PlayerAction(move=ROCK if last == NONE else BEATEN_BY[last]))


async def main() -> None:
    context = cogment.Context(user_id="rps", cog_settings=cog_settings)
    context.register_actor(impl=random_player, impl_name="random_player", actor_classes=["player"])
    context.register_actor(impl=beats_the_last_move, impl_name="beats_the_last_move", actor_classes=["player"])
    await serve(context, int(sys.argv[1]))


asyncio.run(main())
