"""One program that does what a test-suite on the SDK does: `python suite.py --records FOLDER ...`.

It serves the environment, the actors and the hook, and is the controller, in one process. It waits for the letters of
the orchestrator's status file, as such a suite does, and for the directory's port: a trial runs, is read back from the
datastore, and a model goes to the registry and comes back, found through the directory. The registry may still be
starting when the directory is asked for it.
"""

import argparse
import asyncio
import logging
import os
from typing import Any

import cog_settings
import cogment
import data_pb2
from recording import save

LAST_TICK = 3


async def environment(session: Any) -> None:
    step = 0
    session.start([("*", data_pb2.PlayerObservation(step=step))])
    async for event in session.all_events():
        if not event.actions:
            continue
        step += 1
        observations = [("*", data_pb2.PlayerObservation(step=step))]
        if step == LAST_TICK:
            session.end(observations)
        else:
            session.produce_observations(observations)


async def actor(session: Any) -> None:
    session.start()
    async for event in session.all_events():
        if event.observation is not None and event.type == cogment.EventType.ACTIVE:
            session.do_action(data_pb2.PlayerAction(number=event.observation.tick_id))


async def hook(session: Any) -> None:
    session.trial_parameters.properties = {"made_by": "hook"}


async def use_datastore(endpoint: str, trial: str) -> list[int]:
    context = cogment.Context(user_id="suite", cog_settings=cog_settings)
    datastore = context.get_datastore(cogment.Endpoint(endpoint))
    infos = [info async for info in datastore.all_trials(wait_for_trials=60, ids=[trial])]
    return [sample.tick_id async for sample in datastore.all_samples(infos)]


async def use_registry(directory: str) -> str:
    """Store a model and read it back; the directory is asked once, as soon as it accepts connections."""
    host, _, port = directory.removeprefix("grpc://").partition(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            break
    context = cogment.Context(
        user_id="suite", cog_settings=cog_settings, directory_endpoint=cogment.Endpoint(directory)
    )
    registry = await context.get_model_registry_v2()
    await registry.store_model(name="pilot", model=b"a model")
    return (await registry.retrieve_model("pilot")).decode()


async def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("records", "status", "orchestrator", "datastore", "directory"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()

    context = cogment.Context(user_id="suite", cog_settings=cog_settings)
    context.register_environment(impl=environment)
    context.register_actor(impl=actor, impl_name="player", actor_classes=["player"])
    context.register_pre_trial_hook(impl=hook)
    serving = asyncio.create_task(context.serve_all_registered(cogment.ServedEndpoint(port=args.port)))

    model = asyncio.create_task(use_registry(args.directory))
    letters = await asyncio.to_thread(wait_for_ready, args.status)
    controller = context.get_controller(cogment.Endpoint(args.orchestrator))
    trial = await controller.start_trial(trial_config=data_pb2.TrialConfig())
    async for info in controller.watch_trials(trial_state_filters=[cogment.TrialState.ENDED]):
        if info.trial_id == trial:
            break
    properties = [dict(info.properties) for info in await controller.get_trial_info([trial])]
    ticks = await use_datastore(args.datastore, trial)
    story = {"letters": letters, "properties": properties, "ticks": ticks, "model": await model}
    save(os.path.join(args.records, "suite.json"), story)
    serving.cancel()


def wait_for_ready(path: str) -> str:
    """Return the first two letters of the status file, which is a FIFO."""
    with open(path) as status:
        return status.read(1) + status.read(1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
