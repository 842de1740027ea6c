"""The interface of every mapping between payloads and tensors."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensor_specs import TensorSpec, check_names

#: Observations by the protocol's convention.
REWARD, DISCOUNT = "reward", "discount"


class Verdict(enum.Enum):
    """What an observation itself says of its agent."""

    #: The task has ended by its own rules.
    TERMINATED = "terminated"
    #: The episode was cut off.
    TRUNCATED = "truncated"
    GOING_ON = "going on"


class SlotMapping(Protocol):
    """The payloads of one slot as tensors, for the life of a world.

    Attributes:
        specs: of actions and observations. UIDs are 1 to n, first the actions and then the observations, in order;
            `reward` and, if it is exposed, `discount` come last.
        default_action: the payload that is played where no client acts.
        numbers: the UIDs of the observations that are no part of payloads: reward and discount.
    """

    specs: pb.ActionObservationSpecs
    default_action: bytes
    numbers: frozenset[int]

    def action(self, tensors: Mapping[int, pb.Tensor]) -> bytes:
        """Check the tensors of a step, and return the payload that they make.

        Raises:
            InvalidArgumentError: a UID is unknown, a tensor is not what its specification says, or one is missing.
            RpcError: OUT_OF_RANGE: an element is outside of its bounds. The texts name the UID and the action.
        """

    def check_requested(self, uids: Collection[int]) -> None:
        """See that observations with these UIDs exist; the same one may come twice.

        Raises:
            InvalidArgumentError: one does not; the text names it.
        """

    def fill(
        self, response: pb.StepResponse, content: bytes, uids: Collection[int], reward: float, discount: float
    ) -> None:
        """Write observations of a payload into a response.

        Args:
            response: the response.
            content: the payload.
            uids: of the observations that are wanted; they exist.
            reward: for the observation `reward`.
            discount: for the observation `discount`.

        Raises:
            RemoteProtocolError: the payload is not of its type.
        """

    def verdict(self, content: bytes) -> Verdict | None:
        """Return what a payload says of its agent; None: such payloads say nothing."""

    def describes(self, content: bytes) -> bool:
        """Whether the first observation of a trial fits the specifications."""


class Numbering:
    """The UIDs of a slot's actions and observations.

    Args:
        actions: their specifications.
        observations: likewise, without reward and discount.
        expose_discount: there is an observation `discount`.

    Attributes:
        specs: the message.
        actions: the specifications by UID.
        observations: likewise.
        reward: the UID of the observation `reward`.
        discount: likewise; 0 if there is none.
        numbers: see `SlotMapping`.

    Raises:
        FailedPreconditionError: two names are the same, or one is nested in another.
    """

    def __init__(
        self, actions: Iterable[TensorSpec], observations: Iterable[TensorSpec], *, expose_discount: bool = False
    ) -> None:
        self.actions = dict(enumerate(actions, start=1))
        self.observations = dict(enumerate(observations, start=len(self.actions) + 1))
        last = len(self.actions) + len(self.observations)
        self.reward = last + 1
        self.discount = last + 2 if expose_discount else 0
        self.numbers = frozenset([self.reward, *([self.discount] if expose_discount else [])])
        self.specs = pb.ActionObservationSpecs()
        for uid, spec in self.actions.items():
            self.specs.actions[uid].CopyFrom(spec.message())
        shown = {**self.observations, self.reward: TensorSpec.of(REWARD, "float32")}
        if expose_discount:
            shown[self.discount] = TensorSpec.of(DISCOUNT, "float32", (), 0.0, 1.0)
        for uid, spec in shown.items():
            self.specs.observations[uid].CopyFrom(spec.message())
        self._known = frozenset(shown)
        for numbered in (self.actions, shown):
            try:
                check_names(numbered)
            except SpaceError as error:
                raise FailedPreconditionError(
                    f"actions and observations: {error}; 'reward' and 'discount' are the gateway's own"
                ) from None

    def check_requested(self, uids: Collection[int]) -> None:
        """See `SlotMapping.check_requested`."""
        if not self._known.issuperset(uids):
            unknown = next(uid for uid in uids if uid not in self._known)
            known = ", ".join(map(str, sorted(self._known)))
            raise InvalidArgumentError(f"requested_observations: expected some of {known}; got UID {unknown}")

    def check_actions(self, uids: Collection[int], *, all_of_them: bool = False) -> None:
        """See that actions with these UIDs exist.

        Args:
            uids: of the actions of a step.
            all_of_them: none may be missing.

        Raises:
            InvalidArgumentError: one does not exist, or is missing; the text names it.
        """
        for uid in uids:
            if uid not in self.actions:
                known = ", ".join(map(str, self.actions)) or "none"
                raise InvalidArgumentError(f"actions: expected some of {known}; got UID {uid}")
        if all_of_them and len(uids) < len(self.actions):
            uid, spec = next((uid, spec) for uid, spec in self.actions.items() if uid not in uids)
            raise InvalidArgumentError(f"actions: expected all of them, and {spec.name!r} (UID {uid}) is missing")

    def fill_numbers(self, response: pb.StepResponse, uids: Collection[int], reward: float, discount: float) -> None:
        """Write reward and discount into a response, if they are wanted."""
        if self.reward in uids:
            response.observations[self.reward].floats.array.append(reward)
        if self.discount in uids:
            response.observations[self.discount].floats.array.append(discount)
