"""A directory, one call at a time: a dictionary of registrations in the order in which they came.

What is registered has a host of its own, by which the model knows it: the id of one whose reply was lost is learned
from an inquiry.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from trio_cogment.testing import LOST, SequentialModel

OK, FAILED = "OK", "FAILED"


class Entry(NamedTuple):
    """A registration.

    Attributes:
        service_id: 0: nobody knows it yet.
        call: the registration that made it.
    """

    service_id: int
    call: Register


class Register(NamedTuple):
    """Register a service. The answer is its id.

    Attributes:
        account: who says so; it is the owner if there is no token.
        host: unique among all that is ever registered.
        kind: of service.
        properties: names and values, sorted.
        permanent: it is never checked.
        token: of authentication.
    """

    account: str
    host: str
    kind: int
    properties: tuple[tuple[str, str], ...] = ()
    permanent: bool = False
    token: str = ""

    @property
    def owner(self) -> tuple[str, str]:
        """Who may replace it."""
        return ("", self.token) if self.token else (self.account, "")


class Deregister(NamedTuple):
    """Take a registration back, with the secret that was given to `host`: each has its own; "" is a wrong one."""

    service_id: int
    host: str
    token: str = ""


class Inquire(NamedTuple):
    """Ask for services of a kind (0: any) that have some properties. The answer is a tuple of `Shown`."""

    account: str
    kind: int = 0
    properties: tuple[tuple[str, str], ...] = ()
    token: str = ""


class Look(NamedTuple):
    """Ask for one service by its id."""

    account: str
    service_id: int
    token: str = ""


class Shown(NamedTuple):
    """What an inquiry says of a service."""

    service_id: int
    host: str
    permanent: bool


#: By host, in the order of their places.
State = dict[str, Entry]


class DirectoryModel(SequentialModel[State]):
    """The rules.

    Args:
        hides: services that are not permanent may not be shown, because they do not answer; otherwise all are.
    """

    def __init__(self, *, hides: bool = False) -> None:
        self._hides = hides

    def start(self, key: Hashable) -> State:
        return {}

    def after(self, state: State, request: Any, answer: Any) -> Iterator[State]:
        if isinstance(request, Register):
            yield from registered(state, request, answer)
        elif isinstance(request, Deregister):
            yield from deregistered(state, request, answer)
        elif answer is not LOST:
            learned = self._learned(state, request, answer)
            if learned is not None:
                yield learned

    def _learned(self, state: State, request: Inquire | Look, answer: tuple[Shown, ...]) -> State | None:
        """Return what is known after an answer; None if it is not right."""
        hosts = {shown.host for shown in answer}
        right = [
            entry
            for entry in matching(state, request)
            if entry.call.host in hosts or entry.call.permanent or not self._hides
        ]
        if [entry.call.host for entry in right] != [shown.host for shown in answer]:
            return None
        learned = dict(state)
        for entry, shown in zip(right, answer, strict=True):
            if entry.service_id not in (0, shown.service_id) or entry.call.permanent != shown.permanent:
                return None
            learned[shown.host] = entry._replace(service_id=shown.service_id)
        return learned

    def only_reads(self, request: Any) -> bool:
        return isinstance(request, (Inquire, Look))

    def expected(self, state: State, request: Any) -> object:
        if isinstance(request, Register):
            return next((state[host].service_id for host in replaced(state, request)), "a new id")
        if isinstance(request, Deregister):
            return OK if of_id(state, request.service_id) else FAILED
        return tuple(Shown(e.service_id, e.call.host, e.call.permanent) for e in matching(state, request))


# The rules of each


def registered(state: State, request: Register, answer: Any) -> Iterator[State]:
    """A permanent service takes the place and the id of the newest of its owner like it, and the others go."""
    old = replaced(state, request)
    if not old:
        if answer is LOST or not of_id(state, answer):
            yield {**state, request.host: Entry(0 if answer is LOST else answer, request)}
        return
    taken = state[old[0]]
    if answer is not LOST and taken.service_id not in (0, answer):
        return
    entry = Entry(taken.service_id if answer is LOST else answer, request)
    yield {
        (request.host if host == old[0] else host): (entry if host == old[0] else other)
        for host, other in state.items()
        if host not in old[1:]
    }


def replaced(state: State, request: Register) -> list[str]:
    """Return the hosts of the services that a permanent one replaces, the newest first."""
    return [
        host
        for host, entry in reversed(state.items())
        if request.permanent
        and entry.call.permanent
        and entry.call.owner == request.owner
        and entry.call.kind == request.kind
        and set(request.properties) <= set(entry.call.properties)
    ]


def deregistered(state: State, request: Deregister, answer: Any) -> Iterator[State]:
    """It takes the id, the secret and the token, and does not say which of them is wrong."""
    host = of_id(state, request.service_id)
    allowed = host != "" and host == request.host and state[host].call.token == request.token
    if answer in ((OK, LOST) if allowed else (FAILED,)):
        yield {other: entry for other, entry in state.items() if not allowed or other != host}


def of_id(state: State, service_id: int) -> str:
    """Return the host of a registration; nothing if there is none."""
    return next((host for host, entry in state.items() if entry.service_id == service_id), "")


def matching(state: State, request: Inquire | Look) -> list[Entry]:
    """Return what an inquiry is for: the caller's own first, then by who came first; of each the newest first."""
    if isinstance(request, Look):
        found = [entry for entry in state.values() if entry.service_id == request.service_id]
    else:
        found = [
            entry
            for entry in state.values()
            if request.kind in (0, entry.call.kind) and set(request.properties) <= set(entry.call.properties)
        ]
    found = [entry for entry in found if entry.call.token == request.token]
    owners = list(dict.fromkeys([("", request.token) if request.token else (request.account, "")]))
    owners += [entry.call.owner for entry in found]
    return [entry for owner in dict.fromkeys(owners) for entry in reversed(found) if entry.call.owner == owner]
