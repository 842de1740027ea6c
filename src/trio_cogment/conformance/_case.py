"""A case, its sources, and the verdict about an outcome."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from trio_cogment.base.records import record

if TYPE_CHECKING:
    from trio_cogment.conformance._server import Server

#: Plays a case with a server, and returns its outcome.
Play: TypeAlias = "Callable[[Server], Awaitable[str]]"


class Verdict(enum.Enum):
    """What an outcome is like."""

    DOCUMENTED = "as documented"
    REFERENCE = "as Cogment 2.22"
    OURS = "as trio-cogment"
    DIFFERENT = "different"


@record(kw_only=True)
class Case:
    """A scene with a server, and what comes of it.

    Attributes:
        service: whose case it is, as in `trio-cogment services`.
        name: of the case, unique within its service.
        rule: what it looks at, as a sentence.
        source: where the rule is documented: a message or call of the API, or "Cogment 2.22" where documents are
            silent and the rule is how that version was seen to behave.
        documented: the outcome that the documentation asks for; empty: it does not say.
        reference: the outcomes that Cogment 2.22 has, one for each of its storages where they differ.
        ours: the outcome that this project has where it differs from these on purpose; empty: it does not.
        row: the first words of the row of docs/wire.md that names that difference.
        may_end: Cogment 2.22 ends, hangs or takes all memory for it, so other servers might.
        play: plays it.
    """

    service: str
    name: str
    rule: str
    source: str
    documented: str = ""
    reference: tuple[str, ...] = ()
    ours: str = ""
    row: str = ""
    may_end: bool = False
    play: Play

    @property
    def key(self) -> str:
        """The service and the name."""
        return f"{self.service}/{self.name}"


@record(kw_only=True)
class Result:
    """What came of a case.

    Attributes:
        case: the case.
        outcome: what was seen.
        verdict: what that is like.
    """

    case: Case
    outcome: str
    verdict: Verdict


def judged(case: Case, outcome: str) -> Result:
    """Return the verdict about an outcome: the first of those in `Verdict` that fits."""
    if case.documented and outcome == case.documented:
        verdict = Verdict.DOCUMENTED
    elif outcome in case.reference:
        verdict = Verdict.REFERENCE
    elif case.ours and outcome == case.ours:
        verdict = Verdict.OURS
    else:
        verdict = Verdict.DIFFERENT
    return Result(case=case, outcome=outcome, verdict=verdict)


class Cases:
    """The cases of one service, in the order in which they are written down.

    Args:
        service: as in `Case`.
    """

    def __init__(self, service: str) -> None:
        self._service = service
        self.all: list[Case] = []

    def case(
        self,
        source: str,
        *,
        documented: str = "",
        reference: str | tuple[str, ...] = (),
        ours: str = "",
        row: str = "",
        may_end: bool = False,
    ) -> Callable[[Play], Play]:
        """Return a decorator that adds a function as a case: its name is the case's, its docstring the rule."""

        def add(play: Play) -> Play:
            self.all.append(
                Case(
                    service=self._service,
                    name=str(getattr(play, "__name__", "")),
                    rule=(play.__doc__ or "").strip(),
                    source=source,
                    documented=documented,
                    reference=(reference,) if isinstance(reference, str) else reference,
                    ours=ours,
                    row=row,
                    may_end=may_end,
                    play=play,
                )
            )
            return play

        return add
