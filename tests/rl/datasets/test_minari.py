"""Stored trials as data sets of Minari."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minari.dataset.minari_dataset import parse_dataset_id

from tests.rl.datasets.recorded import Duel, environment_of, params_of, play, recording
from tests.spaces.strategies import generators, minari_spaces, same
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.rl_pb2 import EnvironmentConfig
from trio_cogment.base.errors import AlreadyExistsError, InvalidArgumentError
from trio_cogment.rl import export_async
from trio_cogment.rl.datasets import minari as exports
from trio_cogment.rl.datasets.episodes import Episode, check_minari, filler, stacked
from trio_cogment.rl.datasets.minari_files import DatasetFiles
from trio_cogment.rl.datasets.minari_recordings import MinariRecordings, _part
from trio_cogment.rl.datasets.placing import Placement, put_in_place
from trio_cogment.rl.datasets.trials import TrialRecord
from trio_cogment.sdk import StoredTrial
from trio_cogment.spaces import Box, Dict, Discrete, Graph, OneOf, Sequence, Space, Text, Tuple, to_gymnasium


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


class Solo(Duel):
    """One player, who sees an image that Minari would store as JPEG."""

    def __init__(self, observation: Space | None = None) -> None:
        super().__init__(5, out_at=None)
        self.agents = ["player_0"]
        self.observation_spaces = {"player_0": observation or Box(0, 255, (40, 32, 3), np.uint8)}
        self.action_spaces = {"player_0": Discrete(3)}


async def test_images_are_stored_as_they_are() -> None:
    game = Solo()
    async with recording(game) as platform:
        await play(platform, game, "one", seed=3, options={"level": 1, "deep": {"er": [1, 2]}})
        await play(platform, game, "two")
        about: dict[str, Any] = {
            "author": "ann",
            "author_email": "ann@example.org",
            "algorithm_name": "by hand",
            "code_permalink": "https://example.org/code",
            "description": "Pictures.",
            "requirements": ["numpy"],
        }
        done = await export_async(platform, minari="tests/solo-v1", minari_metadata=about)
    assert done.minari == ["tests/solo-v1"]
    dataset = minari.load_dataset("tests/solo-v1")
    assert (dataset.total_episodes, dataset.total_steps) == (2, 10)
    assert dataset.observation_space == to_gymnasium(game.observation_spaces["player_0"])
    told = dataset.storage.metadata
    assert (told["author"], told["author_email"], told["algorithm_name"]) == ({"ann"}, {"ann@example.org"}, "by hand")
    assert (told["code_permalink"], told["description"]) == ("https://example.org/code", "Pictures.")
    assert told["requirements"] == ["numpy"]
    for index, episode in enumerate(dataset):
        for tick, image in enumerate(episode.observations):
            assert image.dtype == np.uint8
            assert np.array_equal(image, game.told[index][tick]["player_0"].value)
        assert episode.rewards.tolist() == [0.1 * tick for tick in range(1, 6)]
        assert episode.actions.tolist() == [0, 1, 2, 0, 1]
        assert (episode.terminations[-1], episode.truncations.any()) == (True, False)
    first, second = dataset.storage.get_episode_metadata([0, 1])
    assert (first["trial_id"], first["seed"], first["options"]) == ("one", 3, {"level": 1, "deep": {"er": "[1, 2]"}})
    assert "seed" not in second


@pytest.mark.parametrize("turns", [False, True])
async def test_each_actor_and_all_together(turns: bool) -> None:
    game = Duel(6, turns=turns, out_at=3)
    async with recording(game) as platform:
        await play(platform, game)
        done = await export_async(platform, minari="duel-v0")
    assert done.minari == ["duel-v0", "duel-player_0-v0", "duel-player_1-v0"]
    joint, first, second = (minari.load_dataset(name)[0] for name in done.minari)
    if turns:
        assert (first.actions.tolist(), second.actions.tolist()) == ([0, 2, 1], [1])
        # Until the next turn, and 32 bits would not do.
        assert first.rewards.tolist() == [0.1 * 1 + 0.1 * 2, 0.1 * 3 + 0.1 * 4, 0.1 * 5 + 0.1 * 6]
        assert second.rewards.tolist() == [-0.2 + -(0.1 * 3)]
    else:
        assert (first.actions.tolist(), second.actions.tolist()) == ([0, 1, 2, 0, 1, 2], [0, 1, 2])
    assert (second.terminations[-1], second.truncations.any()) == (True, False)
    assert joint.actions.keys() == {"player_0", "player_1"}
    assert joint.infos["acted"]["player_1"].tolist() == [
        bool(tick < 3 and (not turns or tick % 2)) for tick in range(7)
    ]
    assert joint.infos["alive"]["player_1"].tolist() == [tick <= 3 for tick in range(7)]
    assert joint.rewards.tolist() == pytest.approx([0, 0, 0, 0.4, 0.5, 0.6])
    assert (joint.terminations.tolist(), joint.truncations.any()) == ([False] * 5 + [True], False)
    for agent in game.agents:
        for tick, image in enumerate(joint.observations[agent]["image"]):
            assert np.array_equal(image, game.told[0][tick][agent].value["image"])


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (Sequence(Discrete(2)), "observation: Minari has no Sequence"),
        (Dict({"a": Tuple([Graph(Box(0, 1, (1,)), None)])}), r"observation\['a'\]\[0\]: Minari has no Graph"),
        (Tuple([OneOf([Discrete(2)])]), r"observation\[0\]: Minari has no OneOf"),
        (Dict({"a/b": Discrete(2)}), "expected keys that HDF5 has"),
        (Dict({"a": Discrete(2), "b": Tuple([Dict({"": Dict({})})])}), "expected keys that HDF5 has, .* got ''"),
        (Box(0, 1, (0, 2)), r"expected arrays with elements, got the shape \(0, 2\)"),
    ],
)
async def test_what_minari_has_not(space: Space, text: str, folder: Path) -> None:
    game = Solo(space)
    async with recording(game) as platform:
        await play(platform, game)
        with pytest.raises(InvalidArgumentError, match=f"minari: actor 'player_0': .*{text}"):
            await export_async(platform, minari="tests/solo-v0")
    assert metadata_in(folder) == []


async def test_a_data_set_that_is_there(folder: Path) -> None:
    game = Solo()
    async with recording(game) as platform:
        await play(platform, game)
        await export_async(platform, minari="tests/solo-v0")
        with pytest.raises(AlreadyExistsError, match="minari: tests/solo-v0 exists already"):
            await export_async(platform, minari="tests/solo-v0")
        await play(platform, game)
        await export_async(platform, minari="tests/solo-v0", overwrite=True)
        for wrong in ("solo", "so lo-v0", "a/solo-v0"):
            with pytest.raises(InvalidArgumentError, match=r"a namespace \(of two characters or more\), a name"):
                await export_async(platform, minari=wrong)
        with pytest.raises(InvalidArgumentError, match=r"minari_metadata: expected some of .*; got 'colour'"):
            await export_async(platform, minari="solo-v0", minari_metadata={"colour": "red"})
    assert minari.load_dataset("tests/solo-v0").total_episodes == 2
    assert [name for name in os.listdir(folder / "tests") if name.startswith((".", "solo"))] == ["solo-v0"]


async def test_trials_of_several_environments(folder: Path) -> None:
    """Each has data sets of its own."""
    game, other = Duel(), Solo()
    other.name = "Solo: v1"
    async with recording(game) as platform:
        await play(platform, game)
        platform.participants.register_environment(environment_of(other), "other")
        params = params_of(other)
        params.environment.implementation = "other"
        await platform.controller.wait_trial(await platform.controller.start_trial(params))
        done = await export_async(platform, minari="tests/mixed-v0")
        assert done.minari == [
            "tests/Duel-v0/mixed-v0",
            *("tests/Duel-v0/mixed-player_0-v0", "tests/Duel-v0/mixed-player_1-v0"),
            "tests/Solo_v1/mixed-v0",
        ]
        for name in done.minari:
            assert minari.load_dataset(name).total_episodes == 1
        with pytest.raises(AlreadyExistsError, match="tests/Duel-v0/mixed-v0 exists already"):
            await export_async(platform, minari="tests/mixed-v0")
        params.environment.config.content = EnvironmentConfig(id="Solo_v1").SerializeToString()
        await platform.controller.wait_trial(await platform.controller.start_trial(params))
        with pytest.raises(InvalidArgumentError, match="names that differ in an id, got"):
            await export_async(platform, minari="tests/mixed-v1")
    assert len(metadata_in(folder)) == 4


@pytest.mark.parametrize("names", [("A", "B"), ("/", "b/"), ("-", "."), ("A", "A_1"), ("a//b", "../c")])
async def test_environments_with_names_that_no_namespace_has(names: tuple[str, str]) -> None:
    """An id that Minari takes is not refused for the names of environments."""
    async with recording(Solo()) as platform:
        for name in names:
            game = Solo()
            game.name = name
            platform.participants.register_environment(environment_of(game), name)
            params = params_of(game)
            params.environment.implementation = name
            await platform.controller.wait_trial(await platform.controller.start_trial(params))
        done = await export_async(platform, minari="duel-v0")
    assert len(done.minari) == 2
    for dataset_id in done.minari:
        assert minari.load_dataset(dataset_id).total_episodes == 1


@given(st.text(max_size=12), st.sampled_from(["duel-v0", "rps/duel-v0", "a/b/_-v12"]))
def test_an_id_with_any_name_in_it_is_one_of_minari(name: str, dataset_id: str) -> None:
    namespace, _, version = parse_dataset_id(exports.id_of_environment(dataset_id, name))
    assert (namespace or "").startswith(dataset_id.rpartition("/")[0])
    assert version == parse_dataset_id(dataset_id)[2]


async def test_trials_of_one_environment_with_other_actors() -> None:
    game, other = Duel(), Solo()
    other.name = game.name
    async with recording(game) as platform:
        await play(platform, game)
        platform.participants.register_environment(environment_of(other), "other")
        params = params_of(other)
        params.environment.implementation = "other"
        await platform.controller.wait_trial(await platform.controller.start_trial(params))
        with pytest.raises(
            InvalidArgumentError, match="expected the actors player_0, player_1 of the trials before it"
        ):
            await export_async(platform, minari="tests/mixed-v0")


@given(minari_spaces, generators)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_values_are_stacked_and_taken_apart(space: Space, generator: np.random.Generator) -> None:
    values = [space.sample(generator) for _ in range(3)]
    whole = stacked(space, values, "observation")
    for place, value in enumerate(values):
        assert same(_part(space, whole, place), value)
    nothing = filler(space)
    assert same(space.check(nothing), nothing)


def metadata_in(folder: Path) -> list[Path]:
    return list(folder.rglob("metadata.json"))


def hdf5_can(space: Space) -> bool:
    """Whether Minari can, and its files: they have no texts with null characters."""
    try:
        check_minari(space, "player_0", "observation")
        to_gymnasium(space)
    except InvalidArgumentError:
        return False
    nested: Mapping[Any, Space] = dict(space.leaves())
    return bool(nested) and not any(isinstance(leaf, Text) and "\0" in leaf.charset for leaf in nested.values())


@given(space=minari_spaces.filter(hdf5_can), generator=generators)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=25)
def test_values_survive_minari(space: Space, generator: np.random.Generator, folder: Path) -> None:
    values = [space.sample(generator) for _ in range(3)]
    shutil.rmtree(folder / "any-v0", ignore_errors=True)
    kinds = to_gymnasium(space), to_gymnasium(Discrete(2))
    dataset = DatasetFiles(minari, "any-v0", kinds, {}, {"actors": ["player_0"], "joint": False})
    actions = [np.int64(0), np.int64(1)]
    one = Episode(stacked(space, values, ""), stacked(Discrete(2), actions, ""), [0.5, 1], [False] * 2, [False, True])
    dataset.add(TrialRecord.of(StoredTrial("trial", "ann", 5, 3, TrialParams()), 0), one)
    dataset.flush()
    put_in_place([Placement(dataset.complete(), dataset.target, overwrite=False)])
    found = MinariRecordings("any-v0").episode(0)
    for tick, value in enumerate(values):
        back = found.told["player_0"][tick].value
        assert same(space.check(back), value)
