"""Failures of a run, and blocks that report one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType

import trio

#: The program is to end.
_ENDING = (KeyboardInterrupt, SystemExit)
#: A task is ended from outside.
_UNWINDING = (trio.Cancelled, GeneratorExit)


def is_failure(error: BaseException) -> bool:
    """Tell whether a run that raised this has failed, and was not only ended from outside.

    An ``except Exception`` would not do: what `pytest.fail` and `pytest.raises` raise is no `Exception`, nor is a group
    from a nursery that has one of those in it.
    """
    leaves = list(_leaves(error))
    if any(isinstance(leaf, _ENDING) for leaf in leaves):
        return False
    return not all(isinstance(leaf, _UNWINDING) for leaf in leaves)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


class OnFailure:
    """A block that reports its failure.

    Args:
        tell: called with the exception. What it raises replaces that; if it returns True, nothing is raised.
    """

    def __init__(self, tell: Callable[[BaseException], bool | None]) -> None:
        self._tell = tell

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Report a failure."""
        return error is not None and is_failure(error) and bool(self._tell(error))


def noting(note: str) -> OnFailure:
    """Return a block to whose failure a note is added."""
    return OnFailure(lambda error: error.add_note(note))
