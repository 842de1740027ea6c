"""Holdings of accounts in a registry: which models are whose, how many, and how many bytes these take.

A model's bytes are those of its blobs, and of its versions that are not archived. They are looked up when somebody with
a quota of bytes adds to them for the first time, and kept up from then on; where nobody has a quota, nobody looks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from types import TracebackType

from trio_cogment.access import Quotas, lasting
from trio_cogment.api.model_registry_pb2 import ModelInfo, ModelVersionInfo
from trio_cogment.base.errors import QuotaError
from trio_cogment.base.records import record
from trio_cogment.budget.quotas import Ledger
from trio_cogment.rpc import ServerCall
from trio_cogment.servers.model_registry._archive import most_bytes_of
from trio_cogment.servers.model_registry._model import Model, shown


def _everything(_owner: str, _what: str) -> None:
    """Let a caller reach whatever there is."""


@record(kw_only=True)
class Caller:
    """On whose behalf something is changed.

    Attributes:
        account: which new models belong to; empty: nobody's, and for no quota they count.
        quotas: of the account.
        check: raises PermissionDeniedError for an owner whose things the caller does not reach; the text names what.
    """

    account: str = ""
    quotas: Quotas = field(default_factory=Quotas)
    check: Callable[[str, str], None] = _everything

    @classmethod
    def of(cls, call: ServerCall) -> Caller:
        """Return who makes a call."""
        identity, path = call.identity, call.method.path
        return cls(
            account=lasting(identity.account),
            quotas=identity.grant.quotas,
            check=lambda owner, what: identity.check_reaches(path, owner, what),
        )

    def check_model(self, model: Model) -> None:
        """Raise PermissionDeniedError for a model that is somebody else's."""
        self.check(model.owner, f"model {shown(model.model_id)}")

    def quota_for(self, owner: str) -> int | None:
        """Return how many bytes an owner may have when this caller adds to them; None: any number."""
        return self.quotas.stored_bytes if owner == self.account else None


THIS_PROGRAM = Caller()


class Reservation:
    """Bytes that are about to be stored: `with reservation`."""

    def __init__(self, ledger: Ledger, owner: str, size: int) -> None:
        self._ledger = ledger
        self._owner = owner
        self._size = size

    def release(self) -> None:
        """Count them no more: they are stored, or will not be. Nothing happens the second time."""
        self._ledger.give_back(self._owner, self._size)
        self._size = 0

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class Holdings:
    """The accounts of a registry.

    Args:
        measure: returns the bytes of a model.
    """

    def __init__(self, measure: Callable[[Model], Awaitable[int]]) -> None:
        self._measure = measure
        self._models: dict[str, dict[Model, None]] = {}
        self.counts = Ledger("models")
        self.reserved = Ledger("stored_bytes")

    def add(self, model: Model) -> None:
        """Know of a model, which `counts` has already."""
        if model.owner:
            self._models.setdefault(model.owner, {})[model] = None

    def remove(self, model: Model) -> None:
        """A model is gone."""
        owned = self._models.get(model.owner)
        if owned is not None and model in owned:
            del owned[model]
            if not owned:
                del self._models[model.owner]
            self.counts.give_back(model.owner, 1)

    def used(self, owner: str) -> int:
        """Return the bytes of an account, as far as they are known."""
        return sum(model.bytes or 0 for model in self._models.get(owner, ()))

    async def reserve(self, owner: str, info: ModelInfo | ModelVersionInfo, quota: int | None) -> Reservation:
        """Return room for this many bytes, to be released.

        Args:
            owner: of the model.
            info: what will be stored.
            quota: how many bytes the owner may have; None: any number.

        Raises:
            QuotaError: there would be more.
            CogmentError: of the storage.
        """
        if not owner or quota is None:
            return Reservation(self.reserved, owner, 0)
        size = most_bytes_of(info)
        for model in list(self._models.get(owner, ())):
            await self.measured(model)
        if self.used(owner) + self.reserved.used(owner) + size > quota:
            raise QuotaError(f"the quota of {quota} stored_bytes of this account is used up")
        self.reserved.take(owner, size, None)
        return Reservation(self.reserved, owner, size)

    async def measured(self, model: Model) -> None:
        """Find out the bytes of a model, unless they are known."""
        if model.bytes is None:
            async with model.lock:
                if model.bytes is None and not model.deleted:
                    model.bytes = await self._measure(model)
