"""Information and action masks of an episode as columns, as Minari's `infos` have them, and back. Pure.

| values of a key | column |
|---|---|
| bools, integers or floats, Python's or NumPy's | numbers; Python's integers become floats where some are floats |
| arrays of one type and shape | an array with one dimension more |
| texts | a list of texts |
| dicts, of whose keys all this holds | a dict of columns |
| action masks | `int8`: of a `MultiDiscrete` all flags one after the other; a `Dict` or `Tuple` is a dict of columns |

A column is as long as the episode. Where there was no value, it has a filler (0, an empty text; in masks, what allows
all). Beside it, `_` and the key, is a column of bools that says where there was one, as in Gymnasium's vector
environments. What has no such column is in `info_json`, an object for each step, and `info_json_types` has the types
that JSON loses.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trio_cogment.rl.datasets.plain import as_json, restored, types_of
from trio_cogment.spaces import Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from trio_cogment.spaces.masks import element_masks, has_masks, mask_in

MASK = "action_mask"
_REST, _REST_TYPES = "info_json", "info_json_types"
#: Stands for a value that was not there.
_ABSENT: Any = object()
#: Up to here, floats have all integers.
_WHOLE = 2**53


def columns_of(infos: Iterable[Mapping[str, Any]], taken: Collection[str] = ()) -> dict[str, Any]:
    """Return the columns of an episode's information.

    Args:
        infos: of each step; empty where there was none.
        taken: what no column may be called, because another has the name.
    """
    infos = list(infos)
    found: dict[str, Any] = {}
    rest: list[dict[str, Any]] = [{} for _ in infos]
    for key in dict.fromkeys(key for info in infos for key in info):
        values = [info.get(key, _ABSENT) for info in infos]
        column = None if key in taken or key in (_REST, _REST_TYPES) or not _is_name(key) else _column(values)
        if column is None:
            for place, value in enumerate(values):
                if value is not _ABSENT:
                    rest[place][key] = value
        else:
            found.update(_with_presence(key, column, values))
    if any(rest):
        types = [types_of(info) for info in rest]
        found[_REST] = [as_json(info) if info else "" for info in rest]
        found[_REST_TYPES] = ["" if one is None else as_json(one) for one in types]
    return found


def infos_in(columns: Mapping[str, Any], length: int, own: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the information of each step; the columns may be those of any data set.

    Numbers of 64 bits and bools are Python's.

    Args:
        columns: by key.
        length: of the episode. A column of another length is not information of its steps.
        own: columns that are not information.
    """
    infos: list[dict[str, Any]] = [{} for _ in range(length)]
    for key, column in columns.items():
        if key in own or key in (_REST, _REST_TYPES) or (key[:1] == "_" and key[1:] in columns):
            continue
        values = _values(column, length)
        present = columns.get(f"_{key}", [True] * length)
        if len(values) == len(present) == length:
            for place, value in enumerate(values):
                if present[place]:
                    infos[place][key] = value
    if _REST in columns:
        for info, text, types in zip(infos, columns[_REST], columns[_REST_TYPES], strict=True):
            if text:
                info.update(restored(json.loads(text), json.loads(types or "null")))
    return infos


def mask_columns(space: Space, masks: Sequence[Any]) -> dict[str, Any]:
    """Return the columns of the masks of an episode, which have the form of `mask_in`; none if there are no masks."""
    if all(mask is None for mask in masks):
        return {}
    column, present = _of_masks(space, masks)
    return {MASK: column, f"_{MASK}": present}


def masks_in(space: Space, columns: Mapping[str, Any], length: int) -> list[Any]:
    """Return the mask of each step, None where there is none."""
    if MASK not in columns:
        return [None] * length
    return list(_masks(space, columns[MASK], columns.get(f"_{MASK}"), length))


def _is_name(key: str) -> bool:
    """Whether HDF5 can have a key as a name, and no column of bools has it."""
    return bool(key) and key[0] not in "_." and "/" not in key and "\0" not in key


def _with_presence(key: str, column: Any, values: Sequence[Any]) -> dict[str, Any]:
    return {key: column, f"_{key}": np.array([value is not _ABSENT for value in values])}


def _column(values: Sequence[Any]) -> Any:
    """Return the column of values, some of which can be absent; None if there is none for them."""
    there = [value for value in values if value is not _ABSENT]
    if all(isinstance(value, dict) for value in there):
        return _dict_column(values)
    if all(isinstance(value, str) and not isinstance(value, np.generic) for value in there):
        return None if any("\0" in value for value in there) else ["" if v is _ABSENT else v for v in values]
    dtype = _common_type(there)
    if dtype is None:
        return None
    column = np.zeros((len(values), *np.shape(there[0])), dtype)
    for place, value in enumerate(values):
        if value is not _ABSENT:
            column[place] = value
    return column


def _dict_column(values: Sequence[Any]) -> dict[str, Any] | None:
    dicts: list[dict[str, Any]] = [{} if value is _ABSENT else value for value in values]
    found: dict[str, Any] = {}
    for key in dict.fromkeys(key for each in dicts for key in each):
        inner = [each.get(key, _ABSENT) for each in dicts]
        column = _column(inner) if _is_name(key) else None
        if column is None:
            return None
        found.update(_with_presence(key, column, inner))
    return found or None


def _common_type(values: Sequence[Any]) -> Any:
    """Return the type of numbers, or of arrays of one shape; None if they have no common one."""
    types = {_type_of(value) for value in values}
    if None in types or len({np.shape(value) for value in values}) != 1:
        return None
    if len(types) == 1:
        return types.pop()
    real = np.dtype(np.float64)
    whole = [value for value in values if _type_of(value) == np.int64]
    # A reset often has 0 where steps have floats.
    return real if types == {np.dtype(np.int64), real} and np.all(np.abs(whole) <= _WHOLE) else None


def _type_of(value: Any) -> Any:
    """Return the type of a number or an array, None of anything else."""
    plain = {bool: np.bool_, int: np.int64, float: np.float64}.get(type(value))
    if plain is not None:
        return np.dtype(plain)
    if isinstance(value, np.ndarray) and not (value.ndim and value.size):
        return None
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
        return None
    return value.dtype.newbyteorder("=")


def _values(column: Any, length: int) -> Sequence[Any]:
    if isinstance(column, Mapping):
        return infos_in(column, length)
    return [_plain(value) for value in column]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):  # HDF5's texts
        return value.decode("utf-8", "replace")
    if isinstance(value, np.generic) and value.dtype in (np.bool_, np.int64, np.float64):
        return value.item()
    return np.array(value) if isinstance(value, np.ndarray) else value


def _of_masks(space: Space, masks: Sequence[Any]) -> tuple[Any, Any]:
    """Return the column of masks, and the one that says where there are some."""
    if isinstance(space, Dict | Tuple):
        pairs = [
            (str(key), _of_masks(inner, [None if mask is None else mask[key] for mask in masks]))
            for key, inner in _parts(space)
        ]
        return {key: column for key, (column, _) in pairs}, {key: present for key, (_, present) in pairs}
    shape, nothing = _flags_of(space)
    column = np.full((len(masks), *shape), nothing, np.int8)
    for place, mask in enumerate(masks):
        if mask is not None:
            column[place] = np.concatenate(element_masks(mask)) if isinstance(space, MultiDiscrete) else mask
    return column, np.array([mask is not None for mask in masks])


def _masks(space: Space, column: Any, present: Any, length: int) -> Iterator[Any]:
    if not isinstance(space, Dict | Tuple):
        for place in range(length):
            there = present is None or present[place]
            yield mask_in(space, np.array(column[place])) if there else None
        return
    parts = {
        key: list(_masks(inner, column[str(key)], None if present is None else present[str(key)], length))
        for key, inner in _parts(space)
    }
    nothing = dict.fromkeys(space.spaces if isinstance(space, Dict) else range(len(space.spaces)))
    for place in range(length):
        found = {**nothing, **{key: masks[place] for key, masks in parts.items()}}
        gone = all(mask is None for mask in found.values())
        yield None if gone else found if isinstance(space, Dict) else tuple(found.values())


def _parts(space: Dict | Tuple) -> list[tuple[Any, Space]]:
    """Return the parts for which there are masks."""
    parts = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
    return [(key, inner) for key, inner in parts if has_masks(inner)]


def _flags_of(space: Space) -> tuple[tuple[int, ...], int]:
    """Return the shape of a mask, and what is everywhere in one that allows all."""
    if isinstance(space, MultiBinary):
        return space.shape, 2
    assert isinstance(space, Discrete | MultiDiscrete)
    return (space.n if isinstance(space, Discrete) else int(space.nvec.sum()),), 1
