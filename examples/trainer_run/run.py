"""A run of the trainer: episodes of CartPole as trials, watched while they come."""

import tempfile
from pathlib import Path

import trio

import trio_cogment.rl as tc
from trio_cogment import Participants, open_platform
from trio_cogment.trainer import PlatformTrainer, TrainerClient

CONFIGURATION = Path(__file__).with_name("cartpole.json")


def participants() -> Participants:
    """Return what the run's trials consist of: the environment, and who plays."""
    found = Participants(tc.RL_SPEC)
    found.register_environment(tc.environment("CartPole-v1"), "cartpole")
    found.register_actor(tc.random(seed=1).actor(tc.SeatContext("CartPole-v1", "player_0")), "random", ["player"])
    return found


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_platform(participants(), store="memory:", extensions=[PlatformTrainer(folder)]) as platform:
            trainer = TrainerClient(platform.channel)
            run_id = await trainer.submit(CONFIGURATION.read_text())
            rewards = []
            async with trainer.episodes(run_id) as episodes:
                async for episode in episodes:
                    rewards.append(episode.total_reward)
            record = await trainer.run(run_id)
            print(f"{record.run_name}: {record.outcome}, {len(rewards)} episodes")
            print(f"steps: {' '.join(f'{reward:g}' for reward in rewards)}")


if __name__ == "__main__":
    trio.run(main)
