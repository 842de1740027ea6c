"""Specs of dm_env as spaces, and their values both ways."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trio_cogment.spaces import Box, Dict, Discrete, Space, SpaceError, Text, Tuple
from trio_cogment.spaces.base import described
from trio_cogment.spaces.composite import part

#: dm_env's strings have no bounds, and spaces of strings do.
_LONGEST_TEXT = 65536


@dataclass(frozen=True, slots=True)
class Mapped:
    """A spec as a space.

    Attributes:
        space: that of the spec's values.
        take: returns a value of the environment as one that may be in the space.
        give: returns a value of the space as the environment expects it.
    """

    space: Space
    take: Callable[[Any], Any]
    give: Callable[[Any], Any]


def mapped(spec: Any) -> Mapped:
    """Return a spec, or dicts, lists and tuples of specs, as a space.

    Raises:
        SpaceError: a part of it has no counterpart; the text says which.
    """
    if isinstance(spec, Mapping):
        return _of_mapping(spec)
    if isinstance(spec, list | tuple):
        return _of_items(spec)
    if hasattr(spec, "string_type"):
        return _of_strings(spec.shape, spec.string_type)
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        raise SpaceError(f"expected specs of dm_env, or dicts, lists or tuples of them; got {described(spec)}")
    if hasattr(spec, "num_values"):
        # Environments index with what they get; dm_env's own values are arrays without dimensions.
        return Mapped(Discrete(spec.num_values, dtype=spec.dtype), _as_number, np.asarray)
    if spec.dtype.kind in "US":
        return _of_strings(spec.shape, str if spec.dtype.kind == "U" else bytes)
    if spec.dtype.kind not in "biuf":
        raise SpaceError(f"expected a spec of numbers or strings, got one of {spec.dtype}")
    low, high = _bounds(spec)
    return Mapped(Box(low, high, spec.shape, spec.dtype), _as_array, _same)


def _bounds(spec: Any) -> tuple[Any, Any]:
    if hasattr(spec, "minimum"):
        return spec.minimum, spec.maximum
    if spec.dtype.kind == "f":
        return -np.inf, np.inf
    if spec.dtype.kind == "b":
        return 0, 1
    return np.iinfo(spec.dtype).min, np.iinfo(spec.dtype).max


def _of_mapping(specs: Mapping[Any, Any]) -> Mapped:
    for key in specs:
        if not isinstance(key, str):
            raise SpaceError(f"expected strings as keys, got {described(key)}")
    parts: dict[str, Mapped] = {key: part(mapped, key, spec) for key, spec in specs.items()}

    def take(value: Any) -> Any:
        if not isinstance(value, Mapping) or value.keys() != parts.keys():
            return value  # the check of the space says what is wrong
        return {key: part(inner.take, key, value[key]) for key, inner in parts.items()}

    def give(value: Any) -> Any:
        return {key: inner.give(value[key]) for key, inner in parts.items()}

    return Mapped(Dict({key: inner.space for key, inner in parts.items()}), take, give)


def _of_items(specs: Any) -> Mapped:
    parts: list[Mapped] = [part(mapped, position, spec) for position, spec in enumerate(specs)]
    kind = type(specs)
    # A named tuple takes its parts one by one.
    make = kind._make if hasattr(kind, "_make") else kind

    def take(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(parts):
            return value  # the check of the space says what is wrong
        return tuple(part(inner.take, position, value[position]) for position, inner in enumerate(parts))

    def give(value: Any) -> Any:
        return make([inner.give(one) for inner, one in zip(parts, value, strict=True)])

    return Mapped(Tuple([inner.space for inner in parts]), take, give)


def _of_strings(shape: tuple[int, ...], kind: type) -> Mapped:
    """Map an array of strings to tuples of strings within tuples."""
    space: Space = Text(_LONGEST_TEXT, 0, string.printable)
    for length in reversed(shape):
        space = Tuple([space] * length)

    def take(value: Any) -> Any:
        array = np.asarray(value, dtype=object)
        if array.shape != shape:
            raise SpaceError(f"expected the shape {shape}, got {array.shape}")
        return _nested(array.tolist())

    def give(value: Any) -> Any:
        texts = np.empty(shape, dtype=object)
        for index in np.ndindex(shape):
            text = value
            for position in index:
                text = text[position]
            texts[index] = text.encode("utf-8") if kind is bytes else text
        return texts

    return Mapped(space, take, give)


def _nested(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_nested(inner) for inner in value)
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _as_number(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) and value.shape == () else value


def _as_array(value: Any) -> Any:
    # dm_env's own checks take anything of which NumPy makes an array.
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def _same(value: Any) -> Any:
    return value
