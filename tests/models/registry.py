"""A model registry, one call at a time: a dictionary of models, each with a dictionary of versions.

Each model is judged by itself: what a list of all models says of each of them is a read of that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

from trio_cogment.testing import LOST, LoggedCall, SequentialModel

OK, NOT_FOUND = "OK", "NOT_FOUND"


class Version(NamedTuple):
    """A version; `text` is unique among all that is ever uploaded."""

    number: int
    archived: bool
    text: str


class One(NamedTuple):
    """What there is of one model.

    Attributes:
        data: its user data; None: there is no such model.
        last: the highest number that was given.
        versions: those there are, by number.
        given: all versions that were there since the start.
        limbo: what may be on the disk of uploads that failed: it is seen after the next start, or never.
        spare: how many numbers uploads that failed may have used up.
    """

    data: str | None = None
    last: int = 0
    versions: dict[int, Version] = {}  # noqa: RUF012  nothing changes it
    given: tuple[Version, ...] = ()
    limbo: tuple[Version, ...] = ()
    spare: int = 0

    def without(self, numbers: Iterable[int]) -> One:
        """Return it without some versions."""
        gone = set(numbers)
        return self._replace(versions={n: version for n, version in self.versions.items() if n not in gone})

    def put(self, version: Version) -> One:
        """Return it with one version more."""
        versions = dict(sorted({**self.versions, version.number: version}.items()))
        return self.after_number(version.number)._replace(
            versions=versions, given=tuple(sorted({*self.given, version}))
        )

    def after_number(self, number: int) -> One:
        """Return it after a number was given, and those before it that were left out."""
        skipped = max(0, number - self.last - 1)
        return self._replace(last=max(self.last, number), spare=self.spare - skipped)


# What may be asked


class Put(NamedTuple):
    """Create a model, or give it other user data."""

    model: str
    data: str


class Delete(NamedTuple):
    """Delete a model with all its versions."""

    model: str


class Upload(NamedTuple):
    """Add a version. The answer is its number.

    Attributes:
        number: if the answer was lost, the number under which somebody saw the version; 0: nobody did.
    """

    model: str
    archived: bool
    text: str
    number: int = 0


class Describe(NamedTuple):
    """The answer is the user data."""

    model: str


class ListModels(NamedTuple):
    """All models, page by page. The answer is a dictionary of user data. `known`: all ids that there ever may be."""

    known: tuple[str, ...]


class ListVersions(NamedTuple):
    """Versions from a number on, at most this many (0: all). The answer is a tuple of them."""

    model: str
    first: int = 0
    most: int = 0


class Find(NamedTuple):
    """A version by its number, or the k-th newest for -k. The answer is the version."""

    model: str
    wanted: int


class Read(NamedTuple):
    """The bytes of a version, named as for `Find`. The answer is their text."""

    model: str
    wanted: int


class Next(NamedTuple):
    """What a follower is told after a version, or first (0): the newest, then each new one.

    The answer is a version, or NOT_FOUND for the end.
    """

    model: str
    after: int


class Restart(NamedTuple):
    """The program ended in whatever way, and begins again. `known`: all ids that there ever may be."""

    known: tuple[str, ...]


class RegistryModel(SequentialModel[One]):
    """The rules.

    Args:
        calls: all of them, to learn from what was answered which uploads whose answer was lost were seen, and how many
            were not.
        evicts: there is not room for all versions that are not archived. Which have to go is not followed: any of them
            may, but the newest of its model.
    """

    def __init__(self, calls: Iterable[LoggedCall], *, evicts: bool = False) -> None:
        self._evicts = evicts
        self._seen: dict[str, int] = {}
        self._lost: Counter[str] = Counter()
        for call in calls:
            told = [call.answer] if isinstance(call.answer, Version) else call.answer
            for version in told if isinstance(told, (list, tuple)) else ():
                self._seen[version.text] = version.number
            if isinstance(call.request, Upload) and call.answer is LOST:
                self._lost[call.request.model] += 1

    def start(self, key: Hashable) -> One:
        return One(spare=self._lost[str(key)])

    def parts(self, request: Any, answer: Any) -> Iterable[tuple[Hashable, Any, Any]]:
        if isinstance(request, Restart):
            return [(model, request, answer) for model in request.known]
        if isinstance(request, ListModels):
            if answer is LOST:
                return []
            return [(model, Describe(model), answer.get(model, NOT_FOUND)) for model in request.known]
        if isinstance(request, Upload) and answer is LOST:
            request = request._replace(number=self._seen.get(request.text, 0))
        return [(request.model, request, answer)]

    def after(self, state: One, request: Any, answer: Any) -> Iterator[One]:
        if isinstance(request, Restart):
            yield from restarted(state)
        elif isinstance(request, Put):
            if answer in (OK, LOST):
                yield state._replace(data=request.data)
        elif state.data is None:
            if answer == NOT_FOUND:
                yield state
        elif isinstance(request, Delete):
            if answer in (OK, LOST):
                yield One(spare=state.spare)
        elif isinstance(request, Upload):
            yield from uploaded(state, request, answer)
        elif answer is not LOST:
            for there in self._evictions(state):
                if answer == seen(there, request):
                    yield there

    def only_reads(self, request: Any) -> bool:
        return isinstance(request, (Describe, ListVersions, Find, Read, Next))

    def expected(self, state: One, request: Any) -> object:
        if isinstance(request, Upload):
            return NOT_FOUND if state.data is None else state.last + 1
        if isinstance(request, (Put, Delete, Restart)):
            return NOT_FOUND if isinstance(request, Delete) and state.data is None else OK
        return NOT_FOUND if state.data is None else seen(state, request)

    def _evictions(self, state: One) -> Iterator[One]:
        """Yield the state, and each that it may have become since because there was no room."""
        yield state
        if self._evicts:
            loose = [number for number, version in state.versions.items() if not version.archived][:-1]
            for count in range(1, len(loose) + 1):
                yield from map(state.without, combinations(loose, count))


# The rules of each


def uploaded(state: One, request: Upload, answer: Any) -> Iterator[One]:
    """A version has the next number, or a later one if others were used up. Of a failed one nobody knows.

    It may be there, or come with the next start, or never; and it may have used up a number.
    """
    if answer is not LOST:
        if answer != NOT_FOUND and 0 < answer - state.last <= 1 + state.spare:
            yield state.put(Version(answer, request.archived, request.text))
        return
    state = state._replace(spare=state.spare - 1)  # this one was not left out
    for number in [request.number] if request.number else range(state.last + 1, state.last + state.spare + 2):
        version = Version(number, request.archived, request.text)
        if 0 < number - state.last <= 1 + state.spare:
            yield state.put(version)
        if request.number and request.archived and all(number != other.number for other in state.given):
            yield state.after_number(number)._replace(limbo=(*state.limbo, version))


def restarted(state: One) -> Iterator[One]:
    """What was not archived is gone; of what was left in limbo each is there, or is not and never will be."""
    kept = state.without(number for number, version in state.versions.items() if not version.archived)
    for count in range(len(state.limbo) + 1):
        for found in combinations(state.limbo, count):
            after = kept._replace(limbo=(), given=tuple(kept.versions.values()))
            for version in found:
                after = after.put(version)
            yield after


def seen(state: One, request: Any) -> object:
    """Say what is answered of a model that is there."""
    if isinstance(request, Describe):
        return state.data
    if isinstance(request, ListVersions):
        found = tuple(version for number, version in state.versions.items() if number >= request.first)
        return found[: request.most or None]
    if isinstance(request, Next):
        newest = list(state.versions.values())[-1:]
        later = [version for version in state.given if version.number > request.after] if request.after else newest
        return later[0] if later else "nothing"
    numbers = list(state.versions)
    wanted = request.wanted
    if wanted < 0:
        wanted = numbers[wanted] if -wanted <= len(numbers) else 0
    if wanted not in state.versions:
        return NOT_FOUND
    version = state.versions[wanted]
    return version.text if isinstance(request, Read) else version
