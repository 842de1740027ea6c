"""Actions, observations and settings as people write them, by name, and as dm_env_rpc has them: tensors by UID."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensor_specs import TensorSpec, check_names
from trio_cogment.spaces.tensors import encode_tensor, shape_for

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Tensors:
    """The actions, or the observations, of an agent in a world: a mapping of names to specifications, and their UIDs.

    Attributes:
        specs: by name, in the order of their UIDs.
        uids: by name.
    """

    def __init__(self, kind: str, specs: Mapping[int, TensorSpec]) -> None:
        """Take specifications by UID.

        Args:
            kind: for errors: `action` or `observation`.
            specs: by UID.

        Raises:
            SpaceError: two have the same name, or one name is the beginning of another's nesting.
        """
        check_names(specs)
        self._kind = kind
        self.specs = {spec.name: spec for _, spec in sorted(specs.items())}
        self.uids = {spec.name: uid for uid, spec in sorted(specs.items())}
        self._names = {uid: name for name, uid in self.uids.items()}
        # Environments overstep their own bounds by rounding errors or by more, and their users expect to see that.
        self._unbounded = {
            name: dataclasses.replace(spec, minimum=None, maximum=None) for name, spec in self.specs.items()
        }

    def uid(self, name: str) -> int:
        """Return the UID of a name.

        Raises:
            SpaceError: there is none.
        """
        if name not in self.uids:
            known = ", ".join(map(repr, self.uids)) or "none"
            raise SpaceError(f"expected one of {known}", root=f"{self._kind} {name!r}")
        return self.uids[name]

    def packed(self, values: Mapping[str, Any]) -> dict[int, pb.Tensor]:
        """Return values by name as tensors by UID, in the types of their specifications.

        Bounds are not looked at: the server judges them.

        Raises:
            SpaceError: there is no such name, or a value has not the type or shape of its specification.
        """
        found = {}
        for name, value in values.items():
            uid = self.uid(name)
            try:
                found[uid] = tensor_for(self.specs[name], value)
            except SpaceError as error:
                raise error.of(f"{self._kind} {name!r}") from None
        return found

    def unpacked(self, tensors: Mapping[int, pb.Tensor]) -> dict[str, NDArray[Any]]:
        """Return tensors by UID as arrays by name, without looking at bounds.

        Raises:
            SpaceError: there is no such UID, or a tensor has not the type or shape of its specification.
        """
        found = {}
        for uid, tensor in tensors.items():
            name = self._names.get(uid)
            if name is None:
                raise SpaceError("expected a UID that the specifications have", root=f"{self._kind} {uid}")
            found[name] = self._unbounded[name].check(tensor)
        return found


@dataclass(frozen=True, slots=True)
class Specs:
    """What an agent can do and see in a world.

    Attributes:
        actions: the actions.
        observations: the observations, among them the reward and the discount, if the world has them.
    """

    actions: Tensors
    observations: Tensors

    @classmethod
    def of(cls, message: pb.ActionObservationSpecs) -> Specs:
        """Return specifications that were received.

        Raises:
            SpaceError: one makes no sense, or names are not unique.
        """
        actions, observations = (
            {uid: TensorSpec.from_message(spec) for uid, spec in specs.items()}
            for specs in (message.actions, message.observations)
        )
        return cls(Tensors("action", actions), Tensors("observation", observations))


def tensor_for(spec: TensorSpec, value: Any) -> pb.Tensor:
    """Return a value as a tensor of a specification's type and rank.

    Raises:
        SpaceError: the type cannot hold it, or it has another shape.
    """
    row = spec.type
    if row.name in ("str", "object"):
        array = np.asarray(value) if row.name == "str" else np.asarray(value, object)
        if row.name == "str" and not array.size:
            array = array.astype(np.str_)  # of nothing NumPy makes numbers
        if row.name == "str" and array.dtype.kind != "U":
            raise SpaceError(f"expected str, got {array.dtype}")
    else:
        array = _in_type(value, row.dtype)
    if array.ndim != len(spec.shape) or any(
        wanted not in (-1, length)
        for wanted, length in zip((max(length, -1) for length in spec.shape), array.shape, strict=True)
    ):
        raise SpaceError(f"expected the shape {spec.shape}, got {array.shape}")
    shape_for(array.shape, array.size, spec.shape)
    return encode_tensor(array)


def _in_type(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return numbers in another type that holds them; of floats it may be less precise."""
    try:
        given = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise SpaceError(f"expected {dtype}: {error}") from error
    if given.dtype == dtype:
        return given
    if not given.size and given.dtype.kind == "f":
        return given.astype(dtype)  # what an empty list is in NumPy
    if given.dtype.kind not in "biuf" or (given.dtype.kind == "b") != (dtype.kind == "b"):
        raise SpaceError(f"expected {dtype}, got {given.dtype}")
    with np.errstate(all="ignore"):
        array = given.astype(dtype)
    if dtype.kind != "f" and not (given.dtype.kind != "f" and (array == given).all()):
        raise SpaceError(f"expected numbers of the type {dtype}, got {given.dtype}: {given.tolist()}")
    return array


def flattened(settings: Mapping[str, Any]) -> dict[str, pb.Tensor]:
    """Return settings as tensors; those within mappings are named by their keys, joined by dots.

    Raises:
        SpaceError: a key is not a string, is empty or occurs twice, or a value is nothing that a tensor can be.
    """
    found: dict[str, pb.Tensor] = {}
    for name, value in _leaves(settings, ()):
        if name in found:
            raise SpaceError("expected a name that is unique", root=f"setting {name!r}")
        try:
            found[name] = encode_tensor(value)
        except SpaceError as error:
            raise error.of(f"setting {name!r}") from None
    return found


def _leaves(settings: Mapping[str, Any], path: tuple[str, ...]) -> Iterable[tuple[str, Any]]:
    for key, value in settings.items():
        if not isinstance(key, str) or not key:
            raise SpaceError(
                f"expected strings that are not empty as keys, got {key!r}", root=".".join(path) or "settings"
            )
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        else:
            yield ".".join((*path, key)), value


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values nested in mappings by their keys, joined by dots.

    Raises:
        SpaceError: a key is not a string, or is empty.
    """
    return dict(_leaves(values, ()))


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name nested in dicts at the dots of their names."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *parents, last = name.split(".")
        branch = tree
        for key in parents:
            branch = branch.setdefault(key, {})
        branch[last] = value
    return tree
