"""A seat of a stored model: `model`, one version of it for each trial."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import trio

from trio_cogment.api.model_registry_pb2 import ModelVersionInfo
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError, RpcError, StatusCode
from trio_cogment.sdk import ModelRegistryClient
from trio_cogment.seats.base import SeatContext, SeatError
from trio_cogment.seats.local import Answer, Function, LocalSeat

_REFERENCE = re.compile(r"(?P<name>[^@]+)(?:@(?P<version>-?[0-9]{1,9}))?")


def parse_reference(reference: str) -> tuple[str, int]:
    """Return the model and the version that `name@version` stands for; without a version the newest, -1.

    Raises:
        InvalidArgumentError: it is not of that form, or the version is 0.
    """
    found = _REFERENCE.fullmatch(reference)
    version = int(found["version"] or -1) if found else 0
    if found is None or version == 0:
        raise InvalidArgumentError(
            f"model: expected name, name@number, or name@-2 for the version before the newest (@-1); got {reference!r}"
        )
    return found["name"], version


def policy_name(model: str, version: int) -> str:
    """Return what a version is called in the properties of a trial."""
    return f"{model}@{version}"


class ModelSeat(LocalSeat):
    """A version of a model; made by `model`.

    Attributes:
        version: the number of the version that plays in the trial that began last; 0 before the first.
    """

    chooses = True

    def __init__(
        self, reference: str, load: Callable[[bytes], Any], registry: ModelRegistryClient | None, **options: Any
    ) -> None:
        super().__init__(**options)
        if not callable(load):
            raise InvalidArgumentError(f"load: expected a function of the version's bytes, got {load!r}")
        self.label = f"model:{reference}"
        self.version = 0
        self._reference = reference
        self._model, self._wanted = parse_reference(reference)
        self._load = load
        self._registry = registry
        self._loading = trio.Lock()
        self._loaded: tuple[object, Function] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # What is loaded, is loaded again.
        return {**vars(self), "_loading": None, "_loaded": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _loading=trio.Lock())

    async def choose(self, context: SeatContext, chosen: str = "") -> str:
        """Return the model and the version that counts now; see `Seat.choose`."""
        try:
            info = await self._info(self._registry_of(context), context, self._wanted)
        except CogmentError:
            if self.optional:
                return ""  # who takes the seat will find out, and the default action be taken
            raise
        return policy_name(self._model, info.version_number)

    async def begin(self, context: SeatContext) -> Answer:
        """Return the policy of the version that was chosen, or counts now; see `LocalSeat.begin`."""
        registry = self._registry_of(context)
        version = parse_reference(context.policy)[1] if context.policy else self._wanted
        # Trials that begin together load a new version once.
        async with self._loading:
            info = await self._info(registry, context, version)
            # A model that was deleted and made again has the same numbers.
            key = (info.version_number, info.creation_timestamp, info.data_hash)
            if self._loaded is None or self._loaded[0] != key:
                _, data = await registry.retrieve(self._model, info.version_number)
                policy = self._load(data)
                if inspect.isawaitable(policy):
                    policy = await policy
                self._loaded = key, self._function(policy, context)
            self.version = info.version_number
            function = self._loaded[1]
        return function.begin(context)

    def _registry_of(self, context: SeatContext) -> ModelRegistryClient:
        registry = self._registry or context.model_registry
        if registry is None:
            raise FailedPreconditionError(
                f"environment {context.environment!r}, actor {context.agent!r}: model {self._reference!r}: expected a "
                "model registry, and the platform has none; give it one, or pass registry= to the seat"
            )
        return registry

    async def _info(self, registry: ModelRegistryClient, context: SeatContext, version: int) -> ModelVersionInfo:
        try:
            return await registry.version_info(self._model, version)
        except RpcError as error:
            if error.code is not StatusCode.NOT_FOUND:
                raise
            text = f"model: expected {self._reference!r} in the registry, which has no such version: {error.message}"
            raise SeatError(context.environment, context.agent, text) from error

    def _function(self, policy: Any, context: SeatContext) -> Function:
        try:
            return Function(policy, "load: what it returned")
        except InvalidArgumentError as error:
            raise SeatError(context.environment, context.agent, error) from None


def model(
    reference: str,
    load: Callable[[bytes], Any],
    *,
    registry: ModelRegistryClient | None = None,
    optional: bool = False,
    default: Any = None,
    response_timeout_seconds: float = 0.0,
) -> ModelSeat:
    """Return a seat that a version of a stored model takes: yesterday's policy, or the one before the newest.

    Which version that is, is looked up at the beginning of each trial; the version does not change within a trial. Its
    bytes are fetched and loaded when it is another than the last time.

    Args:
        reference: `rps@-1` is the newest version of the model `rps`, as is `rps` alone, `rps@-2` the one before it, and
            `rps@3` version 3.
        load: makes a policy of a version's bytes: a function as `policy` takes it, or an awaitable one. It runs where
            the trials run, which wait meanwhile.
        registry: where the model is; by default the platform's registry.
        optional: the trial goes on without it, when it has failed.
        default: the action that is taken then.
        response_timeout_seconds: how long an async policy may take before it counts as failed; 0: no limit.

    Raises:
        InvalidArgumentError: the reference is not of that form, `load` cannot be called, or the seat is optional and
            has no default action.
    """
    return ModelSeat(
        reference,
        load,
        registry,
        optional=optional,
        default=default,
        response_timeout_seconds=response_timeout_seconds,
    )
