"""The environment and the pre-trial hook: `python environment.py --records FOLDER --port-file FILE --actors URL`."""

import argparse
import asyncio
import logging
import os
from typing import Any

import cog_settings
import cogment
import data_pb2
from recording import Record, save
from serving import serve


def field(folder: str) -> Any:
    """An environment that counts, rewards every actor and writes to all of them at each step."""

    async def impl(session: Any) -> None:
        actors = [[actor.actor_name, actor.actor_class_name] for actor in session.get_active_actors()]
        record = Record(folder, session.get_trial_id(), session.name, actors=actors, last_tick=session.config.last_tick)
        step = 0

        def observations() -> list[tuple[str, Any]]:
            return [
                ("player.*", data_pb2.PlayerObservation(step=step)),
                ("referee.*", data_pb2.RefereeObservation(step=step, strict=True)),
            ]

        session.start(observations())
        async for event in session.all_events():
            record.add(event)
            if not event.actions:
                continue
            session.add_reward(value=2.0, confidence=1.0, to=["*"], user_data=data_pb2.Note(text=f"step {step}"))
            session.send_message(data_pb2.Note(text=f"step {step} is over"), to=["*"])
            step += 1
            if event.type == cogment.EventType.ENDING or step == session.config.last_tick:
                session.end(observations())
            else:
                session.produce_observations(observations())
        record.save()

    return impl


def hook(folder: str, context: Any, actors: str) -> Any:
    """A hook that makes the whole of the parameters from the trial's config."""

    async def impl(session: Any) -> None:
        parameters = session.trial_parameters
        last_tick = parameters.config.last_tick
        parameters.properties = {"made_by": "hook"}
        parameters.environment_name = "field"
        parameters.environment_endpoint = f"grpc://127.0.0.1:{context.served_port}"
        parameters.environment_implementation = "field_impl"
        parameters.environment_config = data_pb2.FieldConfig(last_tick=last_tick)
        ann = cogment.ActorParameters(
            cog_settings,
            class_name="player",
            name="ann",
            endpoint=actors,
            implementation="counter",
            config=data_pb2.PlayerConfig(bonus=100),
        )
        rob = cogment.ActorParameters(
            cog_settings, class_name="referee", name="rob", endpoint=actors, implementation="whistle"
        )
        cleo = cogment.ActorParameters(
            cog_settings,
            class_name="player",
            name="cleo",
            endpoint="cogment://client",
            implementation="hand",
            config=data_pb2.PlayerConfig(),  # there, and empty
        )
        parameters.actors = [cleo] if parameters.config.alone else [ann, rob, cleo]
        session.validate()
        story = {"trial": session.get_trial_id(), "user": session.get_user_id(), "last_tick": last_tick}
        save(os.path.join(folder, f"{session.get_trial_id()}.hook.json"), story)

    return impl


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--port-file", required=True)
    parser.add_argument("--actors", required=True)
    args = parser.parse_args()

    context = cogment.Context(user_id="environment", cog_settings=cog_settings)
    context.register_environment(impl=field(args.records), impl_name="field_impl")
    context.register_pre_trial_hook(impl=hook(args.records, context, args.actors))
    await serve(context, args.port_file)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
