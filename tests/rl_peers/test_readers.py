"""Readers of Parquet, and how they see the arrays of an export: the table of `docs/rl-datasets.md` is what they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.docs.measured_tables import cells, require_table
from trio_cogment.rl.datasets.arrow import parquet_file
from trio_cogment.rl.datasets.tables import SpaceColumns
from trio_cogment.spaces import Box, Dict

pytestmark = pytest.mark.rl_peers

ROWS = 5
SHAPES = {"(4,)": (4,), "(2, 3)": (2, 3)}
KINDS = {"lists of fixed size": "fixed_size_list", "Arrow's `fixed_shape_tensor`": "fixed_shape_tensor"}


def written(shape: tuple[int, ...], kind: str, file: Path) -> None:
    """Write arrays as an export does, with this option for its `tensors`."""
    values = np.arange(ROWS * np.prod(shape), dtype=np.float32).reshape(ROWS, *shape)
    space = Box(-np.inf, np.inf, shape, np.float32)
    columns = SpaceColumns(space, "observation", optional=False, tensors=kind == "fixed_shape_tensor")
    for value in values:
        columns.append(value)
    schema = pa.schema([("observation", columns.columns["observation"].type)])
    with parquet_file(file, schema) as writer:
        writer.write_table(pa.table([columns.columns["observation"].take()], schema=schema))


def described(found: Any) -> str:
    """Return the type and the shape of what a reader gives, and what is within objects."""
    text = f"{found.dtype} {tuple(found.shape)}"
    return f"{text} of {described(found[0])}" if found.dtype == object and isinstance(found[0], np.ndarray) else text


def numbers_of(found: Any) -> Any:
    """Return the first array of numbers, which arrays of objects have within."""
    while found.dtype == object:
        found = found[0]
    return found


def owner_of(found: Any) -> Any:
    """Return the array, or the object of another library, whose memory has the numbers."""
    found = numbers_of(found)
    while isinstance(found, np.ndarray) and found.base is not None:
        found = found.base
    return found


def is_within(found: Any, column: Any) -> bool:
    """Return whether the numbers are where a column of Arrow has them."""
    address = numbers_of(found).__array_interface__["data"][0]
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    buffers = [buffer for chunk in chunks for buffer in chunk.buffers() if buffer is not None]
    return any(buffer.address <= address < buffer.address + buffer.size for buffer in buffers)


def by_pyarrow(file: Path, shape: tuple[int, ...]) -> tuple[Any, bool]:
    column = pq.read_table(file)["observation"].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    tensors = hasattr(column, "to_numpy_ndarray")
    found = column.to_numpy_ndarray() if tensors else column.to_numpy(zero_copy_only=False)
    return found, is_within(found, column.storage if tensors else column)


def by_pandas(file: Path, shape: tuple[int, ...]) -> tuple[Any, bool]:
    import pandas

    found = pandas.read_parquet(file)["observation"].to_numpy()
    return found, type(owner_of(found)).__name__ == "PyCapsule"  # that of Arrow's buffer


def by_polars(file: Path, shape: tuple[int, ...]) -> tuple[Any, bool]:
    import polars

    series = polars.read_parquet(file)["observation"]
    try:
        return series.to_numpy(allow_copy=False), True
    except RuntimeError:
        return series.to_numpy(), False


def by_duckdb(file: Path, shape: tuple[int, ...]) -> tuple[Any, bool]:
    import duckdb

    found = np.asarray(duckdb.sql(f"select observation from '{file}'").fetchnumpy()["observation"])
    return found, not isinstance(owner_of(found), np.ndarray)


def by_datasets(file: Path, shape: tuple[int, ...]) -> tuple[Any, bool]:
    import datasets

    loaded = datasets.load_dataset("parquet", data_files=str(file), split="train", cache_dir=str(file.parent / "cache"))
    found = loaded.with_format("numpy")["observation"][:]
    return found, is_within(found, loaded.data["observation"])


def by_lerobot(file: Path, shape: tuple[int, ...]) -> tuple[Any, bool]:
    """Read as LeRobot 0.6.1 does, which needs an older `datasets` and PyTorch, and Python 3.12: by the features that
    its metadata have for a shape, and each row made a tensor of its own.
    """
    import datasets
    import torch

    if len(shape) == 1:
        feature = datasets.Sequence(length=shape[0], feature=datasets.Value(dtype="float32"))
    else:
        feature = datasets.Array2D(shape=shape, dtype="float32")
    features = datasets.Features({"observation": feature})
    loaded = datasets.Dataset.from_parquet([str(file)], features=features, cache_dir=str(file.parent / "lerobot"))
    loaded.set_transform(lambda rows: {key: [torch.tensor(row) for row in found] for key, found in rows.items()})
    found = torch.stack(list(loaded[:]["observation"])).numpy()
    return found, is_within(found, loaded.data["observation"])


READERS: dict[str, Callable[[Path, tuple[int, ...]], tuple[Any, bool]]] = {
    "pyarrow 26.0": by_pyarrow,
    "pandas 3.1": by_pandas,
    "polars 2.1": by_polars,
    "duckdb 2.0": by_duckdb,
    "datasets 5.2": by_datasets,
    "LeRobot 0.6's way": by_lerobot,
}


def cell(read: Callable[[Path, tuple[int, ...]], tuple[Any, bool]], file: Path, shape: tuple[int, ...]) -> str:
    try:
        found, shared = read(file, shape)
    except Exception as error:  # noqa: BLE001  # each reader has its own; what it says is compared with the page
        cause = error.__cause__ or error
        refused = ("does not have a datasets dtype", "Unsupported cast from")
        return "refused" if any(part in str(cause) for part in refused) else f"{type(cause).__name__}: {cause}"
    return f"`{described(found)}`{', not copied' if shared else ''}"


@pytest.mark.filterwarnings("ignore")
def test_the_table_of_the_page(tmp_path: Path) -> None:
    head = [f"{kind}, {shape}" if not place else shape for kind in KINDS for place, shape in enumerate(SHAPES)]
    lines = [cells("reader", *head), cells(*["---"] * (len(head) + 1))]
    for reader, read in READERS.items():
        row = []
        for kind in KINDS.values():
            for number, shape in enumerate(SHAPES.values()):
                file = tmp_path / f"{kind} {number}.parquet"
                if not file.exists():
                    written(shape, kind, file)
                row.append(cell(read, file, shape))
        lines.append(cells(reader, *row))
    require_table("rl-datasets.md", "readers of arrays", lines)


@pytest.mark.parametrize("kind", KINDS.values())
def test_duckdb_finds_nan_in_what_was_written(kind: str, tmp_path: Path) -> None:
    """Its column of numbers is bounded by none, and neither are those within arrays."""
    import duckdb

    columns = SpaceColumns(
        Dict({"one": Box(-1, 1, (), np.float32), "some": Box(-1, 1, (2,), np.float32)}),
        "observation",
        optional=False,
        tensors=kind == "fixed_shape_tensor",
    )
    for one in (0.0, np.nan):
        columns.append({"one": np.float32(one), "some": np.array([0, one], np.float32)})
    schema = pa.schema([(name, column.type) for name, column in columns.columns.items()])
    file = tmp_path / "file.parquet"
    with parquet_file(file, schema) as writer:
        writer.write_table(pa.table([column.take() for column in columns.columns.values()], schema=schema))
    for where in ('isnan("observation.one")', 'isnan("observation.some"[2])', '"observation.one" > 1'):
        assert duckdb.sql(f"select count(*) from '{file}' where {where}").fetchall() == [(1,)], where
