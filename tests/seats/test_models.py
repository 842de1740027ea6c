"""Seats of stored models, in trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.seats.games import NAME, Duel, play, playing
from trio_cogment import rl
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.seats.models import parse_reference


def always(data: bytes) -> Any:
    """Make a policy of the bytes of a version: one that always takes this number."""
    number = int(data)
    return lambda _value: number


@pytest.mark.parametrize(
    ("reference", "found"),
    [("rps", ("rps", -1)), ("rps@-2", ("rps", -2)), ("rps@12", ("rps", 12)), ("a b/c", ("a b/c", -1))],
)
def test_references(reference: str, found: tuple[str, int]) -> None:
    assert parse_reference(reference) == found


@pytest.mark.parametrize("reference", ["", "@1", "rps@", "rps@0", "rps@-0", "rps@x", "a@b@1", "rps@1.5"])
def test_references_that_are_none(reference: str) -> None:
    with pytest.raises(InvalidArgumentError, match="model: expected name, name@number, or name@-2"):
        rl.model(reference, always)


async def test_each_trial_has_the_version_that_counts_when_it_begins(tmp_path: Path, autojump_clock: MockClock) -> None:
    loaded: list[bytes] = []

    async def load(data: bytes) -> Any:
        await trio.lowlevel.checkpoint()
        loaded.append(data)
        return always(data)

    newest, before = rl.model("bot", load), rl.model("bot@-2", load)
    game, seats = Duel(masks=False), {"player_0": newest, "player_1": before}
    async with playing(game, seats, model_registry=tmp_path) as platform:
        registry = platform.model_registry_client()
        await registry.publish("bot", b"1")
        await registry.publish("bot", b"2")
        await play(platform, seats)
        assert (newest.version, before.version) == (2, 1)
        await play(platform, seats)
        assert loaded == [b"2", b"1"] or loaded == [b"1", b"2"]
        await registry.publish("bot", b"3")
        await play(platform, seats)
        assert (newest.version, before.version) == (3, 2)
        await registry.delete_model("bot")
        await registry.publish("bot", b"0")
        await registry.publish("bot", b"2")
        await play(platform, seats)
    assert [(taken["player_0"][0], taken["player_1"][0]) for taken in game.taken] == [(2, 1), (2, 1), (3, 2), (2, 0)]
    assert all(len({*taken["player_1"]}) == 1 for taken in game.taken)


async def test_a_version_by_its_number(tmp_path: Path, autojump_clock: MockClock) -> None:
    game = Duel(masks=False)
    seats: dict[str, rl.Seat] = {"player_0": rl.random(), "player_1": rl.model("bot@2", always)}
    async with playing(game, seats, model_registry=tmp_path) as platform:
        for data in (b"1", b"3", b"0"):
            await platform.model_registry_client().publish("bot", data)
        await play(platform, seats)
    assert game.taken[-1]["player_1"] == [3] * 5


async def test_a_registry_of_ones_own(tmp_path: Path, autojump_clock: MockClock) -> None:
    game = Duel(masks=False)
    async with playing(Duel(), {}, model_registry=tmp_path) as other:
        await other.model_registry_client().publish("bot", b"3")
        seats = {"player_0": rl.random(), "player_1": rl.model("bot", always, registry=other.model_registry_client())}
        async with playing(game, seats) as platform:
            await play(platform, seats)
    assert game.taken[0]["player_1"] == [3] * 5


@pytest.mark.parametrize(
    ("reference", "load", "text"),
    [
        ("bot@-2", always, "model: expected 'bot@-2' in the registry, which has no such version: "),
        ("other", always, "model: expected 'other' in the registry, which has no such version: "),
        ("bot", lambda data: data, "load: what it returned: expected a function of the observation, got b'1'"),
    ],
)
async def test_models_that_cannot_play(
    tmp_path: Path, autojump_clock: MockClock, quiet: None, reference: str, load: Any, text: str
) -> None:
    """And the next trial can have what was missing."""
    seats = {"player_0": rl.random(), "player_1": rl.model(reference, load)}
    async with playing(Duel(masks=False), seats, model_registry=tmp_path) as platform:
        await platform.model_registry_client().publish("bot", b"1")
        outcome = await play(platform, seats, check=False)
        assert f"environment '{NAME}', actor 'player_1': {text}" in str(outcome)
        if reference == "bot@-2":
            await platform.model_registry_client().publish("bot", b"1")
            await play(platform, seats)


async def test_without_a_registry(autojump_clock: MockClock, quiet: None) -> None:
    seats = {"player_0": rl.random(), "player_1": rl.model("bot@-2", always)}
    async with playing(Duel(), seats) as platform:
        outcome = await play(platform, seats, check=False)
    assert "actor 'player_1': model 'bot@-2': expected a model registry, and the platform has none" in str(outcome)


def test_what_cannot_load() -> None:
    with pytest.raises(InvalidArgumentError, match="load: expected a function of the version's bytes, got 3"):
        rl.model("bot", 3)  # type: ignore[arg-type]  # the mistake that is tested
