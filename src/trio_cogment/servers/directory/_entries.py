"""The registrations: what the file holds, and what survives a restart.

To change `Entries`, change a copy, which replaces the original when it has been written. A change that is refused
leaves the entries unchanged.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace

from trio_cogment.access import Sources
from trio_cogment.api.directory_pb2 import FullServiceData, ServiceDetails, ServiceEndpoint
from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.base.errors import FailedPreconditionError, ResourceExhaustedError
from trio_cogment.base.records import record
from trio_cogment.base.recount import Count
from trio_cogment.servers.directory._requests import COGMENT, Inquiry, Service

#: The length of the salt of digests.
SALT_BYTES = 32


class Hasher:
    """Makes digests of tokens and secrets; only the digests are kept.

    All digests share one salt, so that the token of an inquiry is hashed once and not once for each registration. The
    file therefore shows which registrations have the same token. A weak token can be guessed from its digest.
    """

    def __init__(self, salt: bytes) -> None:
        self.salt = salt

    def digest(self, text: str) -> bytes:
        """Return the digest of a token or a secret."""
        return hmac.new(self.salt, text.encode(), hashlib.sha256).digest()


@record(kw_only=True)
class Entry:
    """One registration.

    Attributes:
        service_id: never 0.
        service: the service that is registered.
        permanent: the service is not checked, and always shown.
        token: digest of the authentication token it was registered with.
        secret: digest of the secret that deregistration needs.
        owner: the account that has registered it; empty where the authentication token says whose it is, and for what
            was registered before there were owners.
        reach: how far its host may lead; see `trio_cogment.access.reach_of`.
        sources: the access token it was registered with, and what that was derived from: it ends when one is revoked.
    """

    service_id: int
    service: Service
    permanent: bool
    token: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    owner: str = ""
    reach: str | None = None
    sources: Sources = ()

    def same_owner(self, other: Entry) -> bool:
        """Tell whether another registration is its owner's."""
        return self.owner == other.owner and hmac.compare_digest(self.token, other.token)

    @property
    def exempt(self) -> bool:
        """Whether it is assumed healthy without checks: it is permanent, or it cannot be called."""
        return self.permanent or self.service.protocol == COGMENT

    def data(self) -> FullServiceData:
        """Return the registration as inquiries show it."""
        service = self.service
        return FullServiceData(
            endpoint=ServiceEndpoint(
                protocol=service.protocol,  # type: ignore[arg-type]  # an enum's value, checked
                host=service.host,
                port=service.port,
            ),
            service_id=self.service_id,
            details=ServiceDetails(
                type=service.kind,  # type: ignore[arg-type]  # an enum's value, checked
                properties=service.properties,
            ),
            permanent=self.permanent,
        )


class Entries:
    """The registrations, the oldest first.

    Args:
        entries: each with an id of its own.

    Attributes:
        total_bytes: the size of all hosts and properties together.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = {entry.service_id: entry for entry in entries}
        self.total_bytes = sum(entry.service.size for entry in self)

    def copy(self) -> Entries:
        """Return a copy that can be changed independently."""
        other = Entries()
        other._entries = dict(self._entries)
        other.total_bytes = self.total_bytes
        return other

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __contains__(self, service_id: int) -> bool:
        return service_id in self._entries

    def get(self, service_id: int) -> Entry | None:
        """Return one registration, or None."""
        return self._entries.get(service_id)

    def matching(self, inquiry: Inquiry, token: bytes, account: str | None = None) -> list[Entry]:
        """Return the registrations with this token that match an inquiry, the preferred one first.

        Those of one owner are in a row, the newest first. The first row is that of the account that asks; the others
        follow in the order in which their owners came, so a newcomer is never preferred to earlier ones.
        """
        if inquiry.service_id is not None:
            entry = self._entries.get(inquiry.service_id)
            found = [] if entry is None else [entry]
        else:
            found = [entry for entry in reversed(self._entries.values()) if inquiry.fits(entry.service)]
        found = [entry for entry in found if hmac.compare_digest(entry.token, token)]
        ranks = {} if account is None else {account: -1}
        for entry in reversed(found):
            ranks.setdefault(entry.owner, len(ranks))
        if len(ranks) > 1:
            found.sort(key=lambda entry: ranks[entry.owner])
        return found

    def register(self, entry: Entry, config: DirectoryServerConfig, *, adopts: bool = False) -> Entry:
        """Add a registration, replacing earlier ones of its owner where the rules say so; return it as it was added.

        A permanent registration replaces every permanent one of the same owner and token that an inquiry for its type
        and properties would find. It takes the id and the place of the newest of them, but has a secret of its own,
        since of the old one only the digest is known.

        Any other registration is added, even if an equal one exists; when there are more than `max_duplicates` equal
        ones of its owner, the oldest are removed.

        Args:
            entry: the registration.
            config: the limits.
            adopts: it may replace those that were registered before there were owners.

        Raises:
            ResourceExhaustedError: a limit on the number or the size of registrations is reached.
        """
        replaced = self._permanent_ones(entry, adopts) if entry.permanent else self._duplicates(entry, config)
        self._check_owner(entry, replaced, config)
        if len(self) - len(replaced) >= config.max_entries:
            raise ResourceExhaustedError(f"the directory has {len(self)} registrations and takes no more")
        total = self.total_bytes - sum(other.service.size for other in replaced) + entry.service.size
        if total > config.max_total_bytes:
            raise ResourceExhaustedError(f"the directory has {self.total_bytes} bytes of registrations; no room")
        if entry.permanent and replaced:
            entry = replace(entry, service_id=replaced[0].service_id)
            replaced = replaced[1:]
        for other in replaced:
            del self._entries[other.service_id]
        self._entries[entry.service_id] = entry
        self.total_bytes = total
        return entry

    def _check_owner(self, entry: Entry, replaced: list[Entry], config: DirectoryServerConfig) -> None:
        """Refuse an owner more than its share: nobody else could register."""
        if len(self) < config.max_owner_entries and self.total_bytes + entry.service.size <= config.max_owner_bytes:
            return
        gone = {other.service_id for other in replaced}
        own = [other for other in self if other.same_owner(entry) and other.service_id not in gone]
        if len(own) >= config.max_owner_entries:
            raise ResourceExhaustedError(f"max_owner_entries: you have {len(own)} registrations, and no more are taken")
        size = sum(other.service.size for other in own)
        if size + entry.service.size > config.max_owner_bytes:
            raise ResourceExhaustedError(f"max_owner_bytes: you have {size} bytes of registrations; no room")

    def _permanent_ones(self, entry: Entry, adopts: bool) -> list[Entry]:
        like_it = Inquiry(kind=entry.service.kind, properties=entry.service.properties)
        return [
            other
            for other in self.matching(like_it, entry.token)
            if other.permanent and (other.owner == entry.owner or (adopts and not other.owner))
        ]

    def _duplicates(self, entry: Entry, config: DirectoryServerConfig) -> list[Entry]:
        host = entry.service.host
        same = [
            other
            for other in self
            if other.service.host == host  # the cheapest comparison first
            and not other.permanent
            and other.same_owner(entry)
            and other.service == entry.service
        ]
        return same[: max(0, len(same) + 1 - config.max_duplicates)]

    def deregister(self, service_id: int, token: bytes, secret: bytes) -> None:
        """Remove a registration on behalf of its owner.

        Raises:
            FailedPreconditionError: there is none with this id, token and secret. The text does not say which is wrong.
        """
        entry = self._entries.get(service_id)
        known = entry is not None and hmac.compare_digest(entry.token + entry.secret, token + secret)
        if not known:
            raise FailedPreconditionError(
                f"service_id: no service {service_id} is registered with this secret and authentication token"
            )
        self.remove(service_id)

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        size = sum(entry.service.size for entry in self)
        yield Count("bytes of registrations", self.total_bytes, size, None)

    def fallen(self, stand: Callable[[Sources], bool]) -> list[Entry]:
        """Return the registrations whose access token, or what that was derived from, was revoked."""
        fallen = {sources for sources in {entry.sources for entry in self} if not stand(sources)}
        return [entry for entry in self if entry.sources in fallen] if fallen else []

    def remove(self, service_id: int) -> None:
        """Remove a registration if it exists."""
        entry = self._entries.pop(service_id, None)
        if entry is not None:
            self.total_bytes -= entry.service.size
