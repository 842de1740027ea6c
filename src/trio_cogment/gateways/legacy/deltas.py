"""Deltas: applying each one to the observation before it.

An application of the legacy API may send an observation whole, or as a message of the class's delta type: what has
changed since the one before. Today's observations are always whole.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from google.protobuf.message import DecodeError, Message

from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError


class ApplyDelta(Protocol):
    """Makes an observation of the one before and a delta."""

    def __call__(self, before: bytes | None, delta: bytes) -> bytes:
        """Return the observation.

        Args:
            before: the actor's last observation, None if there was none.
            delta: a message of the delta type.

        Raises:
            RemoteProtocolError: the delta cannot be applied.
        """


def replacing(before: bytes | None, delta: bytes) -> bytes:
    """Return the delta: its type is the observation's, and it is a whole one. See `ApplyDelta`."""
    return delta


def merging(observation: type[Message]) -> ApplyDelta:
    """Return what merges deltas into observations, as protobuf merges messages.

    Fields that the delta has take the place of those before, lists grow, and messages within are merged.

    Args:
        observation: the type of both.
    """

    def apply(before: bytes | None, delta: bytes) -> bytes:
        merged = _parsed(observation, before or b"", "observation")
        merged.MergeFrom(_parsed(observation, delta, "delta"))
        return merged.SerializeToString()

    return apply


def applying(function: Callable[[Any, Any], Any], observation: type[Message], delta_type: type[Message]) -> ApplyDelta:
    """Return what applies deltas with a function of the project.

    Args:
        function: takes the observation before, which it may change, and the delta; returns the observation. Before the
            first delta the observation is empty.
        observation: the type of observations.
        delta_type: the type of deltas.
    """

    def apply(before: bytes | None, delta: bytes) -> bytes:
        last = _parsed(observation, before or b"", "observation")
        changes = _parsed(delta_type, delta, "delta")
        try:
            made = function(last, changes)
        except Exception as error:
            raise RemoteProtocolError(f"the function that applies deltas failed: {type(error).__name__}") from error
        wanted = observation.DESCRIPTOR.full_name
        if not isinstance(made, Message) or made.DESCRIPTOR.full_name != wanted:
            raise RemoteProtocolError(
                f"the function that applies deltas: expected a {wanted} as its result, got {type(made).__name__}"
            )
        return made.SerializeToString()

    return apply


def function_named(text: str) -> Callable[[Any, Any], Any]:
    """Return a function of the project by its name, `module:function`; the module is imported.

    Raises:
        InvalidArgumentError: there is none.
    """
    module_name, separator, name = text.partition(":")
    if not (separator and module_name and name):
        raise InvalidArgumentError(f"expected module:function, got {text!r}")
    try:
        found = getattr(importlib.import_module(module_name), name, None)
    except (ImportError, ValueError, TypeError) as error:
        raise InvalidArgumentError(f"{text!r}: the module cannot be imported: {error}") from error
    if not callable(found):
        raise InvalidArgumentError(f"{text!r}: the module {module_name!r} has no function {name!r}")
    function: Callable[[Any, Any], Any] = found
    return function


def _parsed(kind: type[Message], content: bytes, what: str) -> Message:
    try:
        return kind.FromString(content)
    except DecodeError:
        raise RemoteProtocolError(f"{what}: {len(content)} bytes, not a valid {kind.DESCRIPTOR.full_name}") from None
