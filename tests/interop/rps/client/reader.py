"""Read the trials back and check the games: `python3 -m client.reader DATASTORE COUNT`."""

import asyncio
import sys
from typing import Any

import cog_settings
import cogment
from data_pb2 import NONE, PAPER, ROCK, SCISSORS

BEATEN_BY = {ROCK: PAPER, PAPER: SCISSORS, SCISSORS: ROCK}
#: The trial's parameters say that it ends after 12 steps; the round that is under way then is played, too.
ROUNDS = 13
WRONG_COUNT, WRONG_GAME = 4, 5


def problem(samples: list[Any]) -> str:
    """Say what is wrong with a game, if anything is."""
    if [sample.tick_id for sample in samples] != list(range(ROUNDS + 1)):
        return f"ticks {[sample.tick_id for sample in samples]}"
    last = {"alice": NONE, "bob": NONE}
    for sample in samples:
        data = sample.actors_data
        for name, other in (("alice", "bob"), ("bob", "alice")):
            observed = data[name].observation
            if observed.round != sample.tick_id or observed.them.last_move != last[other]:
                return f"tick {sample.tick_id}: {name} observed {observed}"
        if sample.tick_id == ROUNDS:
            continue
        moves = {name: data[name].action.move for name in last}
        if moves["bob"] != (ROCK if last["alice"] == NONE else BEATEN_BY[last["alice"]]):
            return f"tick {sample.tick_id}: bob played {moves['bob']}"
        for name, other in (("alice", "bob"), ("bob", "alice")):
            won = BEATEN_BY[moves[other]] == moves[name]
            lost = BEATEN_BY[moves[name]] == moves[other]
            if (data[name].reward or 0) != won - lost:
                return f"tick {sample.tick_id}: {name} got {data[name].reward} for {moves}"
        last = moves
    return ""


async def main() -> int:
    context = cogment.Context(user_id="rps", cog_settings=cog_settings)
    datastore = await context.get_datastore(cogment.Endpoint(sys.argv[1]))
    trials = [info async for info in datastore.all_trials()]
    if len(trials) != int(sys.argv[2]):
        print(f"expected {sys.argv[2]} trials, found {len(trials)}", file=sys.stderr)
        return WRONG_COUNT
    for info in trials:
        samples = [sample async for sample in datastore.all_samples([info])]
        if wrong := problem(samples):
            print(f"{info.trial_id}: {wrong}", file=sys.stderr)
            return WRONG_GAME
        print(f"read {info.trial_id}: {len(samples)} samples", flush=True)
    return 0


sys.exit(asyncio.run(main()))
