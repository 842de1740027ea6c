"""Cheap checks of what environments return; they run at every step.

An observation must have the shape and kind of its space, and no NaN. Bounds of a `Box` are not looked at: many
environments of the field overstep their own by rounding errors or by more, and their users expect to see that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from trio_cogment.spaces import ArraySpace, Box, Dict, Discrete, Space, SpaceError, Text, Tuple
from trio_cogment.spaces.base import described, rounded
from trio_cogment.spaces.composite import part
from trio_cogment.spaces.dtypes import DType
from trio_cogment.spaces.masks import has_masks, may_be_mask

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MASK = "action_mask"
#: Returns a value in the types of its space, or raises `SpaceError`.
Check: TypeAlias = Callable[[Any], Any]
#: Takes an observation and its information.
MaskFinder: TypeAlias = Callable[[Any, Mapping[str, Any]], Any]


def check_of(space: Space) -> Check:
    """Return the check of observations that are to be in a space."""
    if isinstance(space, Dict):
        return _check_of_dict(space)
    if isinstance(space, Tuple):
        return _check_of_tuple(space)
    if isinstance(space, Discrete):
        return _check_of_number(space)
    if isinstance(space, ArraySpace):
        return _check_of_array(space)
    # Its length and characters are bounds, too.
    return _check_text if isinstance(space, Text) else space.check


def _check_of_number(space: Discrete) -> Check:
    dtype = space.dtype

    def check(value: Any) -> Any:
        found = space.check(value)
        # Environments of PettingZoo give such arrays, which the space has too; messages tell them from numbers.
        return value if type(value) is np.ndarray and value.dtype == dtype else found

    return check


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise SpaceError(f"expected a string, got {described(value)}")
    return str(value)


def reward_of(reward: Any) -> float:
    """Return a reward as a float.

    Raises:
        SpaceError: it is not a number, or NaN.
    """
    if not isinstance(reward, int | float | np.generic | np.ndarray) or np.ndim(reward):
        raise SpaceError(f"expected a number, got {described(reward)}{_advice(reward)}", root="reward")
    try:
        number = float(reward)
    except (TypeError, ValueError):
        raise SpaceError(f"expected a number, got {described(reward)}", root="reward") from None
    if number != number:
        raise SpaceError("expected a number, got NaN", root="reward")
    return number


def _advice(reward: Any) -> str:
    """Return what to do about several rewards in place of one."""
    if isinstance(reward, np.ndarray) and reward.ndim == 1:
        # Weights are the user's: a sum without them would mean nothing.
        return (
            ": of several objectives, mo_gymnasium.wrappers.LinearReward(env, weight=...) gives one number, and tells "
            "the others in the information"
        )
    if isinstance(reward, list | tuple):
        return ": an environment of several agents needs PettingZoo's interface, in which each has its own reward"
    return ""


def flag_of(flag: Any, name: str) -> bool:
    """Return a flag, NumPy's included, as Python's.

    Raises:
        SpaceError: it is none.
    """
    if not isinstance(flag, bool | np.bool_):
        raise SpaceError(f"expected a bool, got {described(flag)}", root=name)
    return bool(flag)


def info_of(info: Any) -> dict[str, Any]:
    """Return an environment's information.

    Raises:
        SpaceError: it is not a dict.
    """
    if not isinstance(info, Mapping):
        raise SpaceError(f"expected a dict, got {described(info)}", root="info")
    return dict(info)


def mask_finder(space: Space) -> MaskFinder:
    """Return what finds the mask of actions in an observation and its information; None if neither has one.

    Args:
        space: of the actions. Anything else, see `may_be_mask`, is an observation or information like others.
    """
    if not has_masks(space):
        return _no_mask
    if isinstance(space, Dict | Tuple):
        return lambda value, info: found if may_be_mask(space, found := _mask_of(value, info)) else None
    return _mask_of


def _mask_of(value: Any, info: Mapping[str, Any]) -> Any:
    if type(value) is dict and _MASK in value:
        return value[_MASK]
    return info.get(_MASK) if info else None


def _no_mask(_value: Any, _info: Mapping[str, Any]) -> None:
    return None


def _check_of_dict(space: Dict) -> Check:
    checks = {key: check_of(inner) for key, inner in space.spaces.items()}

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or value.keys() != checks.keys():
            space.check(value)  # says what is missing, or too much
        return {key: part(inner, key, value[key]) for key, inner in checks.items()}

    return check


def _check_of_tuple(space: Tuple) -> Check:
    checks = [check_of(inner) for inner in space.spaces]

    def check(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple) or len(value) != len(checks):
            space.check(value)  # says what is wrong
        return tuple(part(inner, position, value[position]) for position, inner in enumerate(checks))

    return check


def _check_of_array(space: ArraySpace) -> Check:
    shape, dtype = space.shape, space.dtype
    floats = dtype.kind == "f"
    bounded = not isinstance(space, Box)
    ndarray = np.ndarray
    flat = len(shape) == 1

    def check(value: Any) -> Any:
        if type(value) is not ndarray or value.dtype != dtype:
            value = _converted(value, space.row)
        if value.shape != shape:
            raise SpaceError(f"expected the shape {shape}, got {value.shape}")
        if floats:
            # The sum of squares is NaN if, and only if, one of them is: nothing cheaper finds it.
            line = value if flat else value.ravel()
            squares = line.dot(line)
            if squares != squares:
                raise _nan(value)
        elif bounded:
            space.check(value)
        return value

    return check


def _nan(array: NDArray[Any]) -> SpaceError:
    where = np.argwhere(np.isnan(array))[0]
    return SpaceError("expected a number, got NaN").inside(*(int(index) for index in where))


def _converted(value: Any, row: DType) -> NDArray[Any]:
    """Return an array of another type than its space has in that type: `float64` for `float32` is common.

    Raises:
        SpaceError: it is not an array, is of another kind, or has numbers that the type does not have.
    """
    if isinstance(value, np.ma.MaskedArray) or not isinstance(value, np.ndarray | np.generic | int | float):
        raise SpaceError(f"expected an array of {row.name}, got {described(value)}")
    array, dtype = np.asarray(value), np.dtype(row.name)
    if not np.can_cast(array.dtype, dtype, "same_kind") and not (array.dtype.kind in "iu" and dtype.kind in "iu"):
        raise SpaceError(f"expected {dtype}, got {array.dtype}")
    if row.kind == "f":
        return rounded(array, row)
    converted = array.astype(dtype)
    if not np.all(converted == array):
        raise SpaceError(f"expected {dtype}, got numbers of {array.dtype} that it does not have")
    return converted
