"""An environment, an actor and a controller on the published SDK, at an orchestrator of trio-cogment.

`python trial.py [ORCHESTRATOR]`, where that is `grpc://localhost:9000` by default.
"""

import asyncio
import sys

import cog_settings
import cogment
from counting_pb2 import Limit, Step, Total


async def adding(session):
    """Add what the actors say, until there is enough."""
    total = 0
    session.start([("*", Total(total=total))])
    async for event in session.all_events():
        if not event.actions:
            continue
        total += sum(action.action.number for action in event.actions)
        session.add_reward(value=1.0, confidence=1.0, to=["*"])
        seen = [("*", Total(total=total))]
        if total >= session.config.total:
            session.end(seen)
        else:
            session.produce_observations(seen)


async def counter(session):
    """Say 1, then 2, and so on."""
    number = 0
    session.start()
    async for event in session.all_events():
        if event.observation and event.type == cogment.EventType.ACTIVE:
            number += 1
            session.do_action(Step(number=number))
        elif event.observation:
            print(f"{session.name}: the total is {event.observation.observation.total}", flush=True)


async def main(orchestrator):
    context = cogment.Context(user_id="example", cog_settings=cog_settings)
    context.register_environment(impl=adding, impl_name="adding")
    context.register_actor(impl=counter, impl_name="counter", actor_classes=["counter"])
    serving = asyncio.create_task(context.serve_all_registered(cogment.ServedEndpoint(port=0)))
    while not context.served_port:  # noqa: ASYNC110 - the SDK has no event for it
        await asyncio.sleep(0.01)
    here = f"grpc://localhost:{context.served_port}"
    ann = cogment.ActorParameters(cog_settings, class_name="counter", name="ann", endpoint=here)
    parameters = cogment.TrialParameters(
        cog_settings,
        environment_endpoint=here,
        environment_implementation="adding",
        environment_config=Limit(total=20),
        actors=[ann],
    )
    controller = context.get_controller(cogment.Endpoint(orchestrator))
    trial_id = await controller.start_trial(trial_params=parameters)
    async for info in controller.watch_trials(trial_state_filters=[cogment.TrialState.ENDED]):
        if info.trial_id == trial_id:
            break
    print("the trial has ended")
    # The calls of the trial end a moment after it. The SDK has no method that waits for them and stops its server.
    await context._grpc_server.stop(grace=5)
    await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "grpc://localhost:9000"))
