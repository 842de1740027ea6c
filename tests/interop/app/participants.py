"""Everything that an orchestrator calls, in one server: `python participants.py --records FOLDER --name NAME`.

Its port is told in NAME.port. Actors and environments follow a script (see players.py); the hook NAME does what the
trial's config says for it; the data log writes down what it gets.
"""

import argparse
import asyncio
import json
import logging
import os
from typing import Any

import cog_settings
import cogment
import players
from connecting import add_options, connecting, served_endpoint
from parameters import describe, fill
from recording import content_of, message_of, reward_of, save
from serving import serve


def hook(folder: str, name: str) -> Any:
    async def impl(session: Any) -> None:
        parameters = session.trial_parameters
        trial = session.get_trial_id()
        story = {"trial": trial, "user": session.get_user_id(), "received": describe(parameters)}
        config = parameters.config
        if config is not None and config.script:
            fill(parameters, json.loads(config.script).get(name, {}))
        save(os.path.join(folder, f"{trial}.hook-{name}.json"), story)

    return impl


def datalog(folder: str) -> Any:
    async def impl(session: Any) -> None:
        actors = [actor.name for actor in session.trial_parameters.actors]
        story = {
            "trial": session.trial_id,
            "user": session.user_id,
            "parameters": describe(session.trial_parameters),
            "samples": [],
        }
        session.start()
        async for sample in session.all_samples():
            story["samples"].append(_sample(sample, actors))
        save(os.path.join(folder, f"{session.trial_id}.datalog.json"), story)

    return impl


def _sample(sample: Any, actors: list[str]) -> dict[str, Any]:
    observations = {actor: sample.get_observation(actor) for actor in actors}
    actions = {actor: sample.get_action(actor) for actor in actors}
    return {
        "tick": sample.tick_id,
        "state": None if sample.state is None else sample.state.name,
        "out_of_sync": sample.out_of_sync,
        "events": None if sample.events is None else list(sample.events),
        "timestamp": sample.timestamp,
        "observations": {
            actor: {"tick": seen.tick_id, "step": seen.observation.step}
            for actor, seen in observations.items()
            if seen is not None
        },
        "actions": {
            actor: {"tick": done.tick_id, "status": done.status.name}
            | ({} if done.action is None else {"action": content_of(done.action)})
            for actor, done in actions.items()
            if done is not None
        },
        "rewards": [reward_of(reward) for reward in sample.all_rewards()],
        "messages": [message_of(message) for message in sample.all_messages()],
    }


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--name", required=True)
    add_options(parser)
    args = parser.parse_args()

    context = cogment.Context(user_id=args.name, cog_settings=cog_settings, **connecting(args))
    context.register_actor(impl=players.actor(args.records), impl_name="scripted", actor_classes=["player", "referee"])
    context.register_actor(impl=players.actor(args.records), impl_name="understudy", actor_classes=["player"])
    context.register_environment(
        impl=players.environment(args.records), impl_name="scripted_field", properties={"ground": args.name}
    )
    context.register_pre_trial_hook(impl=hook(args.records, args.name))
    context.register_datalog(impl=datalog(args.records))
    await serve(context, os.path.join(args.records, f"{args.name}.port"), served_endpoint(args))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
