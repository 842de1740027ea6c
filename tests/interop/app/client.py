"""A controller with two watchers, and the client actor: `python client.py --records FOLDER --lifecycle URL ...`.

Runs three trials side by side. `by-environment` is ended by the environment; in `soft` and `hard` the client actor
keeps its action of tick `HELD_TICK` until the controller's TerminateTrial has returned, so that what must follow is
certain.
"""

import argparse
import asyncio
import logging
import os
from typing import Any

import cog_settings
import cogment
import data_pb2
from recording import Record, save

LAST_TICK = 4
HELD_TICK = 3
TRIALS = ("by-environment", "soft", "hard")


class Holder:
    """Where the client actor and the controller of one trial meet."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.released = asyncio.Event()


def hand(folder: str, holders: dict[str, Holder]) -> Any:
    """A player who writes to the referees and gives the other player a reward that does not count."""

    async def impl(session: Any) -> None:
        trial = session.get_trial_id()
        empty_config = session.config is not None and not session.config.bonus
        record = Record(folder, trial, session.name, empty_config=empty_config)
        session.start()
        async for event in session.all_events():
            record.add(event)
            if event.observation is None or event.type != cogment.EventType.ACTIVE:
                continue
            tick = event.observation.tick_id
            session.add_reward(value=-3.0, confidence=0.0, to=["player.ann"])
            session.send_message(data_pb2.Note(text=f"to referees {tick}"), to=["referee.*"])
            if tick == HELD_TICK and trial in holders:
                holders[trial].reached.set()
                await holders[trial].released.wait()
                if trial == "hard":
                    continue
            session.do_action(data_pb2.PlayerAction(number=tick))
        record.save()

    return impl


class Watch:
    """What a watcher has seen, and a way to wait for it."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self._news = asyncio.Condition()

    async def run(self, stream: Any) -> None:
        async for info in stream:
            self.seen.append(
                {
                    "trial": info.trial_id,
                    "state": info.state.name,
                    "env_name": info.env_name,
                    "tick": info.tick_id,
                    "properties": None if info.properties is None else dict(info.properties),
                }
            )
            async with self._news:
                self._news.notify_all()

    async def until(self, trials: set[str], state: str | None = None) -> None:
        """Wait until every one of these trials has been seen (in that state)."""
        async with self._news:
            await self._news.wait_for(
                lambda: trials <= {entry["trial"] for entry in self.seen if state in (None, entry["state"])}
            )


async def play(context: Any, controller: Any, actor_endpoint: Any, trial: str, holder: Holder | None) -> Any:
    """Run one trial to its end."""
    config = data_pb2.TrialConfig(last_tick=0 if holder else LAST_TICK)
    started = await controller.start_trial(trial_config=config, trial_id_requested=trial)
    again = await controller.start_trial(trial_config=config, trial_id_requested=trial)
    actors = [[actor.actor_name, actor.actor_class_name] for actor in await controller.get_actors(trial)]
    if trial == "soft":
        joined = context.join_trial(trial_id=trial, endpoint=actor_endpoint, actor_class="player")
    else:
        joined = context.join_trial(trial_id=trial, endpoint=actor_endpoint, actor_name="cleo")
    joining = asyncio.create_task(joined)
    story = {"trial": started, "again": again, "actors": actors}
    if holder is not None:
        reached = asyncio.create_task(holder.reached.wait())
        await asyncio.wait([reached, joining], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        story["info"] = [
            {"trial": info.trial_id, "state": info.state.name, "tick": info.tick_id, "env_name": info.env_name}
            for info in await controller.get_trial_info([trial])
        ]
        await controller.terminate_trial([trial], hard=trial == "hard")
        holder.released.set()
    await joining
    return story


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--lifecycle", required=True)
    parser.add_argument("--actors", required=True)
    parser.add_argument("--timeout", type=float, default=60)
    args = parser.parse_args()

    holders = {trial: Holder() for trial in TRIALS if trial != "by-environment"}
    context = cogment.Context(user_id="tester", cog_settings=cog_settings)
    context.register_actor(impl=hand(args.records, holders), impl_name="hand", actor_classes=["player"])
    controller = context.get_controller(cogment.Endpoint(args.lifecycle))
    actor_endpoint = cogment.Endpoint(args.actors)

    watch, ends = Watch(), Watch()
    watching = [
        asyncio.create_task(watch.run(controller.watch_trials())),
        asyncio.create_task(ends.run(controller.watch_trials([cogment.TrialState.ENDED], full_info=True))),
    ]

    async def run() -> None:
        # A trial that nobody joins: when its states are seen, the watchers are surely there.
        await controller.start_trial(trial_config=data_pb2.TrialConfig(alone=True), trial_id_requested="opening")
        await watch.until({"opening"})
        await controller.terminate_trial(["opening"], hard=True)
        await ends.until({"opening"})
        stories = await asyncio.gather(
            *(play(context, controller, actor_endpoint, trial, holders.get(trial)) for trial in TRIALS)
        )
        await asyncio.gather(watch.until(set(TRIALS), "ENDED"), ends.until(set(TRIALS)))
        story = {
            "versions": await controller.get_remote_versions(),
            "trials": dict(zip(TRIALS, stories, strict=True)),
            "watch": watch.seen,
            "ends": ends.seen,
        }
        save(os.path.join(args.records, "client.json"), story)

    try:
        await asyncio.wait_for(run(), args.timeout)
    finally:
        save(os.path.join(args.records, "watched.json"), [watch.seen, ends.seen])
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
