"""Who is registered: what is written into the file, and what is true after a restart.

A `Registry` is changed by changing a copy, which takes the original's place when it has been written. A change that
is refused leaves it as it was.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from trio_cogment.api.directory_pb2 import FullServiceData, ServiceDetails, ServiceEndpoint
from trio_cogment.config import DirectoryServerConfig
from trio_cogment.directory._requests import COGMENT, Inquiry, Service
from trio_cogment.errors import FailedPreconditionError, ResourceExhaustedError

#: Of what digests are made with.
SALT_BYTES = 32


class Hasher:
    """Makes of tokens and secrets what is kept of them.

    One salt serves for all: an inquiry's token is hashed once, not once for each registration. That two registrations
    have the same token can be seen, and is no secret. A token that can be guessed can be guessed from its digest.
    """

    def __init__(self, salt: bytes) -> None:
        self.salt = salt

    def digest(self, text: str) -> bytes:
        """Return the digest of a token or a secret."""
        return hmac.new(self.salt, text.encode(), hashlib.sha256).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One registration.

    Attributes:
        service_id: never 0.
        service: what is registered.
        permanent: nobody looks whether it is there.
        token: digest of the token of its registration.
        secret: digest of what has to be known to take it back.
    """

    service_id: int
    service: Service
    permanent: bool
    token: bytes = field(repr=False)
    secret: bytes = field(repr=False)

    @property
    def exempt(self) -> bool:
        """Whether it is taken to be healthy: it says so itself, or it cannot be called."""
        return self.permanent or self.service.protocol == COGMENT

    def data(self) -> FullServiceData:
        """Return what inquiries show."""
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


class Registry:
    """The registrations, the oldest first.

    Args:
        entries: each with an id of its own.

    Attributes:
        total_bytes: of text that they have.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = {entry.service_id: entry for entry in entries}
        self.total_bytes = sum(entry.service.size for entry in self)

    def copy(self) -> Registry:
        """Return another one that is the same."""
        other = Registry()
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

    def matching(self, inquiry: Inquiry, token: bytes) -> list[Entry]:
        """Return the registrations of this token that an inquiry means, the newest first."""
        if inquiry.service_id is not None:
            entry = self._entries.get(inquiry.service_id)
            found = [] if entry is None else [entry]
        else:
            found = [entry for entry in reversed(self._entries.values()) if inquiry.fits(entry.service)]
        return [entry for entry in found if hmac.compare_digest(entry.token, token)]

    def register(self, entry: Entry, config: DirectoryServerConfig) -> Entry:
        """Add a registration, or let it take the place of those it replaces; return it as it is now.

        A permanent one replaces every permanent one of its token that an inquiry for it would find. It has the id and
        the place of the newest of them. (It has its own secret: of the old one we have no more than the digest.)

        Any other is one more, even if there is the same already, but of too many that are the same the oldest go.

        Raises:
            ResourceExhaustedError: there are too many.
        """
        replaced = self._permanent_ones(entry) if entry.permanent else self._duplicates(entry, config)
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

    def _permanent_ones(self, entry: Entry) -> list[Entry]:
        like_it = Inquiry(kind=entry.service.kind, properties=entry.service.properties)
        return [other for other in self.matching(like_it, entry.token) if other.permanent]

    def _duplicates(self, entry: Entry, config: DirectoryServerConfig) -> list[Entry]:
        host = entry.service.host
        same = [
            other
            for other in self
            if other.service.host == host  # the quick part first
            and not other.permanent
            and other.token == entry.token
            and other.service == entry.service
        ]
        return same[: max(0, len(same) + 1 - config.max_duplicates)]

    def deregister(self, service_id: int, token: bytes, secret: bytes) -> None:
        """Take a registration back.

        Raises:
            FailedPreconditionError: there is none with this id, token and secret. Which of them is wrong is not told.
        """
        entry = self._entries.get(service_id)
        known = entry is not None and hmac.compare_digest(entry.token + entry.secret, token + secret)
        if not known:
            raise FailedPreconditionError(
                f"service_id: no service {service_id} is registered with this secret and authentication token"
            )
        self.remove(service_id)

    def remove(self, service_id: int) -> None:
        """Forget a registration, if it is there."""
        entry = self._entries.pop(service_id, None)
        if entry is not None:
            self.total_bytes -= entry.service.size
