"""Observations and action spaces as text for a language model, and actions from what it answers.

Values are JSON: arrays are lists, dicts are objects, tuples are lists, texts are texts. An array of more than 1,000
elements is not written out: its shape and type stand in its place. An answer may have words around the action: see
`read_action`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Observation,
    OneOf,
    Sequence,
    Space,
    SpaceError,
    Text,
    Tuple,
)
from trio_cogment.spaces.base import ArraySpace, numbers, rounded, shown
from trio_cogment.spaces.composite import part
from trio_cogment.spaces.elementary import ALPHANUMERIC, any_text
from trio_cogment.spaces.masks import allowed_numbers, check_allowed, mask_in

#: Arrays with more elements are not written out.
MAX_ELEMENTS = 1000
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)


def turn_prompt(
    environment: str,
    agent: str,
    observation: Observation,
    refused: str = "",
    reason: str = "",
    *,
    describe: Callable[[Observation], str] | None = None,
) -> str:
    """Return what a language model is asked when it is to act.

    Args:
        environment: the environment's name.
        agent: whom the model plays.
        observation: with the action space.
        refused: its last answer, if that was not an action.
        reason: why it was none.
        describe: returns the observation as text; by default its value as JSON.

    Raises:
        SpaceError: an action of this space cannot be given as text, or the mask is none of the space.
    """
    space = observation.action_space
    assert space is not None
    seen = as_text(observation.value) if describe is None else describe(observation)
    lines = [f"You are {agent} in {environment}.", "", "Observation:", seen]
    if observation.reward is not None:
        lines += ["", f"Your reward for the last step: {observation.reward}"]
    lines += ["", f"Your action is {described_space(space)}."]
    if observation.action_mask is not None:
        lines.append(allowed_now(space, observation.action_mask))
    if reason:
        lines += ["", f"Your last answer was refused: {reason}", f"It was: {json.dumps(refused, ensure_ascii=False)}"]
    lines += ["", "Answer with the action alone, as JSON."]
    return "\n".join(lines)


def allowed_now(space: Space, mask: Any) -> str:
    """Return a sentence with the actions that a mask allows.

    Raises:
        SpaceError: the mask is none of the space.
    """
    return f"Allowed now: {_allowed(space, mask_in(space, mask))}."


def as_text(value: Any) -> str:
    """Return a value as JSON; a text is returned as it is."""
    return value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False)


def place_prompt(environment: str, agent: str, space: Space | None) -> str:
    """Return what a language model is told of its place, before all else in a conversation.

    Args:
        environment: the environment's name.
        agent: whom the model plays.
        space: of its actions; None if they are messages of a project's own.

    Raises:
        SpaceError: an action of this space cannot be given as text.
    """
    action = "JSON" if space is None else described_space(space)
    form = "." if isinstance(space, Text) else ", as JSON."
    return f"You are {agent} in {environment}.\nYour action is {action}.\nAnswer with the action alone{form}"


def tool_prompt(environment: str, agent: str, space: Space | None, observed: str) -> str:
    """Return what a language model is told first that acts by calling a tool: its place, and what it observes.

    Args:
        environment: the environment's name.
        agent: whom the model plays.
        space: of its actions; None if they are messages of a project's own.
        observed: the first turn of its `Conversation`.

    Raises:
        SpaceError: an action of this space cannot be given as text.
    """
    action = "JSON" if space is None else described_space(space)
    return f"You are {agent} in {environment}. Your action is {action}.\n\n{observed}"


def end_told(observed: str, total: float) -> str:
    """Return what such a model is told when its episode is over: the last observation, and its return."""
    return f"{observed}\n\nThe episode is over. Your return is {total:g}."


class Conversation:
    """The turns of a language model's user in one conversation, made of one agent's observations.

    Where an observation is a text that begins with all that was there before, as in games of TextArena, a turn has only
    what is new.

    Attributes:
        space: of the agent's actions; None if they are messages of a project's own.
    """

    def __init__(self, space: Space | None) -> None:
        self.space = space
        self._before = ""

    def told(self, value: Any, mask: Any = None) -> str:
        """Return an observation as text, with what is allowed, if there is a mask.

        Raises:
            SpaceError: the mask is none of the space.
        """
        text, before = as_text(value), self._before
        self._before = text
        if isinstance(value, str) and before and text.startswith(before):
            text = text[len(before) :].lstrip("\n")
        return text if mask is None or self.space is None else f"{text}\n\n{allowed_now(self.space, mask)}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.size > MAX_ELEMENTS:
            return f"array of {value.dtype}, shape {list(value.shape)}"
        # As text, numbers of 32 bits are shorter than as the doubles nearest to them.
        return _shortest(value.tolist()) if value.dtype in (np.float16, np.float32) else value.tolist()
    if isinstance(value, np.float32 | np.float16):
        return float(str(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return value


def _shortest(numbers: Any) -> Any:
    return [_shortest(inner) for inner in numbers] if isinstance(numbers, list) else float(str(np.float32(numbers)))


def described_space(space: Space) -> str:
    """Return what an action is, in words.

    Raises:
        SpaceError: actions of this space cannot be given as text: those of `Graph`.
    """
    writer = _WORDS.get(type(space))
    if writer is None:
        raise SpaceError(f"expected a space whose actions can be given as text, got {type(space).__name__}")
    return writer(space)


def _of_box(space: Box) -> str:
    kind = "number" if space.row.kind == "f" else "whole number"
    low, high = (np.unique(bound).astype(str).tolist() for bound in (space.low, space.high))
    if len(low) == len(high) == 1:
        kinds = "numbers" if kind == "number" else "whole numbers"
        each = f"from {low[0]} to {high[0]}"
        return f"a {kind} {each}" if space.shape == () else f"{_lists(space.shape, kinds)}, each {each}"
    return (
        f"{_lists(space.shape, f'{kind}s')}, from {json.dumps(_plain(space.low))} to {json.dumps(_plain(space.high))}"
    )


def _lists(shape: tuple[int, ...], what: str) -> str:
    return f"a list of {shape[0]} {what}" if len(shape) == 1 else f"nested lists of {what} with the shape {list(shape)}"


def _of_multi_discrete(space: MultiDiscrete) -> str:
    ends = [f"{low} to {high}" for low, high in zip(*(bound.ravel().tolist() for bound in space.bounds()), strict=True)]
    return f"{_lists(space.shape, 'whole numbers')}: {', '.join(ends)}"


def _of_text(space: Text) -> str:
    length = f"a text of {space.min_length} to {space.max_length}"
    if space == any_text():
        return f"{length} characters"
    characters = "letters and digits" if space.charset == ALPHANUMERIC else f"characters of {json.dumps(space.charset)}"
    return f"{length} {characters}"


def _of_dict(space: Dict) -> str:
    parts = [f"{json.dumps(key)}: {part(described_space, key, inner)}" for key, inner in space.spaces.items()]
    return f"an object with {'; '.join(parts)}"


def _of_tuple(space: Tuple) -> str:
    return f"a list of: {'; '.join(part(described_space, k, inner) for k, inner in enumerate(space.spaces))}"


def _of_one_of(space: OneOf) -> str:
    parts = [f"[{k}, {part(described_space, k, inner)}]" for k, inner in enumerate(space.spaces)]
    return f"one of the lists {'; '.join(parts)}"


_WORDS: dict[type[Space], Callable[[Any], str]] = {
    Discrete: lambda space: "a whole number from {} to {}".format(*space.bounds()),
    Box: _of_box,
    MultiDiscrete: _of_multi_discrete,
    MultiBinary: lambda space: _lists(space.shape, "zeros and ones"),
    Text: _of_text,
    Dict: _of_dict,
    Tuple: _of_tuple,
    Sequence: lambda space: f"a list of any length, each element of which is {described_space(space.space)}",
    OneOf: _of_one_of,
}


def _allowed(space: Space, mask: Any) -> str:
    """Return what a mask allows, in words."""
    if mask is None:
        return "all"
    if isinstance(space, Discrete):
        return ", ".join(map(str, allowed_numbers(space, mask)))
    if isinstance(space, Dict) and isinstance(mask, dict):
        return "; ".join(f"{json.dumps(key)}: {_allowed(inner, mask.get(key))}" for key, inner in space.spaces.items())
    if isinstance(space, Tuple) and isinstance(mask, tuple) and len(mask) == len(space.spaces):
        parts = zip(space.spaces, mask, strict=True)
        return "; ".join(f"element {k}: {_allowed(inner, own)}" for k, (inner, own) in enumerate(parts))
    return f"what this mask has 1 for, or 2 for either: {json.dumps(_plain(mask))}"


def read_action(space: Space, answer: str, mask: Any = None) -> Any:
    """Return the action in what a language model answered.

    It is the whole answer, if that is JSON; else the last block of code (three backquotes) that is, else the last line;
    else the last number in it, if the action is a number, or the last list or object otherwise. A `Text` is a string of
    JSON there, or the whole answer without the blanks around it: games take `[4]` as it is.

    Args:
        space: what the action has to be in.
        answer: what was answered.
        mask: what is allowed, if not all is.

    Raises:
        SpaceError: there is none, it is not in the space, or it is not allowed.
    """
    found = next(_values_in(space, answer), None)
    if found is None:
        raise SpaceError(f"expected {described_space(space)}; found none in the answer", root="action")
    try:
        action = space.check(_value(space, found[0]))
        check_allowed(space, action, mask)
    except SpaceError as error:
        raise error.of("action") from None
    return action


def _values_in(space: Space, answer: str) -> Iterator[tuple[Any]]:
    """Yield what may be the action, the likeliest first; each in a tuple, since None is a value of JSON."""
    stripped = answer.strip()
    last_line = stripped.rpartition("\n")[2].strip()
    for text in (stripped, *reversed(_FENCE.findall(answer)), last_line):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, str) or not isinstance(space, Text):
            yield (value,)
    if isinstance(space, Text):
        yield (stripped,)
    elif isinstance(space, ArraySpace) and space.shape == ():
        yield from ((json.loads(text),) for text in _NUMBER.findall(answer)[-1:])
    else:
        yield from _last_structure(answer)


def _last_structure(answer: str) -> Iterator[tuple[Any]]:
    decoder, found, position = json.JSONDecoder(), [], 0
    while (start := re.compile(r"[\[{]").search(answer, position)) is not None:
        try:
            value, position = decoder.raw_decode(answer, start.start())
            found.append(value)
        except (ValueError, RecursionError):
            position = start.end()
    yield from ((value,) for value in found[-1:])


def _value(space: Space, data: Any) -> Any:
    """Return a value of JSON as one that the space may have; its `check` has the last word."""
    if isinstance(space, ArraySpace):
        return _array(space, data)
    if isinstance(space, Dict) and isinstance(data, dict):
        return {
            key: part(_value, key, space.spaces[key], inner) if key in space.spaces else inner
            for key, inner in data.items()
        }
    if isinstance(space, Tuple) and isinstance(data, list) and len(data) == len(space.spaces):
        return tuple(part(_value, k, inner, data[k]) for k, inner in enumerate(space.spaces))
    if isinstance(space, Sequence) and isinstance(data, list):
        return _sequence(space, data)
    if isinstance(space, OneOf) and isinstance(data, list) and len(data) == 2:
        position = data[0]
        if type(position) is int and 0 <= position < len(space.spaces):
            return position, part(_value, 1, space.spaces[position], data[1])
        return tuple(data)
    return data


def _sequence(space: Sequence, data: list[Any]) -> Any:
    values = tuple(part(_value, k, space.space, inner) for k, inner in enumerate(data))
    if not space.stack:
        return values
    if not isinstance(space.space, ArraySpace):
        raise SpaceError(f"expected a stack of arrays, got a stack of {type(space.space).__name__}")
    return np.array(values, space.space.dtype).reshape((len(values), *space.space.shape))


def _array(space: ArraySpace, data: Any) -> Any:
    if isinstance(data, str) and _NUMBER.fullmatch(data.strip()):
        data = json.loads(data)
    array = np.asarray(numbers(data, "action"))
    if array.dtype.kind == "b" and space.row.kind != "b":
        raise SpaceError(f"expected numbers, got {shown(data)}")
    if array.size == 0 and 0 in space.shape:
        array = array.reshape(space.shape)  # lists do not tell what follows a length of 0
    if array.shape != space.shape:
        raise SpaceError(f"expected the shape {space.shape}, got {array.shape}")
    if space.row.kind == "f":
        # The bounds in the prompt are rounded to the type, too.
        return rounded(array, space.row)
    # Numbers that are not whole, or too large for the type, would silently become others.
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.floor(array))).all():
        raise SpaceError(f"expected whole numbers, got {shown(data)}")
    low, high = space.bounds()
    outside = np.argwhere(~((array >= low) & (array <= high)))
    if len(outside):
        index = tuple(int(each) for each in outside[0])
        lowest, highest = (np.broadcast_to(bound, array.shape)[index] for bound in (low, high))
        raise SpaceError(f"expected {lowest} to {highest}, got {array[index]}").inside(*index)
    return array.astype(space.dtype)
