"""Columns say what steps say: an export of a storage, which is read in columns, is that of calls, bit for bit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trio_cogment.rl as tc
from trio_cogment import actor_params, open_platform
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trial_datastore_pb2 import (
    StoredTrialActorSample,
    StoredTrialActorSampleReward,
    StoredTrialSample,
)
from trio_cogment.rl import RL_SPEC, export_async
from trio_cogment.rl.datasets import exporting, step_groups
from trio_cogment.rl.datasets import parquet as parquet_module
from trio_cogment.sdk import trial_params
from trio_cogment.servers.datastore import columns as columns_module
from trio_cogment.servers.datastore.chunks import ChunkCodec, ChunkSample
from trio_cogment.servers.datastore.columns import LEAST_RUN, ChunkPage, Run, runs
from trio_cogment.servers.datastore.storage import EndWrite, SampleWrite, StoredSample, TrialEnd, TrialWrite, WriteKind
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Observation,
    Space,
    Text,
    Tuple,
    encode_action,
    encode_observation,
)

SPACES: list[Space] = [
    Discrete(4),
    Box(-1, 1, (3,), np.float32),
    Box(0, 255, (2, 2), np.uint8),
    Box(-1, 1, (), np.float64),
    MultiBinary(3),
    MultiDiscrete([2, 3]),
    Dict({"b": Box(-1, 1, (2,), np.float32), "a": Discrete(3)}),
    Tuple([Discrete(2), Dict({"x": Box(0, 1, (1, 2), np.float16)})]),
    Text(3),
]
ACTORS = ("ann", "bob")

#: What makes a tick unusual.
ODD = (
    *("no action", "info", "mask", "no reward", "other's reward", "inactive", "out", "gap", "default", "terminated"),
    *("zero reward", "float action", "message", "spaces again"),
)


def stored_samples(
    observed: Space, acted: Space, length: int, odd: dict[int, str], spaced: int, both: bool
) -> list[StoredTrialSample]:
    generator = np.random.default_rng(length)
    spaces: Any = {"observation_space": observed, "action_space": acted}
    samples = []
    tick_id = spaced
    for number in range(length):
        what = odd.get(number, "")
        tick_id += 2 if what == "gap" else 1
        sample = StoredTrialSample(trial_id="t", tick_id=tick_id, timestamp=1000 + number, state=TrialState.RUNNING)
        for index, _ in enumerate(ACTORS[: 1 + both]):
            special = what if index == 0 else ""
            told = Observation(
                observed.sample(generator),
                reward=None if special == "no reward" else 0.0 if special == "zero reward" else 0.1 * number - 1,
                terminated=special == "terminated",
                action_mask=np.ones(4, np.int8) if special == "mask" and isinstance(acted, Discrete) else None,
                info={"n": number} if special == "info" else {},
                active=special != "inactive",
                alive=special != "out",
                **(spaces if not number or special == "spaces again" else {}),
            )
            actor = sample.actor_samples.add(actor=index, observation=len(sample.payloads))
            sample.payloads.append(encode_observation(told).SerializeToString())
            if special != "no action":
                actor.action = len(sample.payloads)
                action = acted.sample(generator)
                if special == "float action" and isinstance(acted, Discrete):
                    action = np.int32(action)
                sample.payloads.append(encode_action(action).SerializeToString())
            sender = 1 - index if special == "other's reward" and both else -1
            value = 0.0 if special == "zero reward" else 1.5
            given_ = StoredTrialActorSampleReward(sender=sender, receiver=index, reward=value, confidence=1)
            actor.received_rewards.append(given_)
            actor.reward = value
            if special == "default":
                sample.default_actors.append(index)
            if special == "message":
                actor.received_messages.add(sender=-1, receiver=index, payload=0)
        samples.append(sample)
    if samples:
        samples[-1].state = TrialState.ENDED
    return samples


async def exported(
    samples: list[StoredTrialSample], both: bool, check: Callable[[Any, Any], None], *, chunks: bool = False
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:{folder}/trials.db" if chunks else "memory:"
        await exported_from(store, samples, both, check)


async def exported_from(
    address: str, samples: list[StoredTrialSample], both: bool, check: Callable[[Any, Any], None]
) -> None:
    async with open_platform(RL_SPEC, store=address) as platform:
        assert platform.datastore is not None
        params = trial_params([actor_params(name, "player") for name in ACTORS[: 1 + both]])
        store = platform.datastore.store
        writes: list[Any] = [TrialWrite("t", "u", params, logged=False)]
        for sample in samples:
            data = sample.SerializeToString()
            kind = WriteKind.LOGGED
            writes.append(SampleWrite("t", sample.tick_id, sample.timestamp, sample.state, data, kind))
        await store.apply([*writes, EndWrite("t", TrialEnd.ENDED)])
        with tempfile.TemporaryDirectory() as folder:
            found: list[Any] = []
            for source in (platform, platform.datastore_client()):
                target = Path(folder) / str(len(found))
                try:
                    found.append((await export_async(source, parquet=target), target))
                except Exception as error:  # noqa: BLE001  both have to say the same
                    found.append((str(error), None))
            check(*found)


def same(one: Any, other: Any) -> None:
    if one[1] is None or other[1] is None:
        assert one == other
        return
    assert (one[0].trials, one[0].samples, one[0].steps) == (other[0].trials, other[0].samples, other[0].steps)
    files = sorted(path.relative_to(one[1]) for path in one[1].rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(other[1]) for path in other[1].rglob("*") if path.is_file())
    for path in files:
        if path.suffix == ".parquet":
            left, right = pq.ParquetFile(one[1] / path), pq.ParquetFile(other[1] / path)
            assert left.schema_arrow == right.schema_arrow
            groups = [left.metadata.row_group(number).num_rows for number in range(left.num_row_groups)]
            assert groups == [right.metadata.row_group(number).num_rows for number in range(right.num_row_groups)]
            assert left.read().equals(right.read())
        else:
            assert (one[1] / path).read_bytes() == (other[1] / path).read_bytes()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(SPACES),
    st.sampled_from(SPACES[:-1]),
    st.integers(1, 90),
    st.dictionaries(st.integers(0, 89), st.sampled_from(ODD), max_size=3),
    st.sampled_from([-1, 100, 16350]),
    st.booleans(),
    st.booleans(),
)
def test_an_export_in_columns_is_that_of_samples(
    observed: Space, acted: Space, length: int, odd: dict[int, str], spaced: int, both: bool, chunks: bool
) -> None:
    samples = stored_samples(observed, acted, length, odd, spaced, both)
    trio.run(partial(exported, samples, both, same, chunks=chunks))


@pytest.mark.parametrize("both", [False, True])
async def test_row_groups_end_where_they_do_otherwise(both: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = stored_samples(SPACES[1], Discrete(4), 150, {70: "info"}, 90, both)
    monkeypatch.setattr(step_groups, "ROW_GROUP_ROWS", 37)
    await exported(samples, both, same)
    monkeypatch.setattr(step_groups, "ROW_GROUP_ROWS", 10_000)
    monkeypatch.setattr(step_groups, "ROW_GROUP_BYTES", 5_000)
    await exported(samples, both, same)


async def test_pages_may_end_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = stored_samples(SPACES[6], SPACES[6], 90, {}, 90, True)
    for page in (1, 17, 40):
        monkeypatch.setattr(columns_module, "_PAGE_SAMPLES", page)
        await exported(samples, True, same)


@pytest.mark.parametrize("chunks", [False, True])
async def test_most_of_a_long_episode_is_columns(chunks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    add = parquet_module.ParquetWriter.add_columns

    def noted(writer: Any, columns: Any) -> None:
        taken.append(len(columns[0]))
        add(writer, columns)

    monkeypatch.setattr(parquet_module.ParquetWriter, "add_columns", noted)
    await exported(stored_samples(SPACES[1], Discrete(4), 400, {}, -1, False), False, same, chunks=chunks)
    assert taken == [396]  # the first sample tells the spaces, the last one that it has ended


@pytest.mark.parametrize(("together", "size"), [(64, 1 << 22), (2, 1 << 22), (64, 1), (64, 30_000)])
def test_what_a_view_records_is_read_in_columns(
    together: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "_TRIALS", together)
    monkeypatch.setattr(columns_module, "_PAGE_BYTES", size)
    env = tc.make("CartPole-v1", store=f"sqlite:{tmp_path / 'trials.db'}")
    for seed in (1, None, None):
        values, _ = env.reset(seed=seed)
        for _ in range(150):
            values, _, terminated, _, _ = env.step(int(3 * values[2] + values[3] > 0))
            assert not terminated
    env.close()
    tc.export(f"sqlite:{tmp_path / 'trials.db'}", parquet=tmp_path / "columns")
    monkeypatch.setattr(exporting._Export, "_found", _not_found)
    tc.export(f"sqlite:{tmp_path / 'trials.db'}", parquet=tmp_path / "rows")
    columns, rows = (pq.read_table(tmp_path / name / "data") for name in ("columns", "rows"))
    assert columns.equals(rows)


async def _not_found(_export: Any, _trials: Any) -> dict[str, Any]:
    return {}


@given(st.lists(st.integers(0, 3), max_size=80), st.sampled_from([-1, 120, 16_380]))
def test_runs_are_all_of_the_samples(kinds: list[int], first: int) -> None:
    samples = alike_and_not(kinds, first)
    check_runs(list(runs(samples)), samples)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 25)), min_size=1, max_size=8),
    st.sampled_from([-1, 120, 16_380]),
    st.integers(0, 100),
)
def test_runs_of_a_chunk_are_all_of_its_samples_behind_a_position(
    kinds: list[tuple[int, int]], first: int, after: int
) -> None:
    samples = alike_and_not([kind for kind, count in kinds for _ in range(count)], first)
    chunk = ChunkCodec().encode(
        [ChunkSample(at, tick, StoredTrialSample.FromString(data).timestamp, data) for at, tick, data in samples]
    )
    page = ChunkPage(chunk, "t", after)
    wanted = samples[after:]
    found = list(page.runs())
    check_runs(found, wanted)
    assert [data for run in found for data in page.data(run.start, run.stop)] == [one.data for one in wanted]
    # Those of one kind that follow each other are one run, whatever else is in the chunk.
    at = 0
    for kind, alike in groupby(kind for kind, count in kinds for _ in range(count)):
        stop = at + len(list(alike))
        if kind in (0, 2) and stop - max(at, after) > LEAST_RUN:
            assert any(run.sample is not None and run.stop == stop - after for run in found)
        at = stop


def alike_and_not(kinds: list[int], first: int) -> list[StoredSample]:
    samples = []
    for number, kind in enumerate(kinds):
        tick = first + 1 + number
        actor = StoredTrialActorSample(actor=0, observation=0, reward=float(number))
        message = StoredTrialSample(trial_id="t", tick_id=tick, timestamp=number, actor_samples=[actor])
        message.payloads.append(bytes([number % 256] * (kind // 2 + 1)))
        if kind % 2:
            message.special_events.append("odd")
        samples.append(StoredSample(number + 1, tick, message.SerializeToString()))
    return samples


def check_runs(found: list[Run], samples: list[StoredSample]) -> None:
    assert [place for run in found for place in range(run.start, run.stop)] == list(range(len(samples)))
    for run in found:
        if run.sample is None:
            continue
        assert run.stop - run.start >= LEAST_RUN
        for place in range(run.start, run.stop):
            message = StoredTrialSample()
            message.CopyFrom(run.sample)
            row = place - run.start
            message.tick_id, message.timestamp = int(run.ticks[row]), int(run.timestamps[row])
            message.actor_samples[0].reward = float(run.rewards[0, "reward", -1, "reward"][row])
            message.payloads[0] = run.payloads[0][row].tobytes()
            assert message == StoredTrialSample.FromString(samples[place].data)
