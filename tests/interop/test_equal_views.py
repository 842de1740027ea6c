"""Participants of both SDKs see the same, and so does the datastore, read by both SDKs: 50 trials, all fields.

In each trial there are actors of both SDKs, an environment of either one, and a client actor of either one: all four
pairs. Each follows a random script of rewards and messages, in the form of `app/players.py`, and takes down all it
sees. The datastore is SQLite.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.interop.processes import Remote
from tests.interop.scenes import CLIENT, Scene, actor, described, field
from trio_cogment import (
    ActorSession,
    Client,
    EnvironmentSession,
    EventType,
    Participants,
    Spec,
    actor_params,
    connect,
    load_spec,
    serve_participants,
    trial_params,
)
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.base.rewards import mean_reward
from trio_cogment.sdk import ActorSample, StoredSample

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TRIALS = 50
AT_ONCE = 5
LAST_TICK = 6
PATIENCE_SECONDS = 240

Story = dict[str, Any]


# --- scripts ---


def script(dice: random.Random, who: str) -> Story:
    """Rewards and messages at random; values are such as 32-bit floats have."""

    def some(most: int) -> Iterator[str]:
        for _ in range(dice.randrange(most + 1)):
            yield dice.choice(["ann", "bob", "rob", "cleo", "player.*", "referee.rob", "*"])

    rewards: Story = {}
    messages: Story = {}
    for tick in range(LAST_TICK):
        rewards[str(tick)] = [
            {"to": [to], "value": dice.randrange(-80, 80) / 8, "confidence": dice.choice([0.0, 0.25, 0.5, 1.0])}
            | ({"note": f"{who} at {tick}"} if dice.random() < 0.5 else {})
            | ({"tick": dice.randrange(tick)} if tick and dice.random() < 0.2 else {})
            for to in some(3)
        ]
        receivers = [*some(2), *(["field"] if who != "field" and dice.random() < 0.5 else [])]
        messages[str(tick)] = [{"to": [to], "text": f"{who} {tick} {number}"} for number, to in enumerate(receivers)]
    return {"rewards": rewards, "messages": messages}


def parameters(number: int, theirs: str, ours: str, datalog: str) -> Story:
    """The parameters of a trial, as the published SDK has them: the environment and the referee take turns."""
    dice = random.Random(number)
    world, judge = (theirs, ours) if number % 2 else (ours, theirs)
    return {
        **field(world, last_tick=LAST_TICK, base=dice.randrange(1, 100), **script(dice, "field")),
        "datalog_endpoint": datalog,
        "properties": {"number": str(number), "empty": ""},
        "max_inactivity": 60,
        "nb_buffered_ticks": number % 4,
        "actors": [
            actor("ann", theirs, bonus=dice.randrange(100), **script(dice, "ann")),
            actor("bob", ours, bonus=dice.randrange(100), **script(dice, "bob")),
            actor("rob", judge, actor_class="referee"),
            actor("cleo", CLIENT, bonus=dice.randrange(100), **script(dice, "cleo")),
        ],
    }


# --- participants of this SDK ---


class Cast:
    """The scripted actor and environment of `app/players.py` for this SDK, and their records."""

    def __init__(self, spec: Spec) -> None:
        self._note = spec.messages["data.Note"]
        self._types = spec.messages
        self.records: dict[tuple[str, str], Story] = {}
        self.participants = Participants(spec)
        self.participants.register_actor(self.actor, "scripted", ["player", "referee"])
        self.participants.register_environment(self.environment, "scripted_field")

    async def actor(self, session: ActorSession) -> None:
        config = session.config
        bonus = 0 if config is None else config.bonus
        plan = json.loads(config.script) if config is not None else {}
        facts = {
            "class": session.actor_class,
            "implementation": session.implementation,
            "environment": session.environment_name,
            "bonus": None if config is None else config.bonus,
        }
        record = self._record(session, **facts)
        async for event in session.all_events():
            self._take(record, event)
            if event.observation is None or event.type is not EventType.ACTIVE:
                continue
            tick = event.tick_id
            await self._talk(session, plan, tick)
            if session.actor_class == "player":
                await session.do_action(self._types["data.PlayerAction"](number=bonus + tick))
            else:
                await session.do_action(self._types["data.RefereeAction"](verdict=f"fair {tick}"))

    async def environment(self, session: EnvironmentSession) -> None:
        plan = json.loads(session.required_config.script)
        actors = [[actor.name, actor.actor_class] for actor in session.actors]
        last_tick = session.required_config.last_tick
        record = self._record(session, actors=actors, implementation=session.implementation, last_tick=last_tick)
        step = 0

        def observations() -> list[tuple[str | int, Any]]:
            seen = plan["base"] + step
            return [
                ("player.*", self._types["data.PlayerObservation"](step=seen)),
                ("referee.*", self._types["data.RefereeObservation"](step=seen, strict=True)),
            ]

        await session.start(observations())
        async for event in session.all_events():
            self._take(record, event)
            if event.actions is not None:
                await self._talk(session, plan, event.tick_id)
                step += 1
                if step == last_tick:
                    await session.end(observations())
                else:
                    await session.produce_observations(observations())

    def _record(self, session: Any, **facts: Any) -> Story:
        record = {"trial": session.trial_id, "name": session.name, **facts, "events": [], "times": []}
        self.records[session.trial_id, session.name] = record
        return record

    def _take(self, record: Story, event: Any) -> None:
        """Take down an event as `app/recording.py` does."""
        seen: Story = {"type": event.type.name}
        if event.observation is not None:
            found = event.observation
            seen["observation"] = {"tick": found.tick_id, "step": found.payload.step}
            record["times"].append(["observation", found.tick_id, found.timestamp])
        if event.actions is not None:
            seen["actions"] = [
                {"actor": action.actor_index, "tick": action.tick_id, "status": action.status.name}
                | {"action": getattr(action.payload, "verdict", None) or action.payload.number}
                for action in event.actions
            ]
            record["times"].append(["actions", event.actions[0].tick_id, event.actions[0].timestamp])
        if event.reward is not None:
            reward = event.reward
            sources = [
                {"sender": s.sender_name, "value": s.value, "confidence": s.confidence, "note": self._text(s.user_data)}
                for s in reward.sources
            ]
            told = {"tick": reward.tick_id, "receiver": reward.receiver_name, "value": reward.value}
            seen["rewards"] = [{**told, "sources": sources}]
        if event.message is not None:
            message = event.message
            told = {"tick": message.tick_id, "receiver": message.receiver_name, "sender": message.sender_name}
            seen["messages"] = [{**told, "text": self._text(message.payload)}]
        record["events"].append(seen)

    def _text(self, packed: Any) -> str | None:
        note: Any = self._note()
        return note.text if packed.Unpack(note) else None

    async def _talk(self, session: Any, plan: Story, tick: int) -> None:
        for reward in plan.get("rewards", {}).get(str(tick), ()):
            note = self._note(text=reward["note"]) if "note" in reward else None
            value, confidence, to = reward["value"], reward["confidence"], reward["to"]
            await session.add_reward(value, confidence, to, tick_id=reward.get("tick", -1), user_data=note)
        for message in plan.get("messages", {}).get(str(tick), ()):
            await session.send_message(self._note(text=message["text"]), message["to"])

    # What this SDK's reader says, in the form of `app/reader.py`

    def told(self, sample: StoredSample) -> Story:
        return {
            "trial": sample.trial_id,
            "state": TrialState.Name(sample.state),
            "tick": sample.tick_id,
            "timestamp": sample.timestamp,
            "actors": {name: self._data(data) for name, data in sample.actors.items()},
        }

    def _data(self, data: ActorSample) -> Story:
        def rewards(found: Any) -> list[Story]:
            return [
                {"sender": r.sender, "receiver": r.receiver, "value": r.value, "confidence": r.confidence}
                | {"note": None if r.user_data is None else self._text(r.user_data)}
                for r in found
            ]

        def messages(found: Any) -> list[Story]:
            return [{"sender": m.sender, "receiver": m.receiver, "text": self._text(m.payload)} for m in found]

        found = {
            "observation": None if data.observation is None else MessageToDict(data.observation),
            "action": None if data.action is None else MessageToDict(data.action),
            "reward": data.reward,
            "received_rewards": rewards(data.received_rewards),
            "sent_rewards": rewards(data.sent_rewards),
            "received_messages": messages(data.received_messages),
            "sent_messages": messages(data.sent_messages),
        }
        return {name: value for name, value in found.items() if value not in (None, [], 0.0)}


# --- the run ---


async def play(
    server: str, theirs: str, clients: Remote, cast: Cast
) -> tuple[dict[str, Story], dict[str, list[Story]]]:
    """Play all trials; return the parameters of each, and its samples as this SDK reads them.

    Args:
        server: of everything.
        theirs: the endpoint of the published SDK's participants.
        clients: its client actors.
        cast: this SDK's participants.
    """
    wanted: dict[str, Story] = {}
    samples: dict[str, list[Story]] = {}
    limiter = trio.CapacityLimiter(AT_ONCE)
    spec = cast.participants.spec
    async with connect(server, spec=spec, user_id="ours") as client, trio.open_nursery() as nursery:
        serving = await nursery.start(partial(serve_participants, cast.participants, address="127.0.0.1"))
        ours = f"grpc://127.0.0.1:{serving.port}"

        async def one(number: int) -> None:
            async with limiter:
                trial_id = f"trial-{number}"
                wanted[trial_id] = parameters(number, theirs, ours, server)
                joining = clients if number % 4 >= 2 else None
                params = await play_one(client, spec, trial_id, wanted[trial_id], joining or cast)
                datastore = await client.datastore()
                trial = await datastore.trial(trial_id)
                assert trial is not None
                assert (trial.params, trial.user_id, trial.trial_id) == (params, "ours", trial_id)
                async with datastore.samples(trial_id, follow=True) as stored:
                    samples[trial_id] = [cast.told(sample) async for sample in stored]

        async with trio.open_nursery() as trials:
            for number in range(TRIALS):
                trials.start_soon(one, number)
        nursery.cancel_scope.cancel()
    return wanted, samples


async def play_one(client: Client, spec: Spec, trial_id: str, wanted: Story, joining: Remote | Cast) -> TrialParams:
    def payload(content: Story | None, kind: Any) -> Any:
        return None if content is None else ParseDict(content, kind())

    actors = [
        actor_params(
            one["name"],
            one["actor_class"],
            endpoint=one["endpoint"],
            implementation=one["implementation"],
            config=payload(one.get("config"), spec.actor_class(one["actor_class"]).config),
            spec=spec,
        )
        for one in wanted["actors"]
    ]
    params = trial_params(
        actors,
        environment=wanted["environment_implementation"],
        environment_name=wanted["environment_name"],
        environment_endpoint=wanted["environment_endpoint"],
        environment_config=payload(wanted["environment_config"], spec.environment_config),
        datalog_endpoint=wanted["datalog_endpoint"],
        max_inactivity_seconds=wanted["max_inactivity"],
        nb_buffered_ticks=wanted["nb_buffered_ticks"],
        properties=wanted["properties"],
        spec=spec,
    )
    controller = await client.controller()
    assert await controller.start_trial(params, trial_id=trial_id) == trial_id
    if isinstance(joining, Cast):
        await client.join_trial(trial_id, joining.actor, actor_name="cleo")
    else:
        joined = joining.begin("join", trial=trial_id, actor_name="cleo")
        await trio.to_thread.run_sync(joined.done)
    await controller.wait_trial(trial_id)
    return params


# --- what must be stored ---


def seen(record: Story, key: str) -> list[Story]:
    return [item for event in record["events"] for item in event.get(key, ())]


def late(asked: Story) -> Iterator[tuple[int, str, Story]]:
    """The rewards for past ticks: tick, receiver, source. Nobody sees them but the datastore."""
    plans = {one["name"]: one["config"] for one in asked["actors"] if "config" in one}
    receivers = {one["name"]: [one["name"]] for one in asked["actors"]}
    players = [one["name"] for one in asked["actors"] if one["actor_class"] == "player"]
    receivers |= {"*": list(receivers), "player.*": players, "referee.rob": ["rob"]}
    for sender, config in (plans | {"field": asked["environment_config"]}).items():
        for rewards in json.loads(config["script"]).get("rewards", {}).values():
            for reward in rewards:
                if "tick" in reward:
                    source = {key: reward.get(key) for key in ("value", "confidence", "note")}
                    for receiver in receivers[reward["to"][0]]:
                        yield reward["tick"], receiver, {"sender": sender, **source}


def expected(records: dict[str, Story], asked: Story) -> list[Story]:
    """What the samples of a trial must have of each actor, from what the participants saw."""
    world = records["field"]
    names = [name for name, _ in world["actors"]]
    samples: list[dict[str, Story]] = [{name: {} for name in names} for _ in range(LAST_TICK + 1)]

    def put(tick: int, name: str, key: str, item: Story) -> None:
        samples[tick][name].setdefault(key, []).append(item)

    for event in world["events"]:
        for action in event.get("actions", ()):
            assert action["status"] == "ACTIVE"
            content = action["action"]
            kind = "verdict" if isinstance(content, str) else "number"
            samples[action["tick"]][names[action["actor"]]]["action"] = {kind: content} if content else {}
    rewards: dict[tuple[int, str], list[Story]] = {}
    for tick, receiver, source in late(asked):
        rewards.setdefault((tick, receiver), []).append(source)
    for name in names:
        record = records[name]
        for event in record["events"]:
            if "observation" in event:
                found = event["observation"]
                strict = {"strict": True} if record["class"] == "referee" else {}
                samples[found["tick"]][name]["observation"] = {"step": found["step"], **strict}
        for reward in seen(record, "rewards"):
            assert reward["receiver"] == name
            told = [(source["value"], source["confidence"]) for source in reward["sources"]]
            assert reward["value"] == pytest.approx(mean_reward(told), rel=1e-6, abs=1e-6)
            rewards.setdefault((reward["tick"], name), []).extend(reward["sources"])
    for (tick, name), sources in rewards.items():
        value = mean_reward((source["value"], source["confidence"]) for source in sources)
        samples[tick][name]["reward"] = value
        for source in sources:
            sender = "" if source["sender"] == "field" else source["sender"]
            item = {**source, "sender": sender, "receiver": name}
            put(tick, name, "received_rewards", item)
            if sender:
                put(tick, sender, "sent_rewards", item)
    for record in records.values():
        for message in seen(record, "messages"):
            assert message["receiver"] == record["name"]
            sender, receiver = ("" if message[key] == "field" else message[key] for key in ("sender", "receiver"))
            item = {"sender": sender, "receiver": receiver, "text": message["text"]}
            if receiver:
                put(message["tick"], receiver, "received_messages", item)
            if sender:
                put(message["tick"], sender, "sent_messages", item)
    return samples


def comparable(samples: list[Story], *, environment: str = "") -> list[Story]:
    """Order what was sent at the same time, and round what is computed from 32-bit floats.

    The published reader calls the environment by the last actor's name: with `environment`, both become empty.
    """

    def plain(item: Story) -> str:
        roles = {key: "" if item[key] == environment else item[key] for key in ("sender", "receiver")}
        return json.dumps({**item, **roles}, sort_keys=True)

    def one(data: Story) -> Story:
        found: Story = {
            key: sorted(map(plain, value)) if isinstance(value, list) else value for key, value in data.items()
        }
        reward = round(found.pop("reward", 0.0), 4)
        return found | ({"reward": reward} if reward else {})

    return [{name: one(data) for name, data in sample.items()} for sample in samples]


def recorded(scene: Scene, name: str) -> Story:
    """What a participant of the published SDK has taken down, with the times."""
    return {**scene.record(name), "times": scene.record(f"{name}.times")}


def check_times(samples: list[Story], records: dict[str, Story]) -> None:
    """A tick begins when its observations have come, and before its actions go out."""
    stamps = [sample["timestamp"] for sample in samples]
    sent = {name: {(kind, tick): time for kind, tick, time in record["times"]} for name, record in records.items()}
    observed = [
        {sent[name]["observation", tick] for name in records if name != "field"} for tick in range(LAST_TICK + 1)
    ]
    for tick, times in enumerate(observed):
        (when,) = times  # all actors are told the same
        assert when <= stamps[tick]
    for tick in range(LAST_TICK):
        assert stamps[tick] <= sent["field"]["actions", tick] <= stamps[tick + 1]


def check_facts(records: dict[str, Story], wanted: Story) -> None:
    """Everybody was told the configuration that is stored."""
    for one in wanted["actors"]:
        record = records[one["name"]]
        assert record["class"] == one["actor_class"]
        assert record["implementation"] == one["implementation"]
        assert record["environment"] == wanted["environment_name"]
        assert record["bonus"] == (one["config"].get("bonus", 0) if "config" in one else None)
        kinds = Counter(event["type"] for event in record["events"])
        assert (kinds["FINAL"], len(record["times"])) == (1, LAST_TICK + 1)
    world = records["field"]
    assert world["actors"] == [[one["name"], one["actor_class"]] for one in wanted["actors"]]
    assert (world["implementation"], world["last_tick"]) == ("scripted_field", LAST_TICK)


def test_fifty_trials_read_back_by_both(scene: Scene, project: Path) -> None:
    database = f"--storage=sqlite:{scene.folder / 'trials.db'}"
    platform = scene.ours("platform", "serve", "--host=127.0.0.1", "--port=0", database)
    theirs = scene.participants()
    clients = scene.remote(platform, name="clients")
    cast = Cast(load_spec(project))

    async def run() -> tuple[dict[str, Story], dict[str, list[Story]]]:
        with trio.fail_after(PATIENCE_SECONDS):
            return await play(platform.endpoint, theirs, clients, cast)

    wanted, ours = trio.run(run)
    reader = scene.told("reader", f"--datastore={platform.endpoint}")
    infos = {info["trial"]: info for info in reader.ask("get")}
    assert infos.keys() == wanted.keys() == ours.keys()
    assert len(wanted) == TRIALS
    rewards = messages = 0
    for trial, asked in wanted.items():
        info = infos[trial]
        assert (info["state"], info["user"], info["samples"]) == ("ENDED", "ours", LAST_TICK + 1)
        assert info["parameters"] == described(asked)
        records = {
            name: cast.records.get((trial, name)) or recorded(scene, f"{trial}.{name}")
            for name in ("field", *(one["name"] for one in asked["actors"]))
        }
        check_facts(records, asked)
        theirs_read = reader.ask("samples", trials=[trial])
        for samples in (theirs_read, ours[trial]):
            assert [sample["tick"] for sample in samples] == list(range(LAST_TICK + 1))
            assert [sample["state"] for sample in samples] == ["RUNNING"] * LAST_TICK + ["ENDED"]
            assert {sample["trial"] for sample in samples} == {trial}
            check_times(samples, records)
        must = expected(records, asked)
        assert comparable([sample["actors"] for sample in ours[trial]]) == comparable(must), trial
        last = asked["actors"][-1]["name"]
        published = comparable([sample["actors"] for sample in theirs_read], environment=last)
        assert published == comparable(must, environment=last), trial
        assert [s["timestamp"] for s in theirs_read] == [s["timestamp"] for s in ours[trial]]
        rewards += sum(len(data.get("received_rewards", ())) for sample in must for data in sample.values())
        messages += sum(len(data.get("received_messages", ())) for sample in must for data in sample.values())
    assert rewards > 20 * TRIALS
    assert messages > 20 * TRIALS
    # Each name was played by this SDK as often as the scripts of the trials say.
    ours_played = Counter(name for _, name in cast.records)
    halves = {"field": TRIALS // 2, "rob": TRIALS // 2}
    assert ours_played == {**halves, "bob": TRIALS, "cleo": sum(number % 4 < 2 for number in range(TRIALS))}
    clients.leave()
    reader.leave()
    scene.end(platform)
