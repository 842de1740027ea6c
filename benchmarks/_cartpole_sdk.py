"""CartPole as an environment or an actor of the published Python SDK: `python _cartpole_sdk.py ROLE`, in its Python.

The role is `environment` or `actor`. It prints its port; the environment then, for each trial, the seconds that a step
took. `_cartpole_peers` generates `cog_settings` and `data_pb2` beside a copy of this file.
"""

import asyncio
import math
import random
import sys
import time
from typing import Any

import cog_settings
import cogment
import data_pb2

STEPS = 600
WARM_STEPS = 100


class CartPole:
    """The dynamics of Gymnasium's CartPole-v1."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]

    def step(self, action: int) -> None:
        x, x_dot, theta, theta_dot = self.state
        cos, sin = math.cos(theta), math.sin(theta)
        temp = ((10.0 if action == 1 else -10.0) + 0.05 * theta_dot**2 * sin) / 1.1
        theta_acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        x_acc = temp - 0.05 * theta_acc * cos / 1.1
        self.state = [x + 0.02 * x_dot, x_dot + 0.02 * x_acc, theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc]
        if abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095:
            self.reset()


async def environment(session: Any) -> None:
    """Step, reward, observe; say how long a step took."""
    game, step, began = CartPole(), 0, 0.0

    def observations() -> Any:
        return [("*", data_pb2.Observation(values=game.state))]

    session.start(observations())
    async for event in session.all_events():
        if not event.actions:
            continue
        step += 1
        if step == WARM_STEPS:
            began = time.perf_counter()
        game.step(event.actions[0].action.number)
        session.add_reward(value=1.0, confidence=1.0, to=["*"])
        if step == WARM_STEPS + STEPS:
            print((time.perf_counter() - began) / STEPS, flush=True)
            session.end(observations())
        else:
            session.produce_observations(observations())


async def actor(session: Any) -> None:
    """Push the cart to the left and to the right by turns."""
    session.start()
    async for event in session.all_events():
        if event.observation is not None and event.type == cogment.EventType.ACTIVE:
            session.do_action(data_pb2.Action(number=event.observation.tick_id & 1))


async def main(role: str) -> None:
    context = cogment.Context(user_id="benchmark", cog_settings=cog_settings)
    if role == "environment":
        context.register_environment(impl=environment, impl_name="cartpole")
    else:
        context.register_actor(impl=actor, impl_name="policy", actor_classes=["player"])
    serving = asyncio.create_task(context.serve_all_registered(cogment.ServedEndpoint(port=0)))
    while not context.served_port and not serving.done():  # noqa: ASYNC110 - the SDK has no event for it
        await asyncio.sleep(0.01)
    print(context.served_port, flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
