#!/usr/bin/env bash
# Arrow's fixed_shape_tensor in a Parquet file: only some readers see the shape that it was made for.
#
# Versions:  pyarrow==26.0.1, polars==2.1.0, pandas==3.1.1, duckdb==2.0.1, numpy==2.4.6
# Guessed:   a column of arrays of (2, 3), written as Arrow's own fixed_shape_tensor, comes back as (rows, 2, 3) from
#            whatever reads the type: polars shows it in its schema, so its to_numpy() has the shape.
# Behaviour: pyarrow gives (rows, 2, 3). polars keeps the type, with the shape [2, 3] in its metadata, and to_numpy()
#            gives (rows, 6); pandas gives rows of 6 numbers, DuckDB lists of 6. The same column as nested lists of
#            fixed size has its shape in polars.
# Matters:   the type that is right for Ray and pyarrow flattens pictures and grids silently elsewhere; nothing raises,
#            and a network that flattens its input trains on either.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install pyarrow==26.0.1 polars==2.1.0 pandas==3.1.1 duckdb==2.0.1 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - "$folder/steps.parquet" <<'PYTHON'
import sys

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq

array = np.arange(30, dtype=np.float32).reshape(5, 2, 3)
tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(array)
nested = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), 3), 2)
file = sys.argv[1]
pq.write_table(pa.table({"tensor": tensor, "nested": nested}), file)
frame = polars.read_parquet(file)
seen = {
    "pyarrow": pq.read_table(file)["tensor"].combine_chunks().to_numpy_ndarray().shape,
    "polars": frame["tensor"].to_numpy().shape,
    "polars, nested lists": frame["nested"].to_numpy().shape,
    "pandas": np.stack(pandas.read_parquet(file)["tensor"]).shape,
    "duckdb": np.stack(duckdb.sql(f"select tensor from '{file}'").fetchnumpy()["tensor"]).shape,
}
print(frame.schema["tensor"], seen)
assert "[2,3]" in str(frame.schema["tensor"]).replace(" ", ""), "it behaves otherwise now"
flat, whole = (5, 6), (5, 2, 3)
expected = {"pyarrow": whole, "polars": flat, "polars, nested lists": whole, "pandas": flat, "duckdb": flat}
assert seen == expected, "it behaves otherwise now"
PYTHON
