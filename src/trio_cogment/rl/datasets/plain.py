"""What every kind of data set does with values: needs NumPy, and neither Arrow nor Minari."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from trio_cogment.spaces import ArraySpace, SpaceError
from trio_cogment.spaces.base import described


def array_in(space: ArraySpace, value: Any) -> Any:
    """Return an array or number that has a space's shape, and a type that its type can take.

    Bounds do not matter: what was observed, was observed.

    Raises:
        SpaceError: it has another shape or type.
    """
    if not isinstance(value, np.ndarray | np.generic):
        raise SpaceError(f"expected an array, got {described(value)}")
    if value.shape != space.shape:
        raise SpaceError(f"expected the shape {space.shape}, got {value.shape}")
    if value.dtype != space.dtype and not space.fits(value.dtype):
        raise SpaceError(f"expected {space.row.name}, got {value.dtype}")
    return value


def as_json(value: Any) -> str:
    """Return information as JSON; arrays become lists, bytes text of hexadecimal digits."""
    return json.dumps(value, default=_plainly, ensure_ascii=False)


def _plainly(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value.hex() if isinstance(value, bytes) else str(value)
