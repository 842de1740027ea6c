"""An actor and an environment that follow a script, which comes as JSON in their config.

Keys of an actor's script; ticks are numbers as texts:
    absent          true: never start the session, and wait to be told that the trial is over
    silent          ticks without an action
    slow            tick: seconds before the action
    blocks          seconds before each action in which nothing else runs in the program
    waits           ticks whose action waits for a message
    leaves          the tick at which the implementation returns
    keeps_end       true: acknowledge the end only when a message comes that says "done"
    raises          the tick at which it raises
    rewards         tick: [{to, value, confidence, tick?, note?}], before the action
    messages        tick: [{to, text}], before the action
    rewards_after, messages_after  the same after the action; with `keeps_end` at the final tick too
Keys of an environment's:
    base            added to the step in every observation
    silent          ticks whose actions it does not answer
    leaves          the tick at whose actions the implementation returns
    raises          the tick at whose actions it raises
    rewards, messages  tick: as above, when the actions of that tick have come
"""

import asyncio
import json
import logging
import os
import time
from typing import Any

import cogment
import data_pb2
from recording import Record, save


def script_of(config: Any) -> dict[str, Any]:
    return {} if config is None or not config.script else json.loads(config.script)


def actor(folder: str) -> Any:
    async def impl(session: Any) -> None:
        script = script_of(session.config)
        bonus = None if session.config is None else session.config.bonus
        facts = {"class": session.actor_class, "implementation": session.impl_name, "environment": session.env_name}
        record = Record(folder, session.get_trial_id(), session.name, bonus=bonus, **facts)
        if script.get("absent"):
            while not session.is_trial_over():  # noqa: ASYNC110 - a session that did not start gets no events
                await asyncio.sleep(0.01)
            record.save()
            return
        keeps_end = script.get("keeps_end", False)
        session.start(auto_done_sending=not keeps_end)
        save(os.path.join(folder, f"{session.get_trial_id()}.{session.name}.begun.json"), facts)
        owed = None
        async for event in session.all_events():
            record.add(event)
            if event.observation is not None:
                tick = event.observation.tick_id
                if event.type == cogment.EventType.ENDING:
                    if keeps_end:
                        _talk(session, script, tick, "_after")
                    continue
                if script.get("leaves") == tick:
                    break
                if script.get("raises") == tick:
                    raise RuntimeError("as the script says")
                _talk(session, script, tick)
                if tick in script.get("silent", ()):
                    continue
                if tick in script.get("waits", ()):
                    owed = tick
                    continue
                await asyncio.sleep(script.get("slow", {}).get(str(tick), 0))
                time.sleep(script.get("blocks", 0))  # noqa: ASYNC251 - that is the point: it computes
                _act(session, script, tick, bonus)
            if event.messages and owed is not None:
                _act(session, script, owed, bonus)
                owed = None
            if event.messages and keeps_end and event.type == cogment.EventType.ENDING:
                note = data_pb2.Note()
                if event.messages[0].payload.Unpack(note) and note.text == "done":
                    session.sending_done()
        record.save()

    return impl


def environment(folder: str) -> Any:
    async def impl(session: Any) -> None:
        script = script_of(session.config)
        last_tick = None if session.config is None else session.config.last_tick
        actors = [[actor.actor_name, actor.actor_class_name] for actor in session.get_active_actors()]
        facts = {"actors": actors, "implementation": session.impl_name, "last_tick": last_tick}
        record = Record(folder, session.get_trial_id(), session.name, **facts)
        logging.info("the environment of %s is here", session.get_trial_id())
        step = 0

        def observations() -> list[tuple[str, Any]]:
            seen = script.get("base", 0) + step
            return [
                ("player.*", data_pb2.PlayerObservation(step=seen)),
                ("referee.*", data_pb2.RefereeObservation(step=seen, strict=True)),
            ]

        session.start(observations())
        async for event in session.all_events():
            record.add(event)
            if not event.actions:
                continue
            tick = event.actions[0].tick_id
            _talk(session, script, tick)
            if script.get("leaves") == tick:
                break
            if script.get("raises") == tick:
                raise RuntimeError("as the script says")
            if tick in script.get("silent", ()):
                continue
            step += 1
            if event.type == cogment.EventType.ENDING or step == last_tick:
                session.end(observations())
            else:
                session.produce_observations(observations())
        record.save()

    return impl


def _act(session: Any, script: dict[str, Any], tick: int, bonus: int | None) -> None:
    if session.actor_class == "player":
        session.do_action(data_pb2.PlayerAction(number=(bonus or 0) + tick))
    else:
        session.do_action(data_pb2.RefereeAction(verdict=f"fair {tick}"))
    _talk(session, script, tick, "_after")


def _talk(session: Any, script: dict[str, Any], tick: int, when: str = "") -> None:
    for reward in script.get(f"rewards{when}", {}).get(str(tick), ()):
        session.add_reward(
            value=reward["value"],
            confidence=reward["confidence"],
            to=reward["to"],
            tick_id=reward.get("tick", -1),
            user_data=data_pb2.Note(text=reward["note"]) if "note" in reward else None,
        )
    for message in script.get(f"messages{when}", {}).get(str(tick), ()):
        session.send_message(data_pb2.Note(text=message["text"]), to=message["to"])
