"""Named checkers of what must hold in every run, whatever faults it had, over the recorded history.

They read what the fakes (`FakeActor`, `FakeEnvironment`, `FakeHook`, `FakeDatalog`), `record_states`, `RecordedCalls`
and `Probe` note, in a simulated run or over real sockets. A checker yields a sentence for each violation it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from trio_cogment.testing.checkers._contents import CONTENT_CHECKERS
from trio_cogment.testing.checkers._inside import INSIDE_CHECKERS
from trio_cogment.testing.checkers._outcomes import OUTCOME_CHECKERS
from trio_cogment.testing.checkers._samples import SAMPLE_CHECKERS
from trio_cogment.testing.checkers.params import PARAM_CHECKERS
from trio_cogment.testing.checkers.sessions import SESSION_CHECKERS
from trio_cogment.testing.checkers.states import STATE_CHECKERS
from trio_cogment.testing.history import History, MissingDetailError

Checker: TypeAlias = Callable[[History], Iterator[str]]

#: Every checker by its name.
CHECKERS: dict[str, Checker] = {
    checker.__name__.replace("_", "-"): checker
    for checker in (
        *STATE_CHECKERS,
        *OUTCOME_CHECKERS,
        *SESSION_CHECKERS,
        *SAMPLE_CHECKERS,
        *CONTENT_CHECKERS,
        *PARAM_CHECKERS,
        *INSIDE_CHECKERS,
    )
}


class InvariantError(AssertionError):
    """A run has violated invariants; the text names the checkers and what they found."""


def check_history(history: History, checkers: Iterable[str] | None = None) -> None:
    """Apply checkers, all of them unless some are named.

    Raises:
        InvariantError: what they found.
        ValueError: there is no such checker, or one reads of an event what it does not say.
    """
    names = list(CHECKERS) if checkers is None else list(checkers)
    unknown = [name for name in names if name not in CHECKERS]
    if unknown:
        raise ValueError(f"checkers: expected some of {', '.join(CHECKERS)}, got {', '.join(map(repr, unknown))}")
    found: list[str] = []
    for name in names:
        try:
            found.extend(f"{name}: {text}" for text in CHECKERS[name](history))
        except MissingDetailError as error:
            raise ValueError(f"{name}: {error}") from error
    if history.dropped:
        found.append(f"history: {history.dropped} events had no room, so nothing is certain")
    if found:
        more = f"\n... and {len(found) - 20} more" if len(found) > 20 else ""
        raise InvariantError("\n".join(found[:20]) + more)
