"""Sessions whose observations are counted on their way: nothing else of them is changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trio_cogment.api.spaces_pb2 import Observation
from trio_cogment.rl.runner._watching import _WatchedActor, _WatchedEnvironment


class Score:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def add(self, name: str, observation: Any) -> None:
        self.told.append((name, observation))


def seen(reward: float) -> Observation:
    return Observation(reward=reward)


class Environment:
    """A session that notes what is sent."""

    actors = tuple(SimpleNamespace(name=name) for name in ("ann", "ben"))
    tick_id = 7

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def start(self, observations: Any = None, *rewards: Any, **more: Any) -> str:
        self.sent.append((observations, rewards, more))
        return "started"

    def produce_observations_nowait(self, observations: Any, *rewards: Any) -> str:
        self.sent.append((observations, rewards))
        return "sent"


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (0, ["ann"]),
        (1, ["ben"]),
        ("ben", ["ben"]),
        ("*", ["ann", "ben"]),
        ("player.*", ["ann", "ben"]),
        ("player.ben", ["ben"]),
    ],
)
async def test_observations_of_an_environment(target: Any, names: list[str]) -> None:
    inner, score = Environment(), Score()
    given: Any = inner
    counts: Any = score
    watched: Any = _WatchedEnvironment(given, counts)
    assert watched.tick_id == 7
    observations = [(target, seen(2))]
    assert watched.produce_observations_nowait(observations, "reward") == "sent"
    assert score.told == [(name, seen(2)) for name in names]
    assert inner.sent == [(observations, ("reward",))]
    score.told.clear()
    assert await watched.start([(target, seen(3).SerializeToString())], x=1) == "started"
    assert score.told == [(name, seen(3)) for name in names]
    assert inner.sent[1][2] == {"x": 1}
    score.told.clear()
    assert await watched.start() == "started"
    assert score.told == []
    assert inner.sent[2] == (None, (), {})


class Actor:
    """A session with three events."""

    name = "ann"
    tick_id = 7
    events = tuple(
        SimpleNamespace(observation=None if payload is None else SimpleNamespace(payload=payload))
        for payload in (seen(1), None, seen(2).SerializeToString())
    )

    async def all_events(self) -> Any:
        for event in self.events:
            yield event

    async def handle(self, on_event: Any, **arguments: Any) -> None:
        assert arguments == {"as_bytes": True}
        for event in self.events:
            on_event(event)


async def test_observations_of_an_actor() -> None:
    inner: Any = Actor()
    for handled in (True, False):
        score = Score()
        counts: Any = score
        watched: Any = _WatchedActor(inner, counts)
        assert watched.tick_id == 7
        found: list[Any] = []
        if handled:
            await watched.handle(found.append, as_bytes=True)
        else:
            found = [event async for event in watched.all_events()]
        assert found == list(Actor.events)
        assert score.told == [("ann", seen(1)), ("ann", seen(2))]
