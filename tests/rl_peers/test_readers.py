"""Readers of Parquet, and how they see the arrays of an export: the table of `docs/rl-datasets.md` is what they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trio_cogment.rl.datasets.tables import SpaceColumns
from trio_cogment.spaces import Box

pytestmark = pytest.mark.rl_peers

PAGE = Path(__file__).parents[2] / "docs" / "rl-datasets.md"
ROWS = 5
SHAPES = {"(4,)": (4,), "(2, 3)": (2, 3)}


def written(shape: tuple[int, ...], kind: str, file: Path) -> None:
    """Write arrays as an export does, or as Arrow's own tensors."""
    values = np.arange(ROWS * np.prod(shape), dtype=np.float32).reshape(ROWS, *shape)
    if kind == "fixed-size list":
        columns = SpaceColumns(Box(-np.inf, np.inf, shape, np.float32), "observation", optional=False)
        for value in values:
            columns.append(value)
        column = columns.columns["observation"].take()
    else:
        column = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    pq.write_table(pa.table({"observation": column}), file)


def described(found: Any) -> str:
    """Return the type and the shape of what a reader gives, and what is within objects."""
    text = f"{found.dtype} {tuple(found.shape)}"
    return f"{text} of {described(found[0])}" if found.dtype == object and isinstance(found[0], np.ndarray) else text


def by_pyarrow(file: Path) -> Any:
    column = pq.read_table(file)["observation"].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return column.to_numpy_ndarray() if hasattr(column, "to_numpy_ndarray") else column.to_numpy(zero_copy_only=False)


def by_pandas(file: Path) -> Any:
    import pandas

    return pandas.read_parquet(file)["observation"].to_numpy()


def by_polars(file: Path) -> Any:
    import polars

    return polars.read_parquet(file)["observation"].to_numpy()


def by_duckdb(file: Path) -> Any:
    import duckdb

    return np.asarray(duckdb.sql(f"select observation from '{file}'").fetchnumpy()["observation"])


def by_datasets(file: Path) -> Any:
    import datasets

    loaded = datasets.load_dataset("parquet", data_files=str(file), split="train", cache_dir=str(file.parent / "cache"))
    return loaded.with_format("numpy")["observation"][:]


READERS: dict[str, Callable[[Path], Any]] = {
    "pyarrow 26.0": by_pyarrow,
    "pandas 3.1": by_pandas,
    "polars 2.1": by_polars,
    "duckdb 2.0": by_duckdb,
    "datasets 5.2": by_datasets,
}


def table(folder: Path) -> list[str]:
    """Return the lines of the table."""
    lines = []
    for reader, read in READERS.items():
        cells = []
        for kind in ("fixed-size list", "fixed_shape_tensor"):
            for number, shape in enumerate(SHAPES.values()):
                file = folder / f"{kind} {number}.parquet"
                if not file.exists():
                    written(shape, kind, file)
                try:
                    cells.append(f"`{described(read(file))}`")
                except ValueError as error:
                    cells.append("refused" if "does not have a datasets dtype" in str(error) else str(error))
        lines.append(f"| {reader} | {' | '.join(cells)} |")
    return lines


@pytest.mark.filterwarnings("ignore")
def test_the_table_of_the_page(tmp_path: Path) -> None:
    found = table(tmp_path)
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in found if line not in page] == []
