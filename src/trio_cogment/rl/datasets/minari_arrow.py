"""Episodes of data sets that Minari has stored in Arrow's formats (`parquet`, `arrow`), read whole.

Minari's own reader pairs episodes with batches of 32,768 rows: of a longer one it gives the beginning, and then the
rest of it as the next one.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from trio_cogment.rl.datasets.arrow import pa, whole_column
from trio_cogment.rl.datasets.episodes import Episode
from trio_cogment.spaces import ArraySpace, Dict, Discrete, Space, Tuple


def _files_of(storage: Any, index: int) -> Any:
    import pyarrow.dataset as pads

    folder = storage.data_path / str(index)
    return pads.dataset(str(folder), format=storage.FORMAT, ignore_prefixes=["_", ".", "metadata.json"])


def read_episode(storage: Any, index: int, observations: Space, actions: Space) -> Episode:
    """Return an episode of a data set.

    Args:
        storage: of the data set, `parquet` or `arrow`.
        index: the number of the episode.
        observations: the space of its observations.
        actions: the space of its actions.
    """
    table = _files_of(storage, index).to_table()
    columns = {name: whole_column(table, name) for name in table.column_names}
    # All have a row for the last observation; what came of an action is not in it.
    acted = len(table) - 1
    rewards, terminations, truncations = (
        columns[name].to_pylist()[:acted] for name in ("rewards", "terminations", "truncations")
    )
    return Episode(
        _stacked(observations, columns["observations"]),
        _stacked(actions, columns["actions"].slice(0, acted)),
        rewards,
        terminations,
        truncations,
        _infos(columns["infos"]) if "infos" in columns else {},
    )


def _stacked(space: Space, column: Any) -> Any:
    """Return the values of a space by part; see `episodes.stacked`."""
    if isinstance(space, Dict):
        return {key: _stacked(part, column.field(key)) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_stacked(part, column.field(str(place))) for place, part in enumerate(space.spaces))
    if not isinstance(space, ArraySpace):
        return column.to_pylist()
    if pa.types.is_binary(column.type):
        return np.stack([_picture(data) for data in column.to_pylist()])
    if isinstance(space, Discrete):
        return column.to_numpy(zero_copy_only=False)
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, *space.shape)


def _picture(data: bytes) -> Any:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as picture:
        return np.array(picture)


def _infos(column: Any) -> dict[str, Any]:
    return {field.name: _info(field, column.field(place)) for place, field in enumerate(column.type)}


def _info(field: Any, column: Any) -> Any:
    if pa.types.is_struct(column.type):
        return _infos(column)
    if not pa.types.is_fixed_size_list(column.type):
        return column.to_pylist()
    shape = [column.type.list_size]
    if field.metadata is not None and b"shape" in field.metadata:
        shape = [int(length) for length in field.metadata[b"shape"].split(b",") if length]
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, *shape)
