"""Which mapping the payloads of an actor class have."""

from __future__ import annotations

from trio_cogment.api import spaces_pb2
from trio_cogment.errors import FailedPreconditionError
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import SlotMapping
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.envelopes import EnvelopeMapping
from trio_cogment.gateways.dm_env_rpc.gateway.templates import WorldTemplate
from trio_cogment.spec import Spec

_ENVELOPES = (spaces_pb2.Observation.DESCRIPTOR.full_name, spaces_pb2.Action.DESCRIPTOR.full_name)


def needs_first_observation(spec: Spec, actor_class: str) -> bool:
    """Whether the specifications of a class come with the first observation of a trial."""
    kind = spec.actor_class(actor_class)
    names = [None if each is None else each.DESCRIPTOR.full_name for each in (kind.observation, kind.action)]
    return tuple(names) == _ENVELOPES


def make_mapping(spec: Spec, template: WorldTemplate, actor_class: str, first: bytes | None) -> SlotMapping:
    """Return the mapping of a slot.

    Args:
        spec: the types of the project.
        template: of the world.
        actor_class: of the slot.
        first: the slot's first observation of a trial, where `needs_first_observation`.

    Raises:
        FailedPreconditionError: there is no mapping.
    """
    if needs_first_observation(spec, actor_class):
        assert first is not None
        return EnvelopeMapping(
            first, expose_discount=template.expose_discount, require_actions=template.require_actions
        )
    raise FailedPreconditionError(f"actor class {actor_class!r}: there is no mapping of its payloads")
