"""Annotations of a profile: shapes, bounds and types of payloads that their protobuf types cannot say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from trio_cogment.base.errors import InvalidArgumentError

Layer: TypeAlias = Literal["auto", "native", "reflection", "raw"]
LAYERS: tuple[str, ...] = get_args(Layer)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldAnnotation:
    """What a field of a message is as a tensor, besides what its type says.

    Attributes:
        shape: of a list, of bytes or of an array; one dimension, at most, is of any length: -1. None: [-1].
        minimum: the lowest value, or the lowest values in the shape.
        maximum: likewise.
        dtype: the type of the elements: a narrower one for integers; the one that the elements have in `bytes` and in
            messages `Array`.
        skip: there is no tensor. In an action the field is not set.
    """

    shape: Sequence[int] | None = None
    minimum: Any = None
    maximum: Any = None
    dtype: str | None = None
    skip: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMapping:
    """How the payloads of an actor class become tensors.

    Attributes:
        layer: "native" for payloads of `trio_cogment.spaces`, which come with their spaces; "reflection": each field of
            the message is a tensor; "raw": the message is one tensor, an `Any`. With "auto" it is "native" where the
            types are those, and "reflection" elsewhere; a payload without a type is a tensor of its bytes.
        actions: annotations of fields of the action, by their names from the outermost message on, joined by dots.
        observations: likewise.

    Raises:
        InvalidArgumentError: there is no such layer.
    """

    layer: Layer = "auto"
    actions: Mapping[str, FieldAnnotation] = field(default_factory=dict)
    observations: Mapping[str, FieldAnnotation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.layer not in LAYERS:
            raise InvalidArgumentError(f"layer: expected one of {', '.join(LAYERS)}; got {self.layer!r}")
