"""Choice of the mapping for the payloads of an actor class."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from trio_cogment.api import spaces_pb2
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.annotations import ClassMapping, FieldAnnotation
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import SlotMapping
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.envelopes import (
    ACTION,
    OBSERVATION,
    EnvelopeMapping,
    ParsedObservations,
)
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.fields import FieldsSide
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.sides import BytesSide, Side, TwoSides, WholeSide
from trio_cogment.gateways.dm_env_rpc.gateway.templates import WorldTemplate
from trio_cogment.sdk.spec import ActorClass, Spec

_ENVELOPES = (spaces_pb2.Observation.DESCRIPTOR.full_name, spaces_pb2.Action.DESCRIPTOR.full_name)
_USUAL = ClassMapping()


def needs_first_observation(spec: Spec, template: WorldTemplate, actor_class: str) -> bool:
    """Whether the specifications of a class come with the first observation of a trial."""
    layer = template.classes.get(actor_class, _USUAL).layer
    return layer == "native" or (layer == "auto" and _has_spaces(spec.actor_class(actor_class)))


def _has_spaces(kind: ActorClass) -> bool:
    names = [None if each is None else each.DESCRIPTOR.full_name for each in (kind.observation, kind.action)]
    return tuple(names) == _ENVELOPES


def check_classes(spec: Spec, classes: Mapping[str, ClassMapping]) -> None:
    """See that the annotations of classes go with their types.

    Raises:
        InvalidArgumentError: one does not, or there is no such class; the text names the class and the field.
    """
    for name, mapping in classes.items():
        if name not in spec.names():
            known = ", ".join(map(repr, spec.names())) or "none"
            raise InvalidArgumentError(f"classes: expected some of {known}; got {name!r}")
        kind = spec.actor_class(name)
        if mapping.layer == "native" and not _has_spaces(kind):
            expected = "actions and observations of trio_cogment.spaces"
            raise InvalidArgumentError(f"classes.{name}.layer: native payloads are {expected}, and these are others")
        if mapping.layer == "native" or (mapping.layer == "auto" and _has_spaces(kind)):
            if mapping.actions or mapping.observations:
                raise InvalidArgumentError(f"classes.{name}: expected no annotations: the spaces say it all")
            continue
        for of, part in (("actions", kind.action), ("observations", kind.observation)):
            try:
                _side(part, of, mapping, presence=False)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"classes.{name}.{of}: {error}") from None


class Mappings:
    """The mappings of a world: slots of one class have the same one, unless their spaces are others.

    Args:
        spec: the types of the project.
        template: of the world.
    """

    def __init__(self, spec: Spec, template: WorldTemplate) -> None:
        self._spec = spec
        self._template = template
        self._parsed = ParsedObservations()
        self._made: dict[tuple[str, bytes], SlotMapping] = {}

    def of(self, actor_class: str, first: bytes | None) -> SlotMapping:
        """Return the mapping of a slot.

        Args:
            actor_class: of the slot.
            first: the slot's first observation of a trial, where `needs_first_observation`.

        Raises:
            CogmentError: there is no mapping.
        """
        spaces = b""
        if needs_first_observation(self._spec, self._template, actor_class):
            assert first is not None
            spaces = self._parsed.spaces(first)
        key = actor_class, spaces
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make_mapping(self._spec, self._template, actor_class, first, self._parsed)
        return found


def make_mapping(
    spec: Spec, template: WorldTemplate, actor_class: str, first: bytes | None, parsed: ParsedObservations | None = None
) -> SlotMapping:
    """Return the mapping of a slot.

    Args:
        spec: the types of the project.
        template: of the world.
        actor_class: of the slot.
        first: the slot's first observation of a trial, where `needs_first_observation`.
        parsed: the payloads of the world.

    Raises:
        FailedPreconditionError: there is no mapping.
    """
    if needs_first_observation(spec, template, actor_class):
        assert first is not None
        return EnvelopeMapping(
            first,
            parsed=parsed,
            expose_discount=template.expose_discount,
            require_actions=template.require_actions,
        )
    kind, mapping = spec.actor_class(actor_class), template.classes.get(actor_class, _USUAL)
    try:
        return TwoSides(
            _side(kind.action, "actions", mapping, presence=template.presence),
            _side(kind.observation, "observations", mapping, presence=template.presence),
            expose_discount=template.expose_discount,
            require_actions=template.require_actions,
        )
    except InvalidArgumentError as error:
        raise FailedPreconditionError(f"actor class {actor_class!r}: {error}") from None


def _side(kind: type[Message] | None, of: str, mapping: ClassMapping, *, presence: bool) -> Side:
    is_action = of == "actions"
    name = ACTION if is_action else OBSERVATION
    notes: Mapping[str, FieldAnnotation] = mapping.actions if is_action else mapping.observations
    if kind is not None and mapping.layer != "raw":
        return FieldsSide(kind, notes, is_action=is_action, presence=presence)
    if notes:
        what = "the payloads are bytes" if kind is None else "the message is one tensor"
        raise InvalidArgumentError(f"expected no annotations: {what}")
    return BytesSide(name) if kind is None else WholeSide(name, kind)
