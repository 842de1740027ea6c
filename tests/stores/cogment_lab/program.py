"""A program on cogment-lab as its users write them: CartPole and an actor, each served by a process of cogment-lab.

It plays two trials, and prints what cogment-lab makes of each that a datastore has stored.
"""

import argparse
import asyncio
import json

from cogment_lab.actors.simple import ConstantActor
from cogment_lab.envs.gymnasium import GymEnvironment
from cogment_lab.process_manager import Cogment


async def main(arguments: argparse.Namespace) -> None:
    lab = Cogment(orchestrator_port=arguments.orchestrator, datastore_port=arguments.datastore)
    assert await lab.run_env(GymEnvironment("CartPole-v1"), "cartpole", port=arguments.environment)
    assert await lab.run_actor(ConstantActor(1), "right", port=arguments.actor)
    for seed in (7, 8):
        trial_id = await lab.start_trial(
            "cartpole", {"gym": "right"}, session_config={"seed": seed, "render": False}, trial_name=f"lab-{seed}"
        )
        data = (await lab.get_trial_data(trial_id))["gym"]
        names = ("observations", "actions", "rewards", "done", "next_observations", "last_observation")
        print(json.dumps({"trial_id": trial_id, **{name: getattr(data, name).tolist() for name in names}}), flush=True)
    lab.stop_all_services()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("orchestrator", "datastore", "environment", "actor"):
        parser.add_argument(name, type=int)
    asyncio.run(main(parser.parse_args()))
