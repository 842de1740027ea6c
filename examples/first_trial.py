"""A first trial: an environment that deals numbers, two actors that add them up. Run it, then change it."""

import random

import trio

from trio_cogment import ActorSession, EnvironmentSession, actor_params, open_platform, trial_params


async def dealer(session: EnvironmentSession) -> None:
    """Deal two numbers per round, and reward everybody who knows their sum."""
    numbers = random.sample(range(10), 2)
    await session.start([("*", bytes(numbers))])
    async for event in session.all_events():
        if event.actions is None:
            continue
        for actor, action in zip(session.actors, event.actions, strict=True):
            right = action.payload[0] == sum(numbers)
            await session.add_reward(float(right), 1.0, actor.name)
        numbers = random.sample(range(10), 2)
        if event.tick_id < 4:
            await session.produce_observations([("*", bytes(numbers))])
        else:
            await session.end([("*", bytes(numbers))])


async def player(session: ActorSession) -> None:
    """Answer each observation with the sum; count the rewards."""
    score = 0.0
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(bytes([sum(event.observation.payload)]))
        elif event.reward is not None:
            score += event.reward.value
    print(f"{session.name} scored {score:g}")


async def main() -> None:
    async with open_platform() as platform:
        platform.participants.register_environment(dealer)
        platform.participants.register_actor(player, "player")
        actors = [actor_params(name, "player") for name in ("ann", "bob")]
        trial_id = await platform.controller.start_trial(trial_params(actors))
        await platform.controller.wait_trial(trial_id)


if __name__ == "__main__":
    trio.run(main)
