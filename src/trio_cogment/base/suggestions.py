"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable


def similar(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like a name; None if none is like it.

    Args:
        name: what somebody wrote.
        known: the names that there are.
        cutoff: how alike they have to be, from 0 to 1.
    """
    from difflib import get_close_matches  # only who has made a mistake waits for it

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def suggestion(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return what an error says to do about a name that nothing has: `did you mean 'x'?`, or what there is.

    Args:
        name: what somebody wrote.
        known: the names that there are.
        otherwise: said if none of them is like it; by default all of them: `expected one of a, b`.
    """
    known = list(known)
    close = similar(name, known)
    if close is not None:
        return f"did you mean {close!r}?"
    return otherwise if otherwise is not None else f"expected one of {', '.join(known) or 'none'}"


def with_suggestion(text: str, name: str, known: Iterable[str]) -> str:
    """Return the text of an error, with the known name that is most like a name, if one is."""
    close = similar(name, known)
    return text if close is None else f"{text}; did you mean {close!r}?"
