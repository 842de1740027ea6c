"""Files of the steps and episodes of a run."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import trio
import trio.testing

from tests.trainer.bench import serving, steps
from trio_cogment.api.trainer.trainer_pb2 import RunEpisode, RunStep
from trio_cogment.base.errors import FailedPreconditionError, NotFoundError
from trio_cogment.trainer import TrainerClient
from trio_cogment.trainer.exporting import export_run


async def test_a_run_becomes_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_cogment.trainer.exporting._ROWS", 2)
    async with serving() as (bench, _):
        await bench.submit("a")
        await bench.register("a")
        last = RunStep(run_id="a", worker_id="w", step_index=4)
        last.timestamp.FromNanoseconds(3_000_000_007)
        await bench.publish([*steps("a", 4), last])
        await bench.publish([RunEpisode(run_id="a", worker_id="w", total_reward=2.5, terminated=True)], kind="Episodes")
        client = TrainerClient(bench.channel)
        with pytest.raises(FailedPreconditionError, match="run 'a' goes on"):
            await export_run(client, "a", tmp_path / "out")
        with pytest.raises(NotFoundError):
            await export_run(client, "b", tmp_path / "out")
        assert not (tmp_path / "out").exists()
        await client.cancel("a")
        assert await export_run(client, "a", tmp_path / "out") == {"steps": 5, "episodes": 1}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["episodes.parquet", "steps.parquet"]
    table = pq.read_table(tmp_path / "out" / "steps.parquet").to_pydict()
    assert list(table) == [field.name for field in RunStep.DESCRIPTOR.fields]
    assert (table["step_index"], table["seq_id"]) == ([0, 1, 2, 3, 4], [1, 2, 3, 4, 5])
    assert (table["reward"], table["terminated"]) == ([1.0] * 4 + [0.0], [False] * 5)
    assert table["timestamp"][-1] == 3_000_000_007
    assert pq.ParquetFile(tmp_path / "out" / "steps.parquet").num_row_groups == 3
    (episode,) = pq.read_table(tmp_path / "out" / "episodes.parquet").to_pylist()
    assert (episode["total_reward"], episode["terminated"], episode["seq_id"]) == (2.5, True, 1)


async def test_a_run_that_goes_on_is_exported_when_it_has_ended(tmp_path: Path) -> None:
    async with serving() as (bench, _):
        await bench.submit("a")
        await bench.register("a")
        counts: list[dict[str, int]] = []

        async def export() -> None:
            counts.append(await export_run(TrainerClient(bench.channel), "a", tmp_path, wait=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(export)
            await trio.testing.wait_all_tasks_blocked()
            await bench.publish(steps("a", 2))
            assert not counts
            await bench.cancel("a")
        assert counts == [{"steps": 2, "episodes": 0}]
