"""Parquet files as data sets are written: bounds and dictionaries only where they are of use."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trio_cogment.rl.datasets.arrow import parquet_file


def test_only_what_repeats_has_a_dictionary(tmp_path: Path) -> None:
    reward = pa.struct([("sender", pa.string()), ("value", pa.float32())])
    kinds = {
        "floats": pa.list_(pa.float32(), 2),
        "grid": pa.list_(pa.list_(pa.float64(), 1), 2),
        "tensor": pa.fixed_shape_tensor(pa.float32(), (2,)),
        "pixels": pa.list_(pa.uint8(), 2),
        "rewards": pa.list_(reward),
        "reward": pa.float64(),
        "name": pa.string(),
        "timestamp_ns": pa.int64(),
    }
    values = {
        "floats": [[1.0, 2.0]] * 3,
        "grid": [[[1.0], [2.0]]] * 3,
        "pixels": [[1, 2]] * 3,
        "rewards": [[{"sender": "ann", "value": 1.0}]] * 3,
        "reward": [1.0] * 3,
        "name": ["ann"] * 3,
        "timestamp_ns": [1, 2, 3],
    }
    arrays = {name: pa.array(values[name], kind) for name, kind in kinds.items() if name in values}
    arrays["tensor"] = pa.ExtensionArray.from_storage(kinds["tensor"], arrays["floats"])
    table = pa.table([arrays[name] for name in kinds], schema=pa.schema(list(kinds.items())))
    with parquet_file(tmp_path / "steps.parquet", table.schema) as writer:
        writer.write_table(table)
    group = pq.read_metadata(tmp_path / "steps.parquet").row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    with_dictionary = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert with_dictionary == {
        "pixels.list.element",
        "rewards.list.element.sender",
        "rewards.list.element.value",
        "reward",
        "name",
    }
    assert pq.read_table(tmp_path / "steps.parquet").equals(table)
