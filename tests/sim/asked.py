"""Answers about trials that a data log gives, and those to readers who ask for some actors and fields only.

Both are described by the names of things, apart from how the datastore keeps them: by places in a list of payloads.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeAlias

from google.protobuf.any_pb2 import Any as AnyMessage

from tests.servers.datastore.harness import ENDED, RUNNING, open_harness, params_with
from trio_cogment.api.common_pb2 import Action, Message, Reward, RewardSource, SerializedMessage, TrialParams
from trio_cogment.api.datalog_pb2 import DatalogSample, SampleInfo
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample, StoredTrialSampleField
from trio_cogment.testing import World

#: Class, name and implementation.
ACTORS = (("c0", "ann", "x"), ("c1", "bob", "y"), ("c0", "ada", "y"))
PATTERNS = ("ann", "bob", "*", "c0.*", "c1.bob", "c1.ann", "nobody", "env")
SENDERS = ("env", "ann", "bob", "ada")
NO_ACTION = -2
TICKS = 8
READERS = 8
FIELDS = (
    "observation", "action", "reward", "received_rewards", "sent_rewards", "received_messages", "sent_messages",
)  # fmt: skip

#: What is said of an actor, by field; of those that it lacks nothing.
OfActor: TypeAlias = dict[str, Any]


def meant(pattern: str) -> list[int]:
    """Return the actors that a pattern means."""
    return [
        index
        for index, (actor_class, name, _) in enumerate(ACTORS)
        if pattern in ("*", name, f"{actor_class}.*", f"{actor_class}.{name}")
    ]


def place_of(name: str) -> int:
    """Return the index of an actor by its name; -1 for the environment."""
    return next((index for index, (_, known, _) in enumerate(ACTORS) if known == name), -1)


def draw_sample(rng: random.Random, tick_id: int) -> DatalogSample:
    """Draw all that may be said of a tick."""
    sample = DatalogSample(
        info=SampleInfo(tick_id=tick_id, timestamp=1000 + tick_id, state=ENDED if tick_id == TICKS - 1 else RUNNING)
    )
    if rng.random() < 0.9:
        shown = [b"seen %d" % number for number in range(rng.randint(1, 3))]
        seen = [rng.randrange(len(shown)) for _ in ACTORS]
        sample.observations.CopyFrom(ObservationSet(tick_id=tick_id, observations=shown, actors_map=seen))
    for index in range(len(ACTORS)):
        absent = rng.random()
        sample.actions.append(Action(tick_id=tick_id if absent > 0.4 else NO_ACTION, content=b"act %d" % index))
        if absent < 0.2:
            sample.default_actors.append(index)
        elif absent < 0.4:
            sample.unavailable_actors.append(index)
    for _ in range(rng.randrange(4)):
        sources = [draw_source(rng) for _ in range(rng.randint(1, 3))]
        sample.rewards.append(Reward(tick_id=tick_id, receiver_name=rng.choice(PATTERNS), sources=sources))
    for number in range(rng.randrange(4)):
        said = AnyMessage(value=b"said %d" % number)
        message = Message(tick_id=tick_id, sender_name=rng.choice(SENDERS), receiver_name=rng.choice(PATTERNS))
        message.payload.CopyFrom(said)
        sample.messages.append(message)
    return sample


def draw_source(rng: random.Random) -> RewardSource:
    """Draw one source of a reward."""
    source = RewardSource(
        sender_name=rng.choice(SENDERS),
        value=rng.choice([1.0, -2.0, 0.5]),
        confidence=rng.choice([1.0, 0.25, 0.0, -1.0]),
    )
    if rng.random() < 0.3:
        source.user_data.value = b"why"
    return source


def said(sample: DatalogSample, params: TrialParams) -> list[OfActor]:
    """Describe what was said of a tick, actor by actor."""
    actors: list[OfActor] = [{} for _ in ACTORS]
    for index, of in enumerate(actors):
        if sample.HasField("observations"):
            of["observation"] = sample.observations.observations[sample.observations.actors_map[index]]
        if index in sample.unavailable_actors:
            continue
        if sample.actions[index].tick_id != NO_ACTION:
            of["action"] = sample.actions[index].content
        elif index in sample.default_actors:
            of["action"] = params.actors[index].default_action.content
    weighed: dict[int, list[tuple[float, float]]] = {}
    for reward in sample.rewards:
        for source in reward.sources:
            sender = place_of(source.sender_name)
            data = source.user_data.SerializeToString() if source.HasField("user_data") else None
            for receiver in meant(reward.receiver_name):
                entry = (sender, receiver, source.value, source.confidence, data)
                actors[receiver].setdefault("received_rewards", []).append(entry)
                weighed.setdefault(receiver, []).append((source.value, max(0.0, source.confidence)))
                if sender >= 0:
                    actors[sender].setdefault("sent_rewards", []).append(entry)
    for receiver, values in weighed.items():
        weights = sum(weight for _, weight in values)
        mean = sum(value * weight for value, weight in values) / weights if weights else 0.0
        actors[receiver]["reward"] = round(mean, 5)
    for message in sample.messages:
        sender, receivers = place_of(message.sender_name), meant(message.receiver_name)
        for receiver in receivers or [-1]:
            told = (sender, receiver, message.payload.SerializeToString())
            if receiver >= 0:
                actors[receiver].setdefault("received_messages", []).append(told)
            if sender >= 0:
                actors[sender].setdefault("sent_messages", []).append(told)
    return actors


def told(sample: StoredTrialSample) -> dict[int, OfActor]:
    """Describe what a reader was told of a tick."""
    payloads = sample.payloads
    actors: dict[int, OfActor] = {}
    pointed: set[int] = set()

    def payload(number: int) -> bytes:
        pointed.add(number)
        return payloads[number]

    for one in sample.actor_samples:
        of = actors[one.actor] = {}
        if one.HasField("observation"):
            of["observation"] = payload(one.observation)
        if one.HasField("action"):
            of["action"] = payload(one.action)
        if one.HasField("reward"):
            of["reward"] = round(one.reward, 5)
        for name in ("received_rewards", "sent_rewards"):
            found = [
                (
                    entry.sender,
                    entry.receiver,
                    entry.reward,
                    entry.confidence,
                    payload(entry.user_data) if entry.HasField("user_data") else None,
                )
                for entry in getattr(one, name)
            ]
            of.update({name: found} if found else {})
        for name in ("received_messages", "sent_messages"):
            messages = [(entry.sender, entry.receiver, payload(entry.payload)) for entry in getattr(one, name)]
            of.update({name: messages} if messages else {})
    unused = [number for number, content in enumerate(payloads) if content and number not in pointed]
    return actors | ({-1: {"unused": unused}} if unused else {})


def draw_request(rng: random.Random) -> dict[str, Any]:
    """Draw what a reader asks for."""
    request: dict[str, Any] = {}
    for name, choices in (
        ("actor_names", ["ann", "bob", "ada", "nobody"]),
        ("actor_classes", ["c0", "c1"]),
        ("actor_implementations", ["x", "y"]),
        ("selected_sample_fields", list(range(1, 8))),
    ):
        if rng.random() < 0.4:
            request[name] = rng.sample(choices, rng.randint(1, len(choices)))
    return request


def selected(samples: Sequence[list[OfActor]], request: dict[str, Any]) -> list[dict[int, OfActor]]:
    """Return what a reader must be told."""
    wanted = [
        index
        for index, (actor_class, name, implementation) in enumerate(ACTORS)
        if name in request.get("actor_names", [name])
        and actor_class in request.get("actor_classes", [actor_class])
        and implementation in request.get("actor_implementations", [implementation])
    ]
    numbers = request.get("selected_sample_fields")
    names = {_name_of(number) for number in numbers} if numbers else set(FIELDS)
    return [
        {index: {name: value for name, value in of[index].items() if name in names} for index in wanted}
        for of in samples
    ]


def _name_of(number: int) -> str:
    return StoredTrialSampleField.Name(number).removeprefix("STORED_TRIAL_SAMPLE_FIELD_").lower()


async def asked_and_told(world: World) -> None:
    """Log a trial, and read it in several ways."""
    rng = world.rng
    params = params_with(*(".".join(actor) for actor in ACTORS))
    for index, actor in enumerate(params.actors):
        actor.default_action.CopyFrom(SerializedMessage(content=b"default %d" % index))
    samples = [draw_sample(rng, tick_id) for tick_id in range(TICKS)]
    described = [said(sample, params) for sample in samples]
    async with open_harness() as harness:
        await harness.log("t", samples, params)
        for _ in range(READERS):
            request = draw_request(rng)
            found = await harness.samples("t", **request)
            expected = selected(described, request)
            for tick_id, (one, wanted) in enumerate(zip(found, expected, strict=True)):
                assert told(one) == wanted or not request, f"tick {tick_id}, asked for {request}: {told(one)}"
                if request:
                    absent = [index for index in samples[tick_id].unavailable_actors if index in wanted]
                    assert [*one.unavailable_actors] == absent, one
                    absent = [index for index in samples[tick_id].default_actors if index in wanted]
                    assert [*one.default_actors] == absent, one
                else:
                    everything = {index: of for index, of in told(one).items() if index >= 0}
                    assert everything == wanted, f"tick {tick_id}: {everything}, expected: {wanted}"
