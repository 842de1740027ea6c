"""Action masks: which values of a space are allowed at the moment, in the form that Gymnasium's `sample(mask=)` takes.

| space | mask |
|---|---|
| `Discrete` | an array of `n` zeros and ones: element `i` is about `start + i` |
| `MultiDiscrete` | a tuple with an array of zeros and ones for each element, nested as the space's shape is |
| `MultiBinary` | an array of the space's shape: 0 and 1 prescribe the element, 2 leaves it free |
| `Dict`, `Tuple` | a dict or tuple of masks, or of None where all is allowed |

Other spaces have none. As in Gymnasium, zeros alone mean that the lowest value is the only one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trio_cogment.spaces import Dict, Discrete, MultiBinary, MultiDiscrete, Space, SpaceError, Tuple
from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.base import described, shown
from trio_cogment.spaces.composite import part


def sample_allowed(space: Space, generator: np.random.Generator, mask: Any = None) -> Any:
    """Return a value of a space that a mask allows, all of which are equally likely in `Discrete` spaces.

    Raises:
        SpaceError: the mask is none of the space.
    """
    if mask is None:
        return space.sample(generator)
    return space.check(_form_of(space).sample(space, generator, mask))


def check_allowed(space: Space, value: Any, mask: Any = None) -> None:
    """Check that a mask allows a value of the space.

    Raises:
        SpaceError: it does not, or is none of the space; the text says which part, and what is allowed there.
    """
    if mask is not None:
        _form_of(space).check(space, value, mask)


def allowed_numbers(space: Discrete, mask: Any) -> list[int]:
    """Return the numbers of a space that a mask allows.

    Raises:
        SpaceError: the mask is none of the space.
    """
    return [space.start + index for index in _indexes(mask, space.n)]


def _indexes(mask: Any, count: int) -> list[int]:
    array = _mask_array(mask, (count,), (0, 1))
    return [int(index) for index in np.flatnonzero(array)] or [0]


def _mask_array(mask: Any, shape: tuple[int, ...], values: tuple[int, ...]) -> Any:
    if not isinstance(mask, np.ndarray) or mask.dtype.kind not in "biuf":
        raise SpaceError(f"expected an array as mask, got {described(mask)}")
    if mask.shape != shape:
        raise SpaceError(f"expected a mask of the shape {shape}, got {mask.shape}")
    if not np.isin(mask, values).all():
        raise SpaceError(f"expected a mask of {', '.join(map(str, values))} alone, got {shown(mask)}")
    return mask


class _Form:
    """How the mask of a kind of spaces is read: `sample` and `check` take space, generator or value, and mask."""

    def __init__(self, sample: Callable[..., Any], check: Callable[..., None]) -> None:
        self.sample = sample
        self.check = check


def _form_of(space: Space) -> _Form:
    form = _FORMS.get(type(space))
    if form is None:
        raise SpaceError(f"expected no mask for a space {type(space).__name__}, which has none")
    return form


def _sample_discrete(space: Discrete, generator: np.random.Generator, mask: Any) -> Any:
    allowed = allowed_numbers(space, mask)
    return allowed[int(generator.integers(len(allowed)))]


def _check_discrete(space: Discrete, value: Any, mask: Any) -> None:
    allowed = allowed_numbers(space, mask)
    if int(value) not in allowed:
        raise SpaceError(f"expected one of {', '.join(map(str, allowed))}, which are allowed now; got {int(value)}")


def _element_masks(space: MultiDiscrete, mask: Any) -> list[list[int]]:
    """Return what is allowed for each element, in C order."""

    def flat(counts: Any, masks: Any) -> list[list[int]]:
        if np.ndim(counts) == 0:
            return [_indexes(masks, int(counts))]
        if not isinstance(masks, tuple) or len(masks) != len(counts):
            raise SpaceError(f"expected a tuple of {len(counts)} masks, got {described(masks)}")
        found = [part(flat, position, counts[position], inner) for position, inner in enumerate(masks)]
        return [indexes for each in found for indexes in each]

    return flat(space.nvec, mask)


def _sample_multi_discrete(space: MultiDiscrete, generator: np.random.Generator, mask: Any) -> Any:
    drawn = [allowed[int(generator.integers(len(allowed)))] for allowed in _element_masks(space, mask)]
    return (np.array(drawn).reshape(space.shape) + space.start).astype(space.dtype)


def _check_multi_discrete(space: MultiDiscrete, value: Any, mask: Any) -> None:
    numbers, starts = np.asarray(value).ravel().tolist(), space.start.ravel().tolist()
    for position, (allowed, number, start) in enumerate(zip(_element_masks(space, mask), numbers, starts, strict=True)):
        if number - start not in allowed:
            index = (int(each) for each in np.unravel_index(position, space.shape))
            choices = ", ".join(str(start + each) for each in allowed)
            raise SpaceError(f"expected one of {choices}, which are allowed now; got {number}").inside(*index)


def _sample_multi_binary(space: MultiBinary, generator: np.random.Generator, mask: Any) -> Any:
    array = _mask_array(mask, space.shape, (0, 1, 2))
    return np.where(array == 2, generator.integers(0, 2, space.shape), array).astype(space.dtype)


def _check_multi_binary(space: MultiBinary, value: Any, mask: Any) -> None:
    array = _mask_array(mask, space.shape, (0, 1, 2))
    wrong = np.argwhere((array != 2) & (array != value))
    if len(wrong):
        index = tuple(int(each) for each in wrong[0])
        raise SpaceError(f"expected {int(array[index])}, which alone is allowed now; got {value[index]}").inside(*index)


def _parts(space: Dict | Tuple, mask: Any) -> list[tuple[Any, Space, Any]]:
    """Return the key, the space and the mask of each part."""
    if isinstance(space, Dict):
        if not isinstance(mask, dict) or mask.keys() != space.spaces.keys():
            raise SpaceError(f"expected a dict of masks for {', '.join(map(repr, space.spaces))}; got {shown(mask)}")
        return [(key, inner, mask[key]) for key, inner in space.spaces.items()]
    if not isinstance(mask, tuple) or len(mask) != len(space.spaces):
        raise SpaceError(f"expected a tuple of {len(space.spaces)} masks, got {shown(mask)}")
    return [(position, inner, mask[position]) for position, inner in enumerate(space.spaces)]


def _sample_parts(space: Dict | Tuple, generator: np.random.Generator, mask: Any) -> Any:
    found = {key: part(sample_allowed, key, inner, generator, own) for key, inner, own in _parts(space, mask)}
    return found if isinstance(space, Dict) else tuple(found.values())


def _check_parts(space: Dict | Tuple, value: Any, mask: Any) -> None:
    for key, inner, own in _parts(space, mask):
        part(check_allowed, key, inner, value[key], own)


_FORMS: dict[type[Space], _Form] = {
    Discrete: _Form(_sample_discrete, _check_discrete),
    MultiDiscrete: _Form(_sample_multi_discrete, _check_multi_discrete),
    MultiBinary: _Form(_sample_multi_binary, _check_multi_binary),
    Dict: _Form(_sample_parts, _check_parts),
    Tuple: _Form(_sample_parts, _check_parts),
}
