"""Payloads of `trio_cogment.spaces` as pages have them; needs NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

import trio_cogment.spaces as sp
from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.base.errors import CogmentError, InvalidArgumentError
from trio_cogment.play.codecs import Codec
from trio_cogment.play.forms import MAX_OPTIONS, options
from trio_cogment.play.views import View
from trio_cogment.spaces.base import ArraySpace
from trio_cogment.spaces.composite import is_graph
from trio_cogment.spaces.elementary import ALPHANUMERIC
from trio_cogment.spaces.json_values import from_json_value, to_json_value
from trio_cogment.spaces.masks import allowed_numbers, check_allowed, element_masks, mask_in
from trio_cogment.spaces.pictures import png_of
from trio_cogment.web.json_text import shortest

#: Arrays with more elements are not written out.
_MAX_ELEMENTS = 1024
#: Arrays of bytes with as many rows and columns are pictures.
_PICTURE_ROWS = 8
_CHANNELS = (1, 3, 4)
_MAX_ABOUT = 1000


class SpaceCodec(Codec):
    """Observations and actions of `trio_cogment.spaces`.

    Args:
        labels: what the numbers of a `Discrete` action space stand for.
    """

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self._labels = labels
        self._space: sp.Space | None = None
        self._observation_space: sp.Space | None = None
        self._seen = sp.Observation(None)

    def observe(self, payload: pb.Observation) -> bool:
        """See `Codec.observe`: an agent whose turn it is not, or who is out, is not asked."""
        seen = sp.decode_observation(payload)
        if seen.action_space is not None:
            # Not the message: for pictures, that of their space is twice as large as they are.
            self._space, self._observation_space = seen.action_space, seen.observation_space
        self._seen = seen
        if not (seen.active and seen.alive):
            return False
        if self._space is None:
            raise InvalidArgumentError("action_space: expected it with the first observation of the trial")
        return True

    @override
    def view(self) -> View:
        seen, view = self._seen, View()
        if seen.frame is not None:
            if seen.frame.media_type.startswith("text/"):
                view.add_text("", seen.frame.data.decode("utf-8", "replace"))
            else:
                view.add_bytes("", seen.frame.data, seen.frame.media_type)
        _add_value(view, "observation", seen.value)
        if seen.reward is not None:
            view.add("reward", "value", value=to_json_value(seen.reward))
        if seen.info:
            _add_value(view, "info", seen.info)
        for name, text in (("terminated", "the task has ended"), ("truncated", "the time is over")):
            if getattr(seen, name):
                view.add_text(name, text)
        if not (seen.alive or seen.terminated or seen.truncated):  # who has won is not told so
            view.add_text("", "You are out.")
        return view

    @override
    def form(self) -> dict[str, Any]:
        if self._space is None:
            return {"kind": "json", "about": ""}
        try:
            mask = mask_in(self._space, self._seen.action_mask)
            return _form(self._space, mask, self._labels, acts=self._seen.active and self._seen.alive)
        except CogmentError:  # a mask that is none of the space: the action will be refused, and that is told
            return _form(self._space, None, self._labels)

    @override
    def action(self, answer: Any) -> pb.Action:
        assert self._space is not None
        try:
            action = from_json_value(answer, self._space)
            check_allowed(self._space, action, self._seen.action_mask)
            return sp.encode_action(action, self._space)
        except sp.SpaceError as error:
            raise error.of("action") from None

    @override
    def idle(self) -> pb.Action:
        return pb.Action()

    def for_newcomer(self, payload: pb.Observation) -> pb.Observation:
        """See `Codec.for_newcomer`: the first observation of a trial has the spaces."""
        if self._space is None or payload.HasField("action_space"):
            return payload
        whole = pb.Observation()
        whole.CopyFrom(payload)
        whole.action_space.CopyFrom(sp.encode_space(self._space))
        if self._observation_space is not None:
            whole.observation_space.CopyFrom(sp.encode_space(self._observation_space))
        return whole


def _add_value(view: View, name: str, value: Any) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _add_value(view, f"{name}.{key}", inner)
    elif isinstance(value, tuple) and not is_graph(value):
        for position, inner in enumerate(value):
            _add_value(view, f"{name}[{position}]", inner)
    elif isinstance(value, bytes):
        view.add_bytes(name, value)
    elif not hasattr(value, "dtype"):
        view.add_json(name, to_json_value(value))
    elif _is_picture(value):
        view.add_bytes(name, png_of(value), "image/png")
    elif value.size > _MAX_ELEMENTS:
        low, high = _numbers(value.min()), _numbers(value.max())
        view.add(name, "array", shape=list(value.shape), dtype=str(value.dtype), low=low, high=high)
    else:
        view.add_json(name, _numbers(value))


def _numbers(array: Any) -> Any:
    """Return the numbers of an array, or one of NumPy's, in nested lists."""
    found = to_json_value(array)
    return _shortest(found) if array.dtype == "float32" else found


def _shortest(found: Any) -> Any:
    if isinstance(found, list):
        return [_shortest(inner) for inner in found]
    return shortest(found) if isinstance(found, float) else found


def _is_picture(array: Any) -> bool:
    return (
        array.dtype == "uint8"
        and (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in _CHANNELS))
        and min(array.shape[:2]) >= _PICTURE_ROWS
    )


# Forms of spaces


def _form(space: sp.Space, mask: Any, labels: Sequence[str] = (), *, acts: bool = True) -> dict[str, Any]:
    if isinstance(space, sp.Discrete) and space.n <= MAX_OPTIONS:
        # A mask that allows nothing means the first one to who has to act, and nothing to who has not.
        nothing = mask is not None and not (acts or np.any(mask))
        allowed = None if mask is None else set() if nothing else set(allowed_numbers(space, mask))
        numbers = list(range(space.start, space.start + space.n))
        return {"kind": "choice", "options": options(numbers, labels, [] if allowed is None else _of(numbers, allowed))}
    maker = _MAKERS.get(type(space))
    return {"kind": "json", "about": repr(space)[:_MAX_ABOUT]} if maker is None else maker(space, mask)


def _of(numbers: Sequence[int], allowed: set[int]) -> list[bool]:
    return [number in allowed for number in numbers]


def _number_form(space: ArraySpace, low: Any, high: Any) -> dict[str, Any]:
    lowest, highest = _bound(low), _bound(high)
    integer = space.row.kind != "f"
    initial = 0
    if lowest is not None:
        initial = max(initial, lowest)
    if highest is not None:
        initial = min(initial, highest)
    if lowest is not None and highest is not None and not integer:
        initial = (lowest + highest) / 2
    return {"kind": "number", "low": lowest, "high": highest, "integer": integer, "initial": initial}


def _bound(value: Any) -> Any:
    """Return a bound as JSON; None where there is none that a slider could have."""
    plain = value.item() if hasattr(value, "item") else value
    return None if abs(plain) > 1e9 else plain


def _sliders(space: ArraySpace, _mask: Any) -> dict[str, Any]:
    low, high = space.bounds()
    if space.shape == ():
        return _number_form(space, low, high)
    size = 1
    for length in space.shape:
        size *= length
    if size > MAX_OPTIONS:
        return {"kind": "json", "about": repr(space)[:_MAX_ABOUT]}
    lows, highs = (np.broadcast_to(bound, space.shape).ravel() for bound in (low, high))
    forms = [_number_form(space, *ends) for ends in zip(lows, highs, strict=True)]
    return {"kind": "sliders", "shape": list(space.shape), "forms": forms}


def _choices(space: sp.MultiDiscrete, mask: Any) -> dict[str, Any]:
    lows, highs = (bound.ravel().tolist() for bound in space.bounds())
    if len(lows) > MAX_OPTIONS or any(high - low >= MAX_OPTIONS for low, high in zip(lows, highs, strict=True)):
        return _sliders(space, None)
    masks: list[Any] = [None] * len(lows) if mask is None else element_masks(mask)
    forms: list[dict[str, Any]] = []
    for low, high, own in zip(lows, highs, masks, strict=True):
        allowed = [] if own is None else [bool(each) for each in own]
        choices = options(range(low, high + 1), (), allowed)
        if forms:  # keys are for one of them
            choices = [{**choice, "keys": []} for choice in choices]
        forms.append({"kind": "choice", "options": choices})
    return {"kind": "choices", "shape": list(space.shape), "forms": forms}


def _switches(space: sp.MultiBinary, mask: Any) -> dict[str, Any]:
    size = 1
    for length in space.shape:
        size *= length
    if size > MAX_OPTIONS:
        return {"kind": "json", "about": repr(space)}
    fixed = [None] * size if mask is None else [None if each == 2 else int(each) for each in mask.ravel().tolist()]
    return {"kind": "switches", "shape": list(space.shape), "fixed": fixed}


def _text(space: sp.Text, _mask: Any) -> dict[str, Any]:
    characters = None if space.charset == ALPHANUMERIC else space.charset[:_MAX_ABOUT]
    return {
        "kind": "text",
        "least": space.min_length,
        "most": space.max_length,
        "characters": "letters and digits" if characters is None else characters,
        "bytes": False,
    }


def _object(space: sp.Dict, mask: Any) -> dict[str, Any]:
    masks = mask or {}
    fields = [
        {"name": key, "form": _form(inner, masks.get(key)), "optional": False} for key, inner in space.spaces.items()
    ]
    return {"kind": "object", "fields": fields}


def _list(space: sp.Tuple, mask: Any) -> dict[str, Any]:
    masks = mask or (None,) * len(space.spaces)
    return {"kind": "list", "forms": [_form(inner, own) for inner, own in zip(space.spaces, masks, strict=True)]}


_MAKERS: dict[type[sp.Space], Callable[[Any, Any], dict[str, Any]]] = {
    sp.Discrete: _sliders,
    sp.Box: _sliders,
    sp.MultiDiscrete: _choices,
    sp.MultiBinary: _switches,
    sp.Text: _text,
    sp.Dict: _object,
    sp.Tuple: _list,
    sp.Sequence: lambda space, _mask: {"kind": "sequence", "form": _form(space.space, None)},
    sp.OneOf: lambda space, _mask: {"kind": "one_of", "forms": [_form(inner, None) for inner in space.spaces]},
}
