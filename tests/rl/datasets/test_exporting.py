"""Stored trials as Parquet files: what is in them, and what is left when something goes wrong."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import trio
import trio.testing

import trio_cogment.rl as tc
from tests.rl.datasets.recorded import Duel, fill, params_of, play, recording
from tests.spaces.strategies import same
from trio_cogment import ActorSession, EnvironmentSession, Participants, actor_params, open_platform
from trio_cogment.api.spaces_pb2 import Array, DType
from trio_cogment.base.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    LocalProtocolError,
    NotFoundError,
    TrialIncompleteError,
)
from trio_cogment.base.stand_ins import StandIn, stand_in_note
from trio_cogment.rl import (
    Exported,
    ExportProgress,
    export,
    export_async,
    read_steps,
    read_steps_async,
    replay_environment,
)
from trio_cogment.rl.datasets import parquet as parquet_module
from trio_cogment.rl.datasets import step_groups, tables
from trio_cogment.rl.datasets.minari import MinariWriter
from trio_cogment.rl.datasets.placing import Placement
from trio_cogment.sdk import EventType, trial_params
from trio_cogment.sdk.spec import ActorClass, Spec
from trio_cogment.spaces import Box, Discrete, Space, encode_action, from_jsonable


async def test_a_trial_as_parquet(tmp_path: Path) -> None:
    game = Duel(out_at=3)
    seen: list[ExportProgress] = []
    async with recording(game) as platform:
        await play(platform, game, "one", seed=7, options={"level": 2}, properties={"policy.player_1": "rps@3"})
        await play(platform, game, "two")
        done = await export_async(platform, parquet=tmp_path / "data", progress=seen.append)
    assert done == Exported(trials=2, samples=14, steps=18, parquet=tmp_path / "data")
    assert seen[-1] == ExportProgress(2, 14, 2, 14)
    assert files_in(tmp_path) == [
        "data/README.md",
        "data/data/file-00000.parquet",
        "data/meta/info.json",
        "data/meta/trials.parquet",
    ]
    table = pads.dataset(tmp_path / "data" / "data").to_table()
    assert table.column_names[:13] == [
        *("trial_id", "episode_index", "tick", "actor", "actor_class", "implementation", "is_human"),
        *("observation.image", "observation.position", "action", "reward", "terminated", "truncated"),
    ]
    rows = table.to_pylist()
    keys = [(row["trial_id"], row["tick"], row["actor"]) for row in rows]
    assert keys == sorted(keys)
    assert len(keys) == 22
    for row in rows:
        told = game.told[row["episode_index"]][row["tick"]][row["actor"]]
        assert np.array_equal(np.array(row["observation.image"], np.uint8), told.value["image"])
        assert row["observation.position"] == told.value["position"].tolist()
        if not row["is_last"]:
            after = game.told[row["episode_index"]][row["tick"] + 1][row["actor"]]
            # All 64 bits.
            assert (row["reward"], row["terminated"]) == (after.reward, after.terminated)
            assert row["action"] == game.actions[row["episode_index"]][row["tick"]][row["actor"]]
    assert {row["policy"] for row in rows if row["trial_id"] == "one"} == {None, "rps@3"}


class Boxed(gymnasium.Env[Any, Any]):
    """Arrays both ways."""

    observation_space = gymnasium.spaces.Dict(
        {
            "image": gymnasium.spaces.Box(0, 255, (2, 3, 3), np.uint8),
            "position": gymnasium.spaces.Box(-1, 1, (2,), np.float64),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2, 3), np.float32)

    def _observed(self) -> dict[str, Any]:
        image = self.np_random.integers(0, 255, (2, 3, 3), dtype=np.uint8)
        return {"image": image, "position": self.np_random.uniform(-1, 1, 2)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observed(), float(action[0, 0]), False, False, {}


@pytest.fixture
def boxed(tmp_path: Path) -> str:
    """A store with two trials of arrays."""
    store = f"sqlite:{tmp_path / 'trials.db'}"
    seats = {"player_0": tc.random(seed=1)}
    assert not tc.run_trials(2, environment=Boxed, seats=seats, store=store, seeds=0, max_steps=5).failures
    return store


def test_arrays_as_arrows_tensors(boxed: str, tmp_path: Path) -> None:
    """The same values, and the same replay; the last action of each actor is null."""
    export(boxed, parquet=tmp_path / "lists")
    export(boxed, parquet=tmp_path / "data", tensors="fixed_shape_tensor")
    table = pads.dataset(tmp_path / "data" / "data").to_table()
    assert table.schema.field("action").type == pa.fixed_shape_tensor(pa.float32(), (2, 3))
    assert table.schema.field("observation.image").type == pa.fixed_shape_tensor(pa.uint8(), (2, 3, 3))
    assert table.schema.field("observation.position").type == pa.fixed_shape_tensor(pa.float64(), (2,))
    lists = pads.dataset(tmp_path / "lists" / "data").to_table()
    for name in ("action", "observation.image", "observation.position"):
        there = [None if row is None else np.ravel(row).tolist() for row in lists[name].to_pylist()]
        assert [None if row is None else np.ravel(row).tolist() for row in table[name].to_pylist()] == there
        assert (None in there) == (name == "action")
    group = pq.ParquetFile(tmp_path / "data" / "data" / "file-00000.parquet").metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    assert not [column for column in columns if column.is_stats_set and column.physical_type in ("FLOAT", "DOUBLE")]
    one, other = (replay_environment(tmp_path / folder, check_actions=False) for folder in ("lists", "data"))
    told, again = one.reset(None, None), other.reset(None, None)
    while not one.over:
        assert same(told["player_0"].value, again["player_0"].value)
        told, again = one.step({}), other.step({})
    assert other.over


def test_tensors_that_there_are_none_of(boxed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="tensors: expected one of fixed_size_list, fixed_shape_tensor"):
        export(boxed, parquet=tmp_path / "data", tensors="columns")
    monkeypatch.setattr(tables, "keeps_missing_lists", lambda: False)
    with pytest.raises(InvalidArgumentError, match="expected PyArrow 26 or newer, or tensors='fixed_size_list'"):
        export(boxed, parquet=tmp_path / "data", tensors="fixed_shape_tensor")
    assert not (tmp_path / "data").exists()


async def test_files_have_no_bounds_by_which_a_reader_misses_nan(tmp_path: Path) -> None:
    """Parquet's bounds leave NaN out, and DuckDB skips row groups by them: no row has a NaN for it."""
    async with recording(Duel()) as platform:
        await play(platform, Duel(), "one")
        await export_async(platform, parquet=tmp_path / "data")
    for file in ("data/file-00000.parquet", "meta/trials.parquet"):
        group = pq.ParquetFile(tmp_path / "data" / file).metadata.row_group(0)
        columns = [group.column(place) for place in range(group.num_columns)]
        bounded = {column.path_in_schema for column in columns if column.is_stats_set}
        assert {"trial_id", "episode_index"} <= bounded, "these are what rows are looked for by"
        assert not [column for column in columns if column.is_stats_set and column.physical_type in ("FLOAT", "DOUBLE")]


async def test_what_acted_for_a_person_was_no_person(tmp_path: Path) -> None:
    """Nor was the default action that the orchestrator took."""

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"go")])
        async for event in session.all_events():
            if event.actions is not None:
                send = session.end if event.tick_id == 3 else session.produce_observations
                await send([("*", b"go on")])

    async def seat(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                for tick, stand_in in ((1, StandIn.BOT), (2, StandIn.DEFAULT)):
                    if event.tick_id == tick:
                        await session.send_message(stand_in_note(stand_in), session.name)
                await session.do_action(b"acted")

    async with open_platform(store="memory:") as platform:
        platform.participants.register_environment(environment)
        params = trial_params([actor_params("ann", "player", endpoint="cogment://client")])
        trial = await platform.controller.start_trial(params)
        await platform.join_trial(trial, seat, actor_name="ann")
        await platform.controller.wait_trial(trial)
        await export_async(platform, parquet=tmp_path / "data")
    rows = pads.dataset(tmp_path / "data" / "data").to_table().to_pylist()
    assert [(row["is_human"], row["default_action"]) for row in rows if row["action"] is not None] == [
        (True, False),
        (False, False),
        (False, True),
        (True, False),
    ]


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def test_what_the_metadata_say(tmp_path: Path) -> None:
    game = Duel(out_at=3)
    async with recording(game) as platform:
        await play(platform, game, "one", seed=7, options={"level": 2})
        await export_async(platform, parquet=tmp_path / "data")
    info = json.loads((tmp_path / "data/meta/info.json").read_text())
    lines = (tmp_path / "data/meta/info.json").read_text().splitlines()
    assert '        "observation.position": {"dtype": "float64", "shape": [2]},' in lines
    # An image has thousands of bounds.
    assert len(lines) < 100
    (group,) = info["groups"]
    assert (info["total_trials"], info["total_steps"], info["total_rows"]) == (1, 9, 11)
    assert from_jsonable(group["observation_space"]) == game.observation_spaces["player_0"]
    assert from_jsonable(group["action_space"]) == game.action_spaces["player_0"]
    assert group["features"]["observation.image"] == {"dtype": "uint8", "shape": [40, 32, 3]}
    (trial,) = pq.read_table(tmp_path / "data/meta/trials.parquet").to_pylist()
    assert (trial["environment"], trial["seed"], trial["options"]) == ("Duel-v0", 7, '{"level": 2}')
    assert (trial["state"], trial["end_cause"], trial["complete"]) == ("ENDED", "environment", True)
    first, second = trial["actors"]
    assert (first["steps"], second["steps"], second["terminated"], second["truncated"]) == (6, 3, True, False)
    assert first["total_reward"] == pytest.approx(2.1)
    readme = (tmp_path / "data/README.md").read_text()
    assert readme.startswith('---\nconfigs:\n- config_name: default\n  data_files: "data/*.parquet"\n')


class Uneven(Duel):
    """The players observe and do different things."""

    def __init__(self) -> None:
        super().__init__(4, out_at=None)
        spaces: Mapping[str, Space] = {"player_0": Box(0, 1, (2,), np.float32), "hunter_0": Discrete(5)}
        self.agents = list(spaces)
        self.observation_spaces = spaces
        self.action_spaces = dict.fromkeys(spaces, Discrete(3))


async def test_each_form_of_steps_has_its_own_files(tmp_path: Path) -> None:
    game = Uneven()
    async with recording(game) as platform:
        await play(platform, game)
        await export_async(platform, parquet=tmp_path / "data")
    hunters = pads.dataset(tmp_path / "data/data/hunter").to_table()
    assert set(hunters.column("actor").to_pylist()) == {"hunter_0"}
    assert str(hunters.schema.field("observation").type) == "int64"
    assert (tmp_path / "data/data/player/file-00000.parquet").exists()
    assert 'config_name: hunter\n  data_files: "data/hunter/*.parquet"' in (tmp_path / "data/README.md").read_text()


async def test_steps_are_read_as_the_tables_of_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_groups, "ROW_GROUP_ROWS", 5)
    game = Uneven()
    async with recording(game) as platform:
        await play(platform, game, "one")
        await play(platform, game, "two")
        for source in (platform, platform.datastore_client()):
            for chosen in (None, ["two"]):
                await export_async(source, parquet=tmp_path / "data", trials=chosen, overwrite=True)
                found = await read_steps_async(source, trials=chosen)
                assert list(found) == ["player", "hunter"]
                for name, table in found.items():
                    assert table.equals(pq.read_table(tmp_path / "data" / "data" / name))
        with pytest.raises(NotFoundError, match="trials: 'nobody': not in the datastore"):
            await read_steps_async(platform, trials=["nobody"])
        with pytest.raises(LocalProtocolError, match=r"read_steps: expected it outside of Trio; .* read_steps_async"):
            read_steps(platform)
        with pytest.raises(InvalidArgumentError, match="tensors: expected one of"):
            await read_steps_async(platform, tensors="other")  # type: ignore[arg-type]  # that is the mistake


async def test_row_groups_and_files_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_groups, "ROW_GROUP_ROWS", 5)
    monkeypatch.setattr(parquet_module, "FILE_BYTES", 40_000)
    game = Duel(out_at=3)
    async with recording(game) as platform:
        await play(platform, game)
        await play(platform, game)
        await export_async(platform, parquet=tmp_path / "data")
    files = sorted((tmp_path / "data/data").iterdir())
    assert [file.name for file in files] == ["file-00000.parquet", "file-00001.parquet", "file-00002.parquet"]
    sizes = [
        pq.ParquetFile(file).metadata.row_group(number).num_rows
        for file in files
        for number in range(pq.ParquetFile(file).num_row_groups)
    ]
    assert sizes == [5, 5, 5, 5, 2]


async def test_a_trial_that_is_broken_off_or_still_runs(tmp_path: Path) -> None:
    game = Duel(4)
    async with recording(game, actor=waits_at(2)) as platform:
        trial_id = await platform.controller.start_trial(params_of(game), trial_id="cut")
        while len(game.actions) < 1 or len(game.actions[0]) < 2:
            await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(NotFoundError, match=r"there is none that has ended"):
            await export_async(platform, parquet=tmp_path / "running")
        with pytest.raises(TrialIncompleteError, match="trial 'cut' has not ended"):
            await export_async(platform, parquet=tmp_path / "running", trials=["cut"])
        await platform.controller.terminate_trial(trial_id, hard=True)
        await platform.controller.wait_trial(trial_id, check=False)
        await export_async(platform, parquet=tmp_path / "cut")
    assert not (tmp_path / "running").exists()
    rows = pq.read_table(tmp_path / "cut/data").to_pylist()
    assert [(row["tick"], row["truncated"], row["is_last"]) for row in rows if row["actor"] == "player_0"] == [
        (0, False, False),
        (1, True, False),
        (2, False, True),
    ]
    (trial,) = pq.read_table(tmp_path / "cut/meta/trials.parquet").to_pylist()
    assert trial["end_cause"] == "hard_termination"


def waits_at(tick: int) -> Any:
    """Return an actor that acts until a tick."""

    async def implementation(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.type is EventType.ACTIVE and event.observation is not None and event.tick_id < tick:
                await session.do_action(encode_action(np.int64(1)))

    return implementation


async def world(session: EnvironmentSession) -> None:
    """Of another project: its observations are arrays, and no values of spaces."""
    observation = Array(dtype=DType.DTYPE_INT8, shape=[2], raw_data=b"\1\2")
    await session.start([("*", observation.SerializeToString())])
    async for event in session.all_events():
        if event.actions is not None and event.type is EventType.ACTIVE:
            await session.add_reward(0.5, 1.0, ["bob"])
            await session.end([("*", observation.SerializeToString())])


async def robot(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None and event.type is EventType.ACTIVE:
            await session.do_action(Array(shape=[7]).SerializeToString())


async def test_trials_of_other_projects(tmp_path: Path) -> None:
    participants = Participants()
    participants.register_environment(world, "world")
    participants.register_actor(robot, "robot")
    params = trial_params(
        [actor_params("bob", "robot", implementation="robot")],
        environment="world",
        datalog_endpoint="cogment://discover",
    )
    spec = Spec.of(ActorClass("robot", observation=Array, action=Array))
    async with open_platform(participants, store="memory:") as platform:
        await platform.controller.wait_trial(await platform.controller.start_trial(params))
        await export_async(platform, parquet=tmp_path / "bytes")
        await export_async(platform, parquet=tmp_path / "json", spec=spec)
        with pytest.raises(InvalidArgumentError, match=r"actor 'bob': expected spaces with its first observation"):
            await export_async(platform, minari="tests/other-v0")
    first, last = pq.read_table(tmp_path / "bytes/data").to_pylist()
    assert Array.FromString(first["observation"]).raw_data == b"\1\2"
    assert Array.FromString(first["action"]).shape == [7]
    assert (first["reward"], first["terminated"], last["is_terminal"]) == (0.5, True, True)
    first, _ = pq.read_table(tmp_path / "json/data").to_pylist()
    assert json.loads(first["action"])["shape"] == [7]
    assert json.loads(first["observation"])["dtype"] == "DTYPE_INT8"


async def test_a_file_of_trials_by_its_address(tmp_path: Path) -> None:
    game, address = Duel(), f"sqlite:{tmp_path / 'trials.db'}"
    async with recording(game, store=address) as platform:
        await play(platform, game)
    with pytest.raises(LocalProtocolError, match="await export_async"):
        export(address, parquet=tmp_path / "data")
    done = await trio.to_thread.run_sync(lambda: export(address, parquet=tmp_path / "data"))
    assert (done.trials, done.samples) == (1, 7)


def test_steps_of_a_file_are_read_without_trio(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'trials.db'}"
    trio.run(partial(fill, address, trials=2, ticks=40))
    export(address, parquet=tmp_path / "data", tensors="fixed_shape_tensor")
    found = read_steps(address, tensors="fixed_shape_tensor")
    assert list(found) == ["default"]
    assert found["default"].equals(pq.read_table(tmp_path / "data" / "data"))


def test_errors_of_the_script_come_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"source: there is no file '.*nothing\.db'"):
        export(f"sqlite:{tmp_path}/nothing.db", parquet=tmp_path / "data")
    with pytest.raises(InvalidArgumentError, match="'memory:' has no trials"):
        export("memory:", parquet=tmp_path / "data")
    with pytest.raises(InvalidArgumentError, match="expected a folder for parquet, an id for minari, or a folder"):
        export("memory:")
    with pytest.raises(InvalidArgumentError, match="source: expected a client, a platform or an address, got int"):
        export(3, parquet=tmp_path / "data")  # type: ignore[arg-type]  # that is the mistake
    expected = "source: expected 'sqlite:FILE' or 'grpc://host:port', got "
    for address, got in (
        ("host:9000", "'host:9000'; did you mean 'grpc://host:9000'?"),
        ("trials.db", "'trials.db'; did you mean 'sqlite:trials.db'?"),
        ("strange:secret", "the scheme 'strange'"),
    ):
        with pytest.raises(InvalidArgumentError, match=f"^{re.escape(expected + got)}$"):
            export(address, parquet=tmp_path / "data")
    assert not list(tmp_path.iterdir())


async def test_a_target_that_is_there(tmp_path: Path) -> None:
    game, target = Duel(), tmp_path / "data"
    target.mkdir()  # an empty folder is as good as none
    async with recording(game) as platform:
        await play(platform, game, "one")
        await export_async(platform, parquet=target)
        with pytest.raises(AlreadyExistsError, match=r"data exists already; overwrite=True \(--overwrite\) replaces"):
            await export_async(platform, parquet=target)
        await play(platform, game, "two")
        await export_async(platform, parquet=target, overwrite=True)
        with pytest.raises(NotFoundError, match="trials: 'three': not in the datastore"):
            await export_async(platform, parquet=target, overwrite=True, trials=["one", "three"])
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.tex").write_text("")
        with pytest.raises(FailedPreconditionError, match="mine is not a data set, so it is not replaced"):
            await export_async(platform, parquet=tmp_path / "mine", overwrite=True)
    assert pq.read_table(target / "meta/trials.parquet").column("trial_id").to_pylist() == ["one", "two"]
    assert sorted(os.listdir(tmp_path)) == ["data", "mine"]


async def test_a_target_with_files_of_others_is_not_replaced(tmp_path: Path) -> None:
    game, target = Duel(), tmp_path / "data"
    late = target / "data" / "late.npy"

    def disturb(progress: ExportProgress) -> None:
        late.write_text("")

    async with recording(game) as platform:
        await play(platform, game, "one")
        await export_async(platform, parquet=target)
        with pytest.raises(FailedPreconditionError, match=r"files that are not of the data set: data/late\.npy; so"):
            await export_async(platform, parquet=target, overwrite=True, progress=disturb)
        late.unlink()
        (target / "duel" / "deep").mkdir(parents=True)
        (target / "notes.txt").write_text("mine")
        (target / "meta" / "link").symlink_to(tmp_path)
        with pytest.raises(FailedPreconditionError, match=r"set: duel, meta/link, notes\.txt; so it is not replaced"):
            await export_async(platform, parquet=target, overwrite=True)
        for number in range(4):
            (target / f"w{number}").write_text("")
        with pytest.raises(FailedPreconditionError, match=r"duel, meta/link, notes\.txt, w0, w1 and 2 more; so"):
            await export_async(platform, parquet=target, overwrite=True)
    assert (target / "notes.txt").read_text() == "mine"
    assert (target / "duel" / "deep").is_dir()
    assert sorted(os.listdir(tmp_path)) == ["data"]


async def test_what_is_no_list_of_files_names_none(tmp_path: Path) -> None:
    game, target = Duel(), tmp_path / "data"
    async with recording(game) as platform:
        await play(platform, game, "one")
        await export_async(platform, parquet=target)
        (target / "meta" / "info.json").write_text('{"format": "trio-cogment-steps", "groups": 3}')
        with pytest.raises(FailedPreconditionError, match="not of the data set: data; so"):
            await export_async(platform, parquet=target, overwrite=True)


@pytest.mark.parametrize("fault", ["error", "cancelled"])
async def test_an_export_that_fails_leaves_nothing(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    game, target = Duel(), tmp_path / "data"
    async with recording(game) as platform:
        await play(platform, game, "one")
        await export_async(platform, parquet=target)
        await play(platform, game, "two")
        with trio.CancelScope() as scope:

            def fail(progress: ExportProgress) -> None:
                assert len(os.listdir(tmp_path)) == 2
                if progress.trials == 1:
                    scope.cancel()
                    if fault == "error":
                        raise OSError("no space left on device")

            try:
                await export_async(platform, parquet=target, overwrite=True, progress=fail)
            except OSError:
                assert fault == "error"
        assert scope.cancelled_caught == (fault == "cancelled")
    assert os.listdir(tmp_path) == ["data"]
    assert pq.read_table(target / "meta/trials.parquet").num_rows == 1


@pytest.mark.parametrize("fault", ["finish", "place"])
async def test_if_one_data_set_fails_the_other_is_not_there(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    game, target, there = Duel(), tmp_path / "data", tmp_path / "minari" / "tests" / "duel-player_1-v0"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    async with recording(game) as platform:
        await play(platform, game, "one")
        await export_async(platform, parquet=target)
        await play(platform, game, "two")
        finish = MinariWriter.finish

        def failing(writer: MinariWriter) -> list[Placement]:
            written = finish(writer)
            if fault == "finish":
                raise OSError("no space left on device")
            there.mkdir()
            (there / "mine").write_text("")
            return written

        monkeypatch.setattr(MinariWriter, "finish", failing)
        folder, expected = (target, OSError) if fault == "finish" else (tmp_path / "other", AlreadyExistsError)
        with pytest.raises(expected):
            await export_async(platform, parquet=folder, minari="tests/duel-v0", overwrite=fault == "finish")
    assert pq.read_table(target / "meta/trials.parquet").num_rows == 1
    assert sorted(os.listdir(tmp_path)) == ["data", "minari"]
    names = [name for name in os.listdir(there.parent) if name.endswith("v0")]
    assert names == ([] if fault == "finish" else [there.name])


async def test_a_killed_export_leaves_no_data_set(tmp_path: Path) -> None:
    game = Duel()
    async with recording(game, store=f"sqlite:{tmp_path / 'trials.db'}") as platform:
        await play(platform, game)
    code = (
        "import os, sys; from trio_cogment.rl import export\n"
        "export(sys.argv[1], parquet=sys.argv[2], progress=lambda _: os._exit(9))"
    )
    arguments = [f"sqlite:{tmp_path / 'trials.db'}", str(tmp_path / "data")]
    done = await trio.run_process([sys.executable, "-c", code, *arguments], check=False)
    assert done.returncode == 9
    assert not (tmp_path / "data").exists()
    assert [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


async def test_without_the_extra(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules[{0!r}] = None\nimport trio_cogment.rl.datasets.{1}\ntrio_cogment.rl.datasets.{1}.{2}"
    )
    for module, name, call, extra in (
        ("pyarrow", "parquet", "ParquetWriter('x')", "export"),
        ("minari", "minari", "MinariWriter('x-v0')", "minari"),
        ("h5py", "minari", "MinariWriter('x-v0')", "minari"),
    ):
        command = [sys.executable, "-c", code.format(module, name, call)]
        done = await trio.run_process(command, check=False, capture_stderr=True, cwd=tmp_path)
        assert f"pip install 'trio-cogment[{extra}]'" in done.stderr.decode()
        assert "MissingExtraError" in done.stderr.decode()


async def grown(folder: Path, *, trials: int, ticks: int) -> tuple[int, float]:
    """Export this many samples from a file; return how many they were, and by how many MiB the process has grown."""
    address = f"sqlite:{folder / 'trials.db'}"
    await fill(address, trials=trials, ticks=ticks)
    command = [sys.executable, "-m", "tests.rl.datasets.growth", address, str(folder / "data")]
    done = await trio.run_process(command, capture_stdout=True)
    samples, mib, _ = done.stdout.split()
    return int(samples), float(mib)


#: What an export may hold in memory, whatever the number of samples.
MIB = 150


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("trials", "ticks"), [(1000, 1000), (1, 1_000_000)])
async def test_a_million_samples_take_no_more_memory(tmp_path: Path, trials: int, ticks: int) -> None:
    samples, mib = await grown(tmp_path, trials=trials, ticks=ticks)
    assert samples == 1_000_000
    assert mib < MIB
    files = sorted((tmp_path / "data/data").glob("*"))
    assert sum(pq.ParquetFile(file).metadata.num_rows for file in files) == 1_000_000
