"""Action masks: which values of a space are allowed at the moment, in the form that Gymnasium's `sample(mask=)` takes.

| space | mask |
|---|---|
| `Discrete` | an array of `n` zeros and ones: element `i` is about `start + i` |
| `MultiDiscrete` | a tuple with an array of zeros and ones for each element, nested as the space's shape is |
| `MultiBinary` | an array of the space's shape: 0 and 1 prescribe the element, 2 leaves it free |
| `Dict`, `Tuple` | a dict or tuple of masks, or of None where all is allowed |

Other spaces have none. As in Gymnasium, zeros alone mean that the lowest value is the only one.

`mask_in` also takes what means the same: lists, arrays of other numbers, the flags of a `MultiDiscrete` one after the
other (as MaskablePPO has them), and dicts without the parts where all is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from trio_cogment.spaces import Dict, Discrete, MultiBinary, MultiDiscrete, Space, SpaceError, Tuple
from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.base import described, shown
from trio_cogment.spaces.composite import part

if TYPE_CHECKING:
    from numpy.typing import NDArray


def has_masks(space: Space) -> bool:
    """Whether there are masks for a space, or for a part of it."""
    if isinstance(space, Dict):
        return any(map(has_masks, space.spaces.values()))
    if isinstance(space, Tuple):
        return any(map(has_masks, space.spaces))
    return type(space) in _FORMS


def may_be_mask(space: Space, found: Any) -> bool:
    """Whether something that is called a mask can be one of a space, and does not mean something else.

    There has to be a mask for the space; and if the space has parts, the mask has to have such, too.
    """
    kinds = (Mapping,) if isinstance(space, Dict) else (list, tuple) if isinstance(space, Tuple) else (object,)
    return has_masks(space) and isinstance(found, kinds)


def mask_in(space: Space, found: Any) -> Any:
    """Return a mask in the form that the table has, with arrays of `int8`; None, for all is allowed, as it is.

    A mask that has this form is returned itself, if it is an array.

    Raises:
        SpaceError: it means no mask of the space.
    """
    return None if found is None else _form_of(space).take(space, found)


def sample_allowed(space: Space, generator: np.random.Generator, mask: Any = None) -> Any:
    """Return a value of a space that a mask allows, all of which are equally likely in `Discrete` spaces.

    Raises:
        SpaceError: the mask is none of the space.
    """
    if mask is None:
        return space.sample(generator)
    return space.check(_form_of(space).sample(space, generator, mask_in(space, mask)))


def check_allowed(space: Space, value: Any, mask: Any = None) -> None:
    """Check that a mask allows a value of the space.

    Raises:
        SpaceError: it does not, or is none of the space; the text says which part, and what is allowed there.
    """
    if mask is not None:
        _form_of(space).check(space, value, mask_in(space, mask))


def flat_mask(space: Space, mask: Any = None) -> NDArray[np.bool_]:
    """Return a mask as one row of bools, as MaskablePPO takes it; all are true where all is allowed.

    A `Discrete` has one for each number, a `MultiDiscrete` those of one element after the other, and a `MultiBinary`
    for each element one for 0 and one for 1.

    Raises:
        SpaceError: the mask is none of the space, or the space is none of these.
    """
    if not isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        raise SpaceError(f"expected a space Discrete, MultiDiscrete or MultiBinary, got {type(space).__name__}")
    found = mask_in(space, mask)
    if isinstance(space, MultiBinary):
        flags = np.full(space.shape, 2) if found is None else found
        return np.stack([flags != 1, flags != 0], axis=-1).reshape(-1)
    if found is None:
        return np.ones(space.n if isinstance(space, Discrete) else int(space.nvec.sum()), np.bool_)
    row: NDArray[np.bool_] = np.concatenate(element_masks(found)) != 0
    return row


def allowed_numbers(space: Discrete, mask: Any) -> list[int]:
    """Return the numbers of a space that a mask allows.

    Raises:
        SpaceError: the mask is none of the space.
    """
    return [space.start + index for index in _indexes(mask_in(space, mask))]


def _indexes(flags: Any) -> list[int]:
    return [int(index) for index in np.flatnonzero(flags)] or [0]


def _flags(found: Any, shape: tuple[int, ...], highest: int = 1) -> Any:
    """Return an array of `int8` with a shape, and numbers up to `highest`."""
    flags = found if type(found) is np.ndarray and found.dtype == np.int8 else _as_flags(found)
    if flags.shape != shape:
        raise SpaceError(f"expected a mask of the shape {shape}, got {flags.shape}")
    if flags.size and flags.view(np.uint8).max() > highest:
        raise _no_flags(found, highest)
    return flags


def _as_flags(found: Any) -> Any:
    try:
        array = np.asarray(found)
    except (TypeError, ValueError):  # lists of different lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise SpaceError(f"expected an array as mask, got {described(found)}")
    with np.errstate(invalid="ignore"):
        flags = array.astype(np.int8)
    if not np.array_equal(flags, array):
        raise _no_flags(found, 2)
    return flags


def _no_flags(found: Any, highest: int) -> SpaceError:
    return SpaceError(f"expected a mask of {', '.join(map(str, range(highest + 1)))} alone, got {shown(found)}")


class _Form(NamedTuple):
    """The masks of a kind of spaces: each takes space and mask, and `sample` and `check` a generator or a value."""

    take: Callable[[Any, Any], Any]
    sample: Callable[..., Any]
    check: Callable[..., None]


def _form_of(space: Space) -> _Form:
    form = _FORMS.get(type(space))
    if form is None:
        raise SpaceError(f"expected no mask for a space {type(space).__name__}, which has none")
    return form


def _take_discrete(space: Discrete, found: Any) -> Any:
    return _flags(found, (space.n,))


def _sample_discrete(space: Discrete, generator: np.random.Generator, mask: Any) -> Any:
    allowed = allowed_numbers(space, mask)
    return allowed[int(generator.integers(len(allowed)))]


def _check_discrete(space: Discrete, value: Any, mask: Any) -> None:
    allowed = allowed_numbers(space, mask)
    if int(value) not in allowed:
        raise SpaceError(f"expected one of {', '.join(map(str, allowed))}, which are allowed now; got {int(value)}")


def _take_multi_discrete(space: MultiDiscrete, found: Any) -> Any:
    size = int(space.nvec.sum())
    if _is_flat(found):
        if len(found) != size:
            text = f"expected a tuple of {len(space.nvec)} masks, or an array of {size}, got {described(found)}"
            raise SpaceError(text)
        flags = np.split(_flags(found, (size,)), np.cumsum(space.nvec.ravel())[:-1])
        return _nested(iter(flags), space.nvec)
    return _taken(space.nvec, found)


def _is_flat(found: Any) -> bool:
    """Whether the flags are one after the other, and not in parts."""
    if isinstance(found, np.ndarray):
        return found.ndim == 1 and found.dtype.kind in "biuf"
    return isinstance(found, list | tuple) and all(isinstance(each, int | float | np.generic) for each in found)


def _nested(masks: Iterator[Any], counts: Any) -> Any:
    return tuple(_nested(masks, each) if np.ndim(each) else next(masks) for each in counts)


def _taken(counts: Any, found: Any) -> Any:
    if np.ndim(counts) == 0:
        return _flags(found, (int(counts),))
    if not isinstance(found, list | tuple | np.ndarray) or len(found) != len(counts):
        raise SpaceError(f"expected a tuple of {len(counts)} masks, got {described(found)}")
    return tuple(part(_taken, position, counts[position], inner) for position, inner in enumerate(found))


def element_masks(mask: Any) -> list[Any]:
    """Return the masks of the elements of a `MultiDiscrete`, in C order; it has the form that the table has."""
    return [inner for each in mask for inner in element_masks(each)] if isinstance(mask, tuple) else [mask]


def _sample_multi_discrete(space: MultiDiscrete, generator: np.random.Generator, mask: Any) -> Any:
    drawn = [allowed[int(generator.integers(len(allowed)))] for allowed in map(_indexes, element_masks(mask))]
    return (np.array(drawn).reshape(space.shape) + space.start).astype(space.dtype)


def _check_multi_discrete(space: MultiDiscrete, value: Any, mask: Any) -> None:
    numbers, starts = np.asarray(value).ravel().tolist(), space.start.ravel().tolist()
    elements = map(_indexes, element_masks(mask))
    for position, (allowed, number, start) in enumerate(zip(elements, numbers, starts, strict=True)):
        if number - start not in allowed:
            index = (int(each) for each in np.unravel_index(position, space.shape))
            choices = ", ".join(str(start + each) for each in allowed)
            raise SpaceError(f"expected one of {choices}, which are allowed now; got {number}").inside(*index)


def _take_multi_binary(space: MultiBinary, found: Any) -> Any:
    return _flags(found, space.shape, 2)


def _sample_multi_binary(space: MultiBinary, generator: np.random.Generator, mask: Any) -> Any:
    return np.where(mask == 2, generator.integers(0, 2, space.shape), mask).astype(space.dtype)


def _check_multi_binary(space: MultiBinary, value: Any, mask: Any) -> None:
    wrong = np.argwhere((mask != 2) & (mask != value))
    if len(wrong):
        index = tuple(int(each) for each in wrong[0])
        raise SpaceError(f"expected {int(mask[index])}, which alone is allowed now; got {value[index]}").inside(*index)


def _take_dict(space: Dict, found: Any) -> dict[str, Any]:
    if not isinstance(found, Mapping) or found.keys() - space.spaces.keys():
        raise SpaceError(f"expected a dict of masks for {', '.join(map(repr, space.spaces))}; got {shown(found)}")
    return {key: part(mask_in, key, inner, found.get(key)) for key, inner in space.spaces.items()}


def _take_tuple(space: Tuple, found: Any) -> tuple[Any, ...]:
    if not isinstance(found, list | tuple) or len(found) != len(space.spaces):
        raise SpaceError(f"expected a tuple of {len(space.spaces)} masks, got {shown(found)}")
    return tuple(part(mask_in, place, inner, found[place]) for place, inner in enumerate(space.spaces))


def _parts(space: Dict | Tuple, mask: Any) -> list[tuple[Any, Space, Any]]:
    """Return the key, the space and the mask of each part."""
    pairs = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
    return [(key, inner, mask[key]) for key, inner in pairs]


def _sample_parts(space: Dict | Tuple, generator: np.random.Generator, mask: Any) -> Any:
    found = {key: part(sample_allowed, key, inner, generator, own) for key, inner, own in _parts(space, mask)}
    return found if isinstance(space, Dict) else tuple(found.values())


def _check_parts(space: Dict | Tuple, value: Any, mask: Any) -> None:
    for key, inner, own in _parts(space, mask):
        part(check_allowed, key, inner, value[key], own)


_FORMS: dict[type[Space], _Form] = {
    Discrete: _Form(_take_discrete, _sample_discrete, _check_discrete),
    MultiDiscrete: _Form(_take_multi_discrete, _sample_multi_discrete, _check_multi_discrete),
    MultiBinary: _Form(_take_multi_binary, _sample_multi_binary, _check_multi_binary),
    Dict: _Form(_take_dict, _sample_parts, _check_parts),
    Tuple: _Form(_take_tuple, _sample_parts, _check_parts),
}
