"""Start a trial at the orchestrator, and wait for its end: `python start.py grpc://localhost:9000`."""

import sys

import trio

from trio_cogment import actor_params, connect, trial_params
from trio_cogment.sdk.spec import load_spec


async def main(orchestrator: str, participants: str) -> None:
    spec = load_spec()
    actors = [
        actor_params("ann", "player", implementation="takes_turns", endpoint=participants),
        actor_params("bob", "player", implementation="beats_the_last_move", endpoint=participants),
    ]
    params = trial_params(
        actors,
        environment="match",
        environment_endpoint=participants,
        environment_config=spec.message("rps.Match")(rounds=9),
        spec=spec,
    )
    async with connect(orchestrator, spec=spec) as client:
        controller = await client.controller()
        outcome = await controller.wait_trial(await controller.start_trial(params))
        print(f"ended by: {outcome.cause.label}, after {outcome.ticks} ticks")


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
