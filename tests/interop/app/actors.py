"""The two service actors: `python actors.py --records FOLDER --port-file FILE`."""

import argparse
import asyncio
import logging
from typing import Any

import cog_settings
import cogment
import data_pb2
from recording import Record
from serving import serve


def counter(folder: str) -> Any:
    """A player who rewards the other player and writes to it and to the environment."""

    async def impl(session: Any) -> None:
        record = Record(folder, session.get_trial_id(), session.name, bonus=session.config.bonus)
        session.start()
        async for event in session.all_events():
            record.add(event)
            if event.observation is not None and event.type == cogment.EventType.ACTIVE:
                tick = event.observation.tick_id
                session.add_reward(value=8.0, confidence=0.5, to=["cleo"])
                session.send_message(data_pb2.Note(text=f"to cleo {tick}"), to=["cleo"])
                session.send_message(data_pb2.Note(text=f"to field {tick}"), to=[session.env_name])
                session.do_action(data_pb2.PlayerAction(number=tick + session.config.bonus))
        record.save()

    return impl


def whistle(folder: str) -> Any:
    """A referee who rewards every player and writes to everybody."""

    async def impl(session: Any) -> None:
        record = Record(folder, session.get_trial_id(), session.name, without_config=session.config is None)
        session.start()
        async for event in session.all_events():
            record.add(event)
            if event.observation is not None and event.type == cogment.EventType.ACTIVE:
                tick = event.observation.tick_id
                session.add_reward(value=float(tick), confidence=0.25, to=["player.*"])
                session.send_message(data_pb2.Note(text=f"to all {tick}"), to=["*"])
                session.do_action(data_pb2.RefereeAction(verdict=f"fair {tick}"))
        record.save()

    return impl


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--port-file", required=True)
    args = parser.parse_args()

    context = cogment.Context(user_id="actors", cog_settings=cog_settings)
    context.register_actor(impl=counter(args.records), impl_name="counter", actor_classes=["player"])
    context.register_actor(impl=whistle(args.records), impl_name="whistle", actor_classes=["referee"])
    await serve(context, args.port_file)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
