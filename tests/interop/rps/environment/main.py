"""The game: `python3 -m environment.main PORT`. Each round both players make a move; who wins gets a reward."""

import asyncio
import sys
from typing import Any

import cog_settings
import cogment
from data_pb2 import PAPER, ROCK, SCISSORS, Observation, PlayerState
from serving import serve

BEATEN_BY = {ROCK: PAPER, PAPER: SCISSORS, SCISSORS: ROCK}


async def game(session: Any) -> None:
    first, second = (actor.actor_name for actor in session.get_active_actors())
    states = {first: PlayerState(), second: PlayerState()}
    others = {first: second, second: first}
    played = 0

    def observations() -> list[tuple[str, Any]]:
        return [
            (name, Observation(round=played, me=states[name], them=states[other])) for name, other in others.items()
        ]

    session.start(observations())
    async for event in session.all_events():
        if not event.actions:
            continue
        moves = dict(zip((first, second), (action.action.move for action in event.actions), strict=True))
        for name, other in others.items():
            won = BEATEN_BY[moves[other]] == moves[name]
            states[name] = PlayerState(last_move=moves[name], won_last=won)
            if won:
                session.add_reward(value=1, confidence=1, to=[name])
                session.add_reward(value=-1, confidence=1, to=[other])
        played += 1
        if event.type == cogment.EventType.ENDING:
            session.end(observations())
        else:
            session.produce_observations(observations())


async def main() -> None:
    context = cogment.Context(user_id="rps", cog_settings=cog_settings)
    context.register_environment(impl=game)
    await serve(context, int(sys.argv[1]))


asyncio.run(main())
