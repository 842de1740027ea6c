"""Choice of the codec for an actor's payloads."""

from __future__ import annotations

from collections.abc import Sequence

from trio_cogment.play.codecs import BytesCodec, Codec, MessageCodec
from trio_cogment.sdk.spec import ActorClass

#: The observation of `trio_cogment.spaces`, and so of `trio_cogment.rl`.
_OF_SPACES = "trio_cogment.spaces.Observation"


def codec_for(actor_class: ActorClass, labels: Sequence[str] = ()) -> Codec:
    """Return the codec for actors of a class.

    Args:
        actor_class: with its types.
        labels: what actions are called, if there are a few to choose from.
    """
    observation = actor_class.observation
    if observation is not None and observation.DESCRIPTOR.full_name == _OF_SPACES:
        from trio_cogment.play.space_codec import SpaceCodec  # needs NumPy

        return SpaceCodec(labels)
    return BytesCodec() if actor_class.action is None else MessageCodec(actor_class, labels)
